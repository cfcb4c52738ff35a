//! Reads of tiles in shared memory, and of an element a column in global memory.
use crate::{
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
        partials,
    },
    gpu::lower_tiles::{fragments::Lowered, map::Operands, rings::Shared, role::Role},
    strategies::gpu::{
        common::{
            ptx::Ptx,
            score::{Elements, Known},
        },
        prologue::emit::unpack_pair,
        wgmma_gemm::ROW,
    },
};
use kiln_dialects::{ir::*, ops::*};

/// Whether the only user of a read is a map that follows, so that nothing releases the tile before.
fn is_read_by_a_map(op: Op) -> bool {
    let uses = op.result(0).uses();
    let [(user, _)] = uses.as_slice() else { return false };
    let reads = |o: &Op| matches!(o.kind(), None | Some(OpKind::TileIota | OpKind::TileLoad));
    let mut between = std::iter::successors(op.next(), |o| o.next()).take_while(|o| o != user);
    user.kind() == Some(OpKind::TileMap) && user.block() == op.block() && between.all(|o| reads(&o))
}

/// Bytes of a chunk, which the swizzle moves as a whole.
const CHUNK: usize = 16;

impl Role<'_> {
    /// A warp's rows of a tile, as wgmma's result has them. A map that follows reads them where it
    /// takes them, which keeps few registers alive.
    pub(super) fn local_load(&self, p: Ptx, op: Op) -> Result<Lowered> {
        self.registers(op.result(0).ty())?;
        let columns = op.result(0).ty().dims().last().and_then(|d| d.known()).unwrap_or(0);
        if op.result(0).ty().fragment_layout() == Some(FragmentLayout::Operand) {
            // ldmatrix gives the registers of a left operand as they are.
            let all = (0..columns as usize / 16).map(|k| self.words(p, op, k));
            return Ok(Lowered::Operand(all.collect::<Result<Vec<_>>>()?.concat()));
        }
        if is_read_by_a_map(op) {
            return Ok(Lowered::Local(op));
        }
        let all = (0..columns as usize / 16).map(|k| self.local_columns(p, op, k));
        Ok(Lowered::Elements(all.collect::<Result<Vec<_>>>()?.concat()))
    }
    /// The elements of the `k`-th 16 columns.
    pub(super) fn local_columns(&self, p: Ptx, op: Op, k: usize) -> Result<Vec<Value>> {
        let ty = op.result(0).ty();
        let element = ty.element().ok_or("has no element type")?;
        let pairs = match element.dtype()?.byte_size() {
            2 => {
                let words = self.words(p, op, k)?.into_iter();
                words.map(|word| unpack_pair(p.0, word, element.dtype()?)).collect()
            }
            _ => {
                let (tile, row) = self.local_tile(p, op)?;
                self.pairs(p, element, tile, row, k)
            }
        };
        Ok(pairs?.concat())
    }
    /// The tile that a read takes, and the warp's first row in it.
    fn local_tile(&self, p: Ptx, op: Op) -> Result<(Shared, Value)> {
        let Lowered::Shared(tile) = self.lowered(op.operand(0)) else {
            return Err("reads what is no tile".into());
        };
        let row = self.group_row(p, op.result(0).ty())?;
        Ok((tile, p.add(row, self.thread()?.warp_row)?))
    }
    /// The `k`-th 16 columns of 16-bit elements, by ldmatrix: of each 8 columns both rows.
    fn words(&self, p: Ptx, op: Op, k: usize) -> Result<Vec<Value>> {
        let (tile, first) = self.local_tile(p, op)?;
        let lane = self.thread()?.lane;
        let (row, high) = (p.rem_const(lane, 16)?, p.div_const(lane, 16)?);
        // A slice has 64 columns.
        let slice = p.add_const(tile.address, k / 4 * tile.rows * ROW)?;
        let chunk = arith::xori(p, high, p.number(2 * (k % 4))?)?;
        let swizzled = p.mul_const(arith::xori(p, chunk, p.rem_const(lane, 8)?)?, CHUNK)?;
        let at = p.add(p.mul_const(p.add(first, row)?, ROW)?, swizzled)?;
        p.ldmatrix(p.add(slice, at)?, false).map(Vec::from)
    }
    /// The `k`-th 16 columns of 32-bit elements, half a slice, or of bytes, a chunk.
    fn pairs(
        &self,
        p: Ptx,
        element: Type,
        tile: Shared,
        first: Value,
        k: usize,
    ) -> Result<Vec<[Value; 2]>> {
        let (lane, size) = (self.thread()?.lane, element.dtype()?.byte_size());
        // Bytes of 16 columns divide a slice.
        let each = ROW / (16 * size);
        let slice = p.add_const(tile.address, k / each * tile.rows * ROW)?;
        let (row, pair) = (p.div_const(lane, 4)?, p.rem_const(lane, 4)?);
        let one = |i: usize| {
            // The pair's bytes in the slice.
            let byte =
                p.add_const(p.mul_const(pair, 2 * size)?, size * (k % each * 16 + i / 2 * 8))?;
            let (chunk, rest) = (p.div_const(byte, CHUNK)?, p.rem_const(byte, CHUNK)?);
            let begin = p.mul_const(p.add_const(p.add(first, row)?, i % 2 * 8)?, ROW)?;
            let swizzled = p.mul_const(arith::xori(p, chunk, row)?, CHUNK)?;
            let at = p.add(p.add(begin, swizzled)?, rest)?;
            p.load_shared_pair(p.add(slice, at)?, element)
        };
        (0..4).map(one).collect()
    }

    /// An element a column: where a map takes it, or here.
    pub(super) fn load(&self, c: Code, op: Op) -> Result<Lowered> {
        if !TileLoad::of(op).ok_or_malformed(op)?.prefetch {
            return Ok(Lowered::Loaded(op));
        }
        let columns = op.result(0).ty().dims().last().and_then(|d| d.known()).unwrap_or(0);
        let all = (0..columns as usize / 8).map(|k| self.loaded_pair(c, op, 8 * k));
        Ok(Lowered::ColumnElements(all.collect::<Result<Vec<_>>>()?.concat()))
    }

    /// Two adjacent elements of a load by columns, from `column` after the thread's first one on.
    pub(super) fn loaded_pair(&self, c: Code, op: Op, column: usize) -> Result<[Value; 2]> {
        let o = TileLoad::of(op).ok_or_malformed(op)?;
        let operands = Operands::of(self, op, &[o.columns])?;
        let (graph, memory) = (operands.graph(), self.scalar(o.memory));
        let clamped = operands.clamped();
        let all = Elements { graph: &graph, leaves: &operands, clamped, fast: false };
        let at = *operands.yields()?.first().ok_or("has no address")?;
        let at = |column: usize| all.element(c, &mut Known::new(), at, 0, column);
        if o.vector == 2 {
            let lanes = Lanes { count: 2, mask: None };
            let both = lanes.load(c, memory, LaneValue::Strided(at(column)?, 1))?;
            let both = lanes.vector(c, both)?;
            return Ok([partials::extract_lane(c, both, 0)?, partials::extract_lane(c, both, 1)?]);
        }
        let one = |column: usize| memref::load(c, memory, &[at(column)?]);
        Ok([one(column)?, one(column + 1)?])
    }
}
