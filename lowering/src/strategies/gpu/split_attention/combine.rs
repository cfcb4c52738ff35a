//! Combines the warps' partial softmax results of a tile through shared memory: first within each
//! CTA, then across the cluster, where each CTA finishes some elements of the result.
//!
//! With m the maximum score, l the sum of exponentials and o the accumulator of a part, the
//! combined result has m = max m_i, l = sum l_i e^(m_i - m), o = sum o_i e^(m_i - m).
use crate::{
    emit::{
        body::ForwardedElements,
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::{
        common::{ptx::Ptx, threads},
        split_attention::{
            COLUMNS,
            row_tile::RowTile,
            split::{EIGHT, Split},
            step::LoopCarried,
        },
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

const ONE_LANE: Lanes = Lanes { count: 1, mask: None };

/// The partial result of an element, over a part of the keys or all: maximum score, sum of
/// exponentials, accumulator.
#[derive(Clone, Copy)]
struct PartialSoftmax {
    max: Value,
    sum: Value,
    value: Value,
}

impl Split<'_> {
    /// The address of a warp's accumulators of a row.
    fn values_address(&self, p: Ptx, warp: Value, row: Value) -> Result<Value> {
        let row = p.add(p.mul_const(warp, self.rows)?, row)?;
        p.add(self.base, p.mul_const(row, 4 * self.pattern.row_pitch())?)
    }
    /// The address of a warp's maximum score of a row; the CTA's follow those of the warps.
    fn max_address(&self, p: Ptx, warp: Value, row: Value) -> Result<Value> {
        let before = 4 * self.warps * self.rows * self.pattern.row_pitch();
        let row = p.add(p.mul_const(warp, self.rows)?, row)?;
        p.add_const(p.add(self.base, p.mul_const(row, 4)?)?, before)
    }
    /// The offset from a maximum score to its sum of exponentials.
    fn sum_offset(&self) -> usize {
        4 * (self.warps + 1) * self.rows
    }
    fn store(&self, p: Ptx, v: Value, address: Value, bytes: i64) -> Result<()> {
        llvm::Store::new(p, v, p.pointer(address)?).alignment(bytes).build().map(drop)
    }
    fn load(&self, p: Ptx, pointer: Value) -> Result<Value> {
        llvm::Load::new(p, pointer, p.f32()).alignment(4).result()
    }

    /// Writes a warp's partial results to shared memory. A thread has the 16 columns that it read
    /// together with the lane four further.
    pub(super) fn store_partials(&self, c: Code, state: &LoopCarried) -> Result<()> {
        let (p, halves) = (Ptx(c), self.rows_per_thread());
        let four = Type::vector(p.f32(), 4);
        for half in 0..halves {
            let row = p.add_const(self.lane[0], EIGHT * half)?;
            let begin = p.add(
                self.values_address(p, self.warp, row)?,
                p.mul_const(self.lane[1], 4 * 2 * EIGHT)?,
            )?;
            for (step, eight) in state.values.chunks(EIGHT * 2 * halves).enumerate() {
                for i in 0..2 {
                    for quarter in 0..2 {
                        let own: Vec<Value> = (4 * quarter..4 * quarter + 4)
                            .map(|m| eight[(m * halves + half) * 2 + i])
                            .collect();
                        let at =
                            p.add_const(begin, 4 * (step * COLUMNS + i * EIGHT + 4 * quarter))?;
                        self.store(p, vector::from_elements(c, &own, four)?, at, 16)?;
                    }
                }
            }
            let most = self.max_address(p, self.warp, row)?;
            let mut rest = |c: Code| {
                self.store(Ptx(c), state.max[half], most, 4)?;
                self.store(
                    Ptx(c),
                    state.row_sums[half],
                    Ptx(c).add_const(most, self.sum_offset())?,
                    4,
                )
            };
            c.if_else(p.eq_const(self.lane[1], 0)?, &mut rest, None)?;
        }
        Ok(())
    }

    /// Combines partial results, in order.
    fn merge(&self, c: Code, parts: &[PartialSoftmax]) -> Result<PartialSoftmax> {
        let p = Ptx(c);
        let (first, rest) = parts.split_first().ok_or("has no parts")?;
        if rest.is_empty() {
            return Ok(*first);
        }
        let most = rest.iter().try_fold(first.max, |a, b| arith::maxnumf(p, a, b.max))?;
        let over = self.finite(c, most)?;
        let nothing = c.number(0.0, p.f32())?;
        let (mut sum, mut value) = (nothing, nothing);
        for part in parts {
            let factor = self.exp2_difference(c, part.max, over)?;
            sum = math::fma(c, part.sum, factor, sum)?;
            value = math::fma(c, part.value, factor, value)?;
        }
        Ok(PartialSoftmax { max: most, sum, value })
    }
    /// Loops over the elements of the result, each computed by one of `threads` threads.
    fn elements(
        &self,
        c: Code,
        from: Value,
        step: usize,
        body: &mut dyn FnMut(Code, Value, Value) -> Result<()>,
    ) -> Result<()> {
        let columns = self.pattern.at.columns as usize;
        let (all, step) = (c.index((self.rows * columns) as i64)?, c.index(step as i64)?);
        c.for_dynamic_step(Ptx(c).i32_to_index(from)?, all, step, &[], &mut |c, i, _| {
            let i = Ptx(c).index_to_i32(i)?;
            body(c, Ptx(c).div_const(i, columns)?, Ptx(c).rem_const(i, columns)?).map(|()| vec![])
        })
        .map(drop)
    }

    /// Combines all partial results of a tile once each warp of the CTA has written its own.
    pub(super) fn combine(&self, c: Code, row_tile: &RowTile) -> Result<()> {
        let (p, threads) = (Ptx(c), self.warps * WARP);
        self.elements(c, self.thread, threads, &mut |c, row, column| {
            let p = Ptx(c);
            let one = |w: usize| -> Result<PartialSoftmax> {
                let w = p.number(w)?;
                let most = self.max_address(p, w, row)?;
                Ok(PartialSoftmax {
                    max: self.load(p, p.pointer(most)?)?,
                    sum: self.load(p, p.pointer(p.add_const(most, self.sum_offset())?)?)?,
                    value: self.load(
                        p,
                        p.pointer(
                            p.add(self.values_address(p, w, row)?, p.mul_const(column, 4)?)?,
                        )?,
                    )?,
                })
            };
            let whole = self.merge(c, &(0..self.warps).map(one).collect::<Result<Vec<_>>>()?)?;
            if self.splits == 1 {
                return self.finish(c, row_tile, row, column, whole);
            }
            // Overwrites the first warp's accumulator, which only this thread reads.
            let to = p.add(self.values_address(p, p.number(0)?, row)?, p.mul_const(column, 4)?)?;
            self.store(p, whole.value, to, 4)?;
            let most = self.max_address(p, p.number(self.warps)?, row)?;
            let mut rest = |c: Code| {
                self.store(Ptx(c), whole.max, most, 4)?;
                self.store(Ptx(c), whole.sum, Ptx(c).add_const(most, self.sum_offset())?, 4)
            };
            c.if_else(p.eq_const(column, 0)?, &mut rest, None)
        })?;
        if self.splits == 1 {
            // The next tile reuses the buffer.
            return threads::barrier(c);
        }
        p.cluster_barrier()?;
        let own = p.add(p.mul_const(self.rank, threads)?, self.thread)?;
        self.elements(c, own, self.splits * threads, &mut |c, row, column| {
            let p = Ptx(c);
            let one = |block: usize| -> Result<PartialSoftmax> {
                let there = |address: Value| self.load(p, p.mapa(address, p.number(block)?)?);
                let most = self.max_address(p, p.number(self.warps)?, row)?;
                let value =
                    p.add(self.values_address(p, p.number(0)?, row)?, p.mul_const(column, 4)?)?;
                Ok(PartialSoftmax {
                    max: there(most)?,
                    sum: there(p.add_const(most, self.sum_offset())?)?,
                    value: there(value)?,
                })
            };
            let whole = self.merge(c, &(0..self.splits).map(one).collect::<Result<Vec<_>>>()?)?;
            self.finish(c, row_tile, row, column, whole)
        })?;
        // A CTA must not exit or continue while another one reads its shared memory.
        p.cluster_barrier_relaxed()
    }
    /// The epilogue of an element: the last stages.
    fn finish(
        &self,
        c: Code,
        row_tile: &RowTile,
        row: Value,
        column: Value,
        whole: PartialSoftmax,
    ) -> Result<()> {
        let (k, at) = (self.scope.kernel, &self.pattern.at);
        let written = |s: usize| {
            k.stages
                .get(s)
                .and_then(|s| s.outputs.first())
                .map(|o| o.access.clone())
                .ok_or("has no result")
        };
        let (product, sum, max) = (written(at.product)?, written(at.sum)?, written(at.max)?);
        let row = Ptx(c).add(row_tile.first, row)?;
        let mut one = |c: Code| -> Result<()> {
            let p = Ptx(c);
            let factor = c.number(self.score.factor, p.f32())?;
            let (outer, query) = self.split(c, row_tile, row)?;
            let counts =
                row_tile.queries.map(|n| c.compare(CmpIPredicate::Slt, query, n)).transpose()?;
            // The element's value, or `other` for a query beyond the valid ones.
            let or = |x: Value, other: f64| match counts {
                Some(counts) => c.select(counts, x, c.number(other, x.ty())?),
                None => Ok(x),
            };
            let whole = PartialSoftmax {
                max: or(whole.max, f64::NEG_INFINITY)?,
                sum: or(whole.sum, 0.0)?,
                value: or(whole.value, 0.0)?,
            };
            let most = arith::mulf(p, whole.max, factor)?;
            let mut dims: Vec<LaneValue> = outer.into_iter().map(LaneValue::Uniform).collect();
            dims.extend([
                LaneValue::Uniform(p.i32_to_index(query)?),
                LaneValue::Uniform(p.i32_to_index(column)?),
            ]);
            let mut passed = ForwardedElements::from([
                (product.clone(), LaneValue::Uniform(whole.value)),
                (sum.clone(), LaneValue::Uniform(whole.sum)),
                (max.clone(), LaneValue::Uniform(most)),
            ]);
            self.scope.iteration(c, &[at.result], &dims, ONE_LANE, &mut [], &mut passed)?;
            let Some(lse) = at.lse else { return Ok(()) };
            dims.pop();
            let mut own = |c: Code| {
                self.scope.iteration(c, &[lse], &dims, ONE_LANE, &mut [], &mut passed.clone())
            };
            c.if_else(p.eq_const(column, 0)?, &mut own, None)
        };
        c.if_else(c.compare(CmpIPredicate::Slt, row, self.total)?, &mut one, None)
    }
}
