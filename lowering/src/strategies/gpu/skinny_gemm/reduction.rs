//! The reduction of a tile's accumulators over the warps, in warp order, and the epilogue.
use crate::{
    emit::{code::Code, lanes::LaneValue},
    strategies::gpu::{
        common::{accumulators, threads},
        skinny_gemm::{
            INSTRUCTION, SkinnyProduct, column_pitch,
            tile::{ONE_LANE, SkinnyTile},
        },
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

impl SkinnyTile<'_> {
    /// The offset of a warp's accumulator for a column and a row; the second matrix's columns
    /// follow the first's.
    fn offset(&self, c: Code, warp: Value, column: Value, row: Value) -> Result<Value> {
        let columns = self.stages.len() * self.product.columns() * INSTRUCTION.1;
        let line = c.index(column_pitch(self.rows) as i64)?;
        c.add(c.mul(c.add(c.mul(warp, c.index(columns as i64)?)?, column)?, line)?, row)
    }
    /// The offsets of each of a thread's accumulators in a part of shared memory.
    fn offsets(&self, c: Code, warp: Value, count: usize) -> Result<Vec<Value>> {
        let (down, over) = (self.rows / INSTRUCTION.0, self.product.columns());
        let [group, quarter] = self.lane;
        let twice = c.mul(quarter, c.index(2)?)?;
        let of = |n: usize| {
            let (four, i) = (n / 4, n % 4);
            let (block, eight) = (four / over % down, over * (four / over / down) + four % over);
            let row = c.add(group, c.index((INSTRUCTION.0 * block + 8 * (i / 2)) as i64)?)?;
            let column = c.add(twice, c.index((INSTRUCTION.1 * eight + i % 2) as i64)?)?;
            self.offset(c, warp, column, row)
        };
        (0..count).map(of).collect()
    }
    /// Writes the warps' accumulators to shared memory for the reduction. If not all fit, it takes
    /// rounds, the last warps first, to which the first warps add theirs.
    pub(super) fn exchange(&self, c: Code, mut sums: Vec<Value>) -> Result<()> {
        let parts = c.index(self.warps_at_once as i64)?;
        let places = self.offsets(c, c.rem(self.warp, parts)?, sums.len())?;
        for round in (0..self.warps / self.warps_at_once).rev() {
            let put = |c: Code| {
                let all = sums.iter().zip(&places);
                all.into_iter().try_for_each(|(v, at)| memref::store(c, *v, self.memory, &[*at]))
            };
            if self.warps == self.warps_at_once {
                put(c)?;
            } else {
                let mine =
                    c.compare(CmpIPredicate::Eq, c.div(self.warp, parts)?, c.index(round as i64)?)?;
                c.if_else(mine, &mut |c| put(c), None)?;
            }
            threads::barrier(c)?;
            if round > 0 {
                let first = c.less_than(self.warp, parts)?;
                for (v, at) in sums.iter_mut().zip(&places) {
                    let other = memref::load(c, self.memory, &[*at])?;
                    *v = c.select(first, arith::addf(c, *v, other)?, *v)?;
                }
                threads::barrier(c)?;
            }
        }
        Ok(())
    }
    /// Reduces the warps' accumulators and runs the epilogue, element by element.
    pub(super) fn finish(
        &self,
        c: Code,
        dims: &[LaneValue],
        first: Value,
        many: Value,
    ) -> Result<()> {
        let SkinnyProduct { matrix, skinny: few, rows: count, .. } = self.product;
        let rows = c.index(self.rows as i64)?;
        let all = c.index((self.rows * count) as i64)?;
        c.for_dynamic_step(
            self.thread,
            all,
            c.index((WARP * self.warps) as i64)?,
            &[],
            &mut |c, i, _| {
                let (column, mine) = (c.div(i, rows)?, c.rem(i, rows)?);
                let row = c.add(first, mine)?;
                let mut one = |c: Code| -> Result<()> {
                    let sum = |matrix: usize| -> Result<LaneValue> {
                        let column = c.add(
                            column,
                            c.index((matrix * self.product.columns() * INSTRUCTION.1) as i64)?,
                        )?;
                        let part = |w: usize| -> Result<Value> {
                            let at = self.offset(c, c.index(w as i64)?, column, mine)?;
                            memref::load(c, self.memory, &[at])
                        };
                        let mut sum = part(0)?;
                        for w in 1..self.warps_at_once {
                            sum = arith::addf(c, sum, part(w)?)?;
                        }
                        Ok(LaneValue::Uniform(sum))
                    };
                    let dims = self.row(c, dims, few, column)?;
                    let dims = self.row(c, &dims, matrix, row)?;
                    let all = self
                        .outs
                        .iter()
                        .enumerate()
                        .map(|(i, o)| Ok((*o, sum(i)?)))
                        .collect::<Result<Vec<_>>>()?;
                    accumulators::finish(c, self.scope, self.nest, ONE_LANE, &dims, &all).map(drop)
                };
                c.if_else(c.less_than(row, many)?, &mut one, None).map(|()| vec![])
            },
        )
        .map(drop)
    }
}
