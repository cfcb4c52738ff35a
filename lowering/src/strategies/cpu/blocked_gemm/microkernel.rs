//! Microkernels: accumulate a register tile of rows by vectors, or of AMX tiles, over a block of K.
use crate::{
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
        partials,
    },
    strategies::cpu::blocked_gemm::{
        Unit,
        blocks::{Blocks, ColumnGroup, Range},
    },
};
use kiln_dialects::{ir::*, value::DType};

/// Steps of K by which packed columns are prefetched.
const PREFETCHED_STEPS: usize = 8;

/// One register tile.
pub(super) struct RegisterTile<'a> {
    /// The product.
    pub(super) blocks: &'a Blocks<'a>,
    /// Its columns.
    pub(super) group: &'a ColumnGroup,
    /// The packed rows.
    pub(super) rows: Range,
    /// First row of the tile.
    pub(super) first: Value,
    /// Row count.
    pub(super) count: usize,
    /// The block of K.
    pub(super) ks: Range,
}

impl RegisterTile<'_> {
    /// Emits the microkernel. Returns the accumulators row by row if they are in registers;
    /// otherwise they are in scratch.
    pub(super) fn multiply(&self, c: Code) -> Result<Option<Vec<Value>>> {
        match self.blocks.unit {
            Unit::Amx => self.tiles(c).map(|()| None),
            _ => self.vectors(c),
        }
    }

    /// The address of a row of the tile in the packed left matrix.
    fn left(&self, c: Code, row: usize) -> Result<Value> {
        let i = c.mul(c.sub(self.first, self.rows.0)?, c.index(self.blocks.left_stride)?)?;
        c.add(i, c.index(row as i64 * self.blocks.left_stride)?)
    }

    /// The memref and address of the `n`th vector of columns at step `k` of the block, and the
    /// stride to the next row, or pair of rows.
    fn right(&self, c: Code, n: usize) -> Result<(Value, Value, Value)> {
        let (b, g) = (self.blocks, self.group);
        let pairs = if b.unit == Unit::Fma { 1 } else { 2 };
        if let Some(panel) = b.right {
            let row = (g.count * b.loops.lanes * pairs) as i64;
            return Ok((panel, c.index((n * b.loops.lanes * pairs) as i64)?, c.index(row)?));
        }
        let (scope, access) = (b.loops.scope, b.input(b.product.right)?);
        let LaneValue::Strided(first, _) = b.loops.lane(c, g.start, n)? else {
            return Err("has vectors of one element".into());
        };
        let base = b.element_address(c, access, &g.fixed, Some(LaneValue::Uniform(first)))?;
        let row = scope.poly(c, &access.at.coefficient(b.product.k))?;
        let block = c.mul(c.div(self.ks.0, c.index(pairs as i64)?)?, row)?;
        Ok((scope.buffer(access.buffer)?, c.add(base, block)?, row))
    }

    fn k_steps(&self, c: Code, each: i64) -> Result<Value> {
        c.ceil_div(c.sub(self.ks.1, self.ks.0)?, c.index(each)?)
    }

    fn vectors(&self, c: Code) -> Result<Option<Vec<Value>>> {
        let (b, g) = (self.blocks, self.group);
        let lanes = Lanes { count: b.loops.lanes, mask: None };
        let places: Vec<(usize, usize)> =
            (0..self.count).flat_map(|r| (0..g.count).map(move |n| (r, n))).collect();
        let place = |c: Code, (r, n): (usize, usize)| -> Result<LaneValue> {
            let row = c.add(self.first, c.index(r as i64)?)?;
            Ok(LaneValue::Strided(
                c.add(
                    b.accumulator_address(c, g, row, self.rows)?,
                    c.index((n * b.loops.lanes) as i64)?,
                )?,
                1,
            ))
        };
        let start = match b.accumulators {
            Some(sums) => places
                .iter()
                .map(|x| lanes.load(c, sums, place(c, *x)?).and_then(|v| lanes.vector(c, v)))
                .collect::<Result<Vec<_>>>()?,
            None => {
                vec![
                    lanes.vector(c, LaneValue::Uniform(b.loops.scope.scalar(b.product.start)?))?;
                    places.len()
                ]
            }
        };
        let left: Vec<Value> = (0..self.count).map(|r| self.left(c, r)).collect::<Result<_>>()?;
        let right: Vec<_> = (0..g.count).map(|n| self.right(c, n)).collect::<Result<_>>()?;
        let pairs = b.unit.k();
        let end =
            c.for_loop(c.index(0)?, self.k_steps(c, pairs)?, 1, &start, &mut |c, k, sums| {
                let mut columns = vec![];
                for (memory, first, row) in &right {
                    let at = LaneValue::Strided(c.add(*first, c.mul(k, *row)?)?, 1);
                    // Packed columns and stored panels are padded, and need no mask.
                    let mask = g.mask.filter(|_| b.right.is_none() && !b.product.is_packed);
                    let all = Lanes { count: b.loops.lanes * pairs as usize, mask };
                    if b.right.is_some() && b.unit == Unit::Fma {
                        // Hides the latency of the L2 cache, which holds the panel.
                        let row = g.count * b.loops.lanes * b.unit.size() as usize;
                        all.prefetch(c, *memory, at, PREFETCHED_STEPS * row)?;
                    }
                    columns.push(all.load(c, *memory, at).and_then(|v| all.vector(c, v))?);
                }
                let k = c.mul(k, c.index(pairs)?)?;
                let mut next = vec![];
                for (r, at) in left.iter().enumerate() {
                    let x = self.broadcast(c, c.add(*at, k)?)?;
                    for (n, y) in columns.iter().enumerate() {
                        let sum = sums[r * g.count + n];
                        next.push(match b.unit {
                            Unit::Fma => math::fma(c, x, *y, sum)?,
                            _ => c.op("x86vector.avx512.dot", &[sum, x, *y], sum.ty(), &[])?,
                        });
                    }
                }
                Ok(next)
            })?;
        let Some(sums) = b.accumulators else { return Ok(Some(end)) };
        for (x, v) in places.iter().zip(&end) {
            lanes.store(c, sums, place(c, *x)?, LaneValue::Vector(*v), false)?;
        }
        Ok(None)
    }

    /// Broadcasts an element of the packed left matrix, or a pair, to all lanes.
    fn broadcast(&self, c: Code, at: Value) -> Result<Value> {
        let (b, left) = (self.blocks, self.blocks.left);
        let (lanes, element) =
            (b.loops.lanes, left.ty().element().ok_or("reads from what is no buffer")?);
        if b.unit == Unit::Fma {
            let x = memref::load(c, left, &[at])?;
            return vector::broadcast(c, x, Type::vector(element, lanes));
        }
        let i32 = Type::scalar(c.ctx(), DType::I32);
        let pair = vector::load(c, left, &[at], Type::vector(element, 2))?;
        let pair = vector::bitcast(c, pair, Type::vector(i32, 1))?;
        let pair = partials::extract_lane(c, pair, 0)?;
        let all = vector::broadcast(c, pair, Type::vector(i32, lanes))?;
        vector::bitcast(c, all, Type::vector(element, 2 * lanes))
    }

    fn tiles(&self, c: Code) -> Result<()> {
        let (b, g) = (self.blocks, self.group);
        let sums = b.accumulators.ok_or("has no sums")?;
        let (height, rows) = (self.count.min(16), self.count.div_ceil(16));
        let tile = |rows: usize, columns: usize, element: &str| {
            let text = format!("!amx.tile<{rows}x{columns}x{element}>");
            Type::parse(c.ctx(), &text).ok_or_else(|| format!("{text} is no type"))
        };
        let (sum, left_type, right_type) =
            (tile(height, 16, "f32")?, tile(height, 32, "bf16")?, tile(16, 32, "bf16")?);
        let load = |c: Code, memory: Value, at: Value, row: Value, ty: Type| {
            let segments = [("operandSegmentSizes", Attr::i32s(c.ctx(), &[1, 1, 1]))];
            c.op("amx.tile_load", &[memory, at, row], ty, &segments)
        };
        let sums_row = c.index(b.accumulator_stride)?;
        let places: Vec<(usize, usize)> =
            (0..rows).flat_map(|r| (0..g.count).map(move |n| (r, n))).collect();
        let place = |c: Code, (r, n): (usize, usize)| -> Result<Value> {
            let row = c.add(self.first, c.index(r as i64 * 16)?)?;
            c.add(b.accumulator_address(c, g, row, self.rows)?, c.index(n as i64 * 16)?)
        };
        let mut start = vec![];
        for x in &places {
            start.push(if b.single {
                c.op("amx.tile_zero", &[], sum, &[])?
            } else {
                load(c, sums, place(c, *x)?, sums_row, sum)?
            });
        }
        let (left_row, step) = (c.index(b.left_stride)?, c.index(16)?);
        let end = c.for_loop(c.index(0)?, self.k_steps(c, 32)?, 1, &start, &mut |c, k, sums| {
            let mut columns = vec![];
            for n in 0..g.count {
                let (memory, first, row) = self.right(c, n)?;
                columns.push(load(
                    c,
                    memory,
                    c.add(first, c.mul(c.mul(k, step)?, row)?)?,
                    row,
                    right_type,
                )?);
            }
            let mut next = vec![];
            for r in 0..rows {
                let at = c.add(self.left(c, r * 16)?, c.mul(k, c.index(32)?)?)?;
                let x = load(c, b.left, at, left_row, left_type)?;
                for (n, y) in columns.iter().enumerate() {
                    next.push(c.op("amx.tile_mulf", &[x, *y, sums[r * g.count + n]], sum, &[])?);
                }
            }
            Ok(next)
        })?;
        let segments = [("operandSegmentSizes", Attr::i32s(c.ctx(), &[1, 1, 1, 1]))];
        for (x, v) in places.iter().zip(&end) {
            c.effect("amx.tile_store", &[sums, place(c, *x)?, *v, sums_row], &segments)?;
        }
        Ok(())
    }
}
