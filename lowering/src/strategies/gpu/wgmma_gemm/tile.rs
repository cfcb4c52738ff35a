//! A CTA's tile of a warp-specialised GEMM, and the tiles that a persistent CTA takes.
use crate::{
    emit::{
        code::{Code, constant_value},
        loops::decode,
    },
    strategies::gpu::{
        common::{
            fragments::ProductResults,
            ptx::Ptx,
            threads,
            tile::{Fragments, Tile},
        },
        wgmma_gemm::{
            MatrixOperand, TensorCoreProduct, k_range::KSplit, staged_results::StagedResult,
        },
    },
};
use kiln_dialects::ir::*;

/// Rasterisation: rows of tiles that consecutive CTAs sweep before the next columns, so that both
/// operands stay in the L2 cache.
const BAND: usize = 8;

/// What all parts of the emission share.
pub(super) struct WgmmaTile<'a> {
    pub(super) results: ProductResults<'a>,
    /// The tensor maps of the operands.
    pub(super) left_map: Value,
    pub(super) right_maps: Vec<Value>,
    /// Results that the epilogue stages in shared memory, with the tensor maps of those that TMA
    /// stores.
    pub(super) staged_results: Vec<(StagedResult, Option<Value>)>,
    pub(super) m: usize,
    /// Columns of the tile, all right operands together.
    pub(super) n: usize,
    pub(super) warpgroups: usize,
    /// The pipeline, as its tiles of the left operand and of the right ones.
    pub(super) left: Value,
    pub(super) right: Value,
    /// Sizes of the batch dimensions, and tiles of a matrix: along M, along N.
    pub(super) batch: Vec<Value>,
    pub(super) tiles: [Value; 2],
    pub(super) total: Value,
    /// The K steps of this CTA, at least one.
    pub(super) k_split: KSplit,
}

/// The tile's first row and column as 32-bit integers, and its batch position as indices.
pub(super) struct TileCoord {
    pub(super) row: Value,
    pub(super) column: Value,
    pub(super) batch: Vec<Value>,
}

/// Emits the body of a tile, given its first stage; returns the next tile's.
type TileBody<'a> = dyn FnMut(Code, &TileCoord, Value) -> Result<Value> + 'a;

impl WgmmaTile<'_> {
    pub(super) fn product(&self) -> &TensorCoreProduct {
        self.results.product
    }

    /// Columns of one right operand's tile.
    pub(super) fn operand_columns(&self) -> usize {
        self.results.tile[1]
    }

    /// The type of so many columns of accumulators.
    pub(super) fn accumulators(&self, c: Code, columns: usize) -> Type {
        let element = Type::scalar(c.ctx(), self.product().accumulator());
        self.fragments().accumulator(element, columns)
    }
    pub(super) fn fragments(&self) -> Fragments {
        Fragments { rows: self.m }
    }

    /// The position of a tile, given its linear number.
    fn tile_coord(&self, c: Code, tile: Value) -> Result<TileCoord> {
        let (p, [down, over]) = (Ptx(c), self.tiles);
        let (mut tile, mut batch) = (tile, vec![]);
        if !self.batch.is_empty() {
            let matrix = c.mul(down, over)?;
            batch = decode(c, c.div(tile, matrix)?, &self.batch)?;
            tile = c.rem(tile, matrix)?;
        }
        // 32-bit division is cheaper.
        let (tile, down, over) =
            (p.index_to_i32(tile)?, p.index_to_i32(down)?, p.index_to_i32(over)?);
        let wide = p.mul_const(over, BAND)?;
        let (band, rest) = (arith::divui(p, tile, wide)?, arith::remui(p, tile, wide)?);
        let first = p.mul_const(band, BAND)?;
        let parts = |height: Value| -> Result<[Value; 2]> {
            Ok([arith::divui(p, rest, height)?, arith::remui(p, rest, height)?])
        };
        let [column, row] =
            match constant_value(self.tiles[0]).map(|n| (n as usize / BAND, n as usize % BAND)) {
                Some((_, 0)) => parts(p.number(BAND)?)?,
                Some((0, last)) => parts(p.number(last)?)?,
                // Branch so that the divisor is a constant: with `minui`, LLVM emits a 16-bit division,
                // a call that `cuLink` resolves, and calls serialise wgmma.
                Some((bands, last)) => {
                    let whole = c.less_than(band, p.number(bands)?)?;
                    let (full, part) = (parts(p.number(BAND)?)?, parts(p.number(last)?)?);
                    [c.select(whole, full[0], part[0])?, c.select(whole, full[1], part[1])?]
                }
                None => parts(arith::minui(p, arith::subi(p, down, first)?, p.number(BAND)?)?)?,
            };
        Ok(TileCoord {
            row: p.mul_const(p.add(first, row)?, self.m)?,
            column: p.mul_const(column, self.operand_columns())?,
            batch,
        })
    }

    /// Loops over the tiles of this CTA; the stage is loop-carried.
    pub(super) fn for_each_tile(&self, c: Code, body: &mut TileBody<'_>) -> Result<()> {
        let carried = Tile(c).first_stage()?;
        let parts = c.index(self.k_split.splits as i64)?;
        let (first, step) =
            (c.div(threads::block_id(c)?, parts)?, c.div(threads::grid_dim(c)?, parts)?);
        c.for_dynamic_step(first, self.total, step, &[carried], &mut |c, tile, carried| {
            Ok(vec![body(c, &self.tile_coord(c, tile)?, carried[0])?])
        })?;
        Ok(())
    }
}

/// The sizes of an operand's tile in shared memory. `across`: rows of the left operand, or columns
/// of the right ones.
pub(super) fn tile_sizes(o: &MatrixOperand, across: usize, depth: usize) -> [usize; 2] {
    if o.k_major { [across, depth] } else { [depth, across] }
}
