//! Transposes between rows in memory and vectors of queries: packs a task's queries, and stores its
//! result.
use crate::{
    emit::{
        body::Scope,
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::cpu::{
        attention::task::Task,
        common::transposed::{shuffled, store_rows, vectors_of_rows},
    },
};
use kiln_dialects::ir::*;

impl Task<'_> {
    /// Packs queries transposed, with the block's queries as lanes.
    pub(super) fn pack(&self, c: Code) -> Result<()> {
        let (k, depth) = (self.scope.kernel, self.attention.depth);
        let a = &k.stages[self.attention.scores].inputs[0];
        let memory = self.scope.buffer(a.buffer)?;
        let rows = a.at.coefficient(self.attention.outer + 2).known() == Some(1)
            && depth % self.lanes as i64 == 0;
        let step = if rows { self.lanes as i64 } else { 1 };
        let dims = |c: Code, q: LaneValue, d: LaneValue| -> Result<Vec<LaneValue>> {
            let mut dims: Vec<LaneValue> =
                self.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
            dims.extend([q, LaneValue::Uniform(c.index(0)?), d]);
            Ok(dims)
        };
        c.for_loop(c.index(0)?, c.index(depth)?, step, &[], &mut |c, d, _| {
            for v in 0..self.n() {
                let start = self.start(c, v)?;
                if !rows {
                    let lanes = self.lanes(v);
                    let at = self.scope.address(
                        c,
                        &a.at,
                        &dims(c, LaneValue::Strided(start, 1), LaneValue::Uniform(d))?,
                        lanes,
                    )?;
                    let x = lanes.vector(c, lanes.load(c, memory, at)?)?;
                    self.save(c, self.widened(c, x, self.lanes)?, self.query, d, v)?;
                    continue;
                }
                let last = c.sub(self.queries, c.index(1)?)?;
                let loaded = vectors_of_rows(c, self.lanes, &mut |c, i| {
                    let mut row = c.add(start, c.index(i as i64)?)?;
                    if !self.is_full {
                        row = c.min(row, last)?;
                    }
                    let all = Lanes { count: self.lanes, mask: None };
                    let at = self.scope.address(
                        c,
                        &a.at,
                        &dims(c, LaneValue::Uniform(row), LaneValue::Strided(d, 1))?,
                        all,
                    )?;
                    let x = all.vector(c, all.load(c, memory, at)?)?;
                    self.widened(c, x, self.lanes)
                })?;
                for (i, x) in shuffled(c, loaded)?.into_iter().enumerate() {
                    self.save(c, x, self.query, c.add(d, c.index(i as i64)?)?, v)?;
                }
            }
            Ok(vec![])
        })?;
        Ok(())
    }

    /// Runs the last stage and stores the result.
    pub(super) fn finish(&self, c: Code, max: &[Value], sums: &[Value]) -> Result<()> {
        let k = self.scope.kernel;
        let out = k.stages[self.attention.result].outputs[0].access.clone();
        let memory = self.scope.buffer(out.buffer)?;
        let rows = out.at.coefficient(self.attention.outer + 1).known() == Some(1)
            && self.attention.columns % self.lanes as i64 == 0;
        let given = |total: Value, v: usize| {
            [
                (self.attention.product, total),
                (self.attention.max, max[v]),
                (self.attention.sum, sums[v]),
            ]
        };
        let mut without = self.scope.memory.clone();
        without[out.buffer] = None;
        let inner = Scope { memory: without, ..self.scope.clone() };
        let inner =
            Task { scope: &inner, masks: self.masks.clone(), outer: self.outer.clone(), ..*self };
        let step = if rows { self.lanes as i64 } else { 1 };
        c.for_loop(c.index(0)?, c.index(self.attention.columns)?, step, &[], &mut |c, e, _| {
            for v in 0..self.n() {
                if !rows {
                    let total = self.load(c, self.accumulators, e, v)?;
                    self.stage(c, self.attention.result, v, e, &given(total, v))?;
                    continue;
                }
                let columns = vectors_of_rows(c, self.lanes, &mut |c, i| {
                    let e = c.add(e, c.index(i as i64)?)?;
                    let total = self.load(c, self.accumulators, e, v)?;
                    inner.vector(c, self.attention.result, v, e, &given(total, v))
                })?;
                let start = self.start(c, v)?;
                store_rows(
                    c,
                    shuffled(c, columns)?,
                    (!self.is_full).then_some((start, self.queries)),
                    &mut |c, i| {
                        let mut dims: Vec<LaneValue> =
                            self.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
                        dims.extend([
                            LaneValue::Uniform(c.add(start, c.index(i as i64)?)?),
                            LaneValue::Strided(e, 1),
                        ]);
                        Ok((
                            memory,
                            self.scope.address(
                                c,
                                &out.at,
                                &dims,
                                Lanes { count: self.lanes, mask: None },
                            )?,
                        ))
                    },
                )?;
            }
            Ok(vec![])
        })?;
        Ok(())
    }
}
