//! The epilogue of attention: the last stage, on the accumulators.
use crate::{
    analysis::Poly,
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::{
        attention::{flash::Flash, query_tile::Thread, softmax::SoftmaxState},
        common::{ptx::Ptx, threads},
    },
};
use kiln_dialects::ir::*;

impl Flash<'_> {
    /// Runs the last stage and stores the result. Four lanes with adjacent columns of a row
    /// exchange them, so that each stores 16 bytes.
    pub(super) fn finish(
        &self,
        c: Code,
        t: &Thread<'_>,
        sums: &[Value],
        rows: &[SoftmaxState; 2],
    ) -> Result<()> {
        let (p, k, at) = (Ptx(c), self.scope.kernel, &self.pattern.at);
        let written = |s: usize| {
            k.stages
                .get(s)
                .and_then(|s| s.outputs.first())
                .map(|o| o.access.clone())
                .ok_or("has no result")
        };
        let (product, sum, max, result) =
            (written(at.product)?, written(at.sum)?, written(at.max)?, written(at.result)?);
        let memory = self.scope.buffer(result.buffer)?;
        // Without the result's memory: its elements are exchanged before they are stored.
        let mut without = self.scope.memory.clone();
        without[result.buffer] = None;
        let inner = Scope { memory: without, ..self.scope.clone() };
        let factor = c.number(self.score.factor, p.f32())?;
        let element = memory.ty().element().ok_or("has no result")?;
        let eights = |p: &Poly| p.multiple_of(8);
        let mut strides = result
            .at
            .dims
            .iter()
            .filter(|(d, _)| **d != at.outer + 1)
            .map(|(_, p)| p)
            .chain([&result.at.constant]);
        let wide = element.dtype()?.byte_size() == 2
            && result.at.divisions.is_empty()
            && strides.all(eights);
        let (two, quad) = (Lanes { count: 2, mask: None }, p.rem_const(t.lane, 4)?);
        for (half, row) in rows.iter().enumerate() {
            let number = p.add_const(t.row, 8 * half)?;
            let counts = t
                .query_tile
                .queries
                .map(|n| c.compare(CmpIPredicate::Slt, number, n))
                .transpose()?;
            // The row's value, or `other` for a query beyond the valid ones.
            let or = |x: Value, other: f64| match counts {
                Some(counts) => c.select(counts, x, c.number(other, x.ty())?),
                None => Ok(x),
            };
            let total = threads::butterfly(c, row.sum, 4, &|a, b| arith::addf(c, a, b))?;
            let (total, max_seen) = (or(total, 0.0)?, or(row.max, f64::NEG_INFINITY)?);
            let most = arith::mulf(c, max_seen, factor)?;
            let dims = |c: Code, column: LaneValue| -> Result<Vec<LaneValue>> {
                let mut dims: Vec<LaneValue> =
                    t.query_tile.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
                dims.extend([LaneValue::Uniform(Ptx(c).i32_to_index(number)?), column]);
                Ok(dims)
            };
            // The values to store, the first column, the vector width.
            let mut stored: Vec<(Value, Value, usize)> = vec![];
            let mut pairs = vec![];
            for (eight, all) in sums.chunks(4).enumerate() {
                let column = p.i32_to_index(p.add_const(t.column, 8 * eight)?)?;
                let own =
                    all[2 * half..][..2].iter().map(|x| or(*x, 0.0)).collect::<Result<Vec<_>>>()?;
                let both =
                    LaneValue::Vector(vector::from_elements(c, &own, Type::vector(p.f32(), 2))?);
                let mut passed = ForwardedElements::from([
                    (product.clone(), both),
                    (sum.clone(), LaneValue::Uniform(total)),
                    (max.clone(), LaneValue::Uniform(most)),
                ]);
                inner.iteration(
                    c,
                    &[at.result],
                    &dims(c, LaneValue::Strided(column, 1))?,
                    two,
                    &mut [],
                    &mut passed,
                )?;
                let made = passed.get(&result).copied().ok_or("has a stage without a result")?;
                pairs.push((two.vector(c, made)?, column));
            }
            for (four, own) in pairs.chunks(4).enumerate() {
                if own.len() < 4 || !wide {
                    stored.extend(own.iter().map(|(v, column)| (*v, *column, 2)));
                    continue;
                }
                let words =
                    own.iter().map(|(v, _)| p.bitcast_i32(*v)).collect::<Result<Vec<_>>>()?;
                let column = p.add_const(p.mul_const(quad, 8)?, 32 * four)?;
                stored.push((
                    p.bitcast_vector(&threads::transpose_lanes(c, words, quad)?, element)?,
                    p.i32_to_index(column)?,
                    8,
                ));
            }
            let mut store = |c: Code| -> Result<()> {
                for (v, column, count) in &stored {
                    let lanes = Lanes { count: *count, mask: None };
                    let to = self.scope.address(
                        c,
                        &result.at,
                        &dims(c, LaneValue::Strided(*column, 1))?,
                        lanes,
                    )?;
                    lanes.store(c, memory, to, LaneValue::Vector(*v), false)?;
                }
                Ok(())
            };
            if let Some(lse) = at.lse {
                // One of the four lanes that share a row stores.
                let first = p.eq_const(quad, 0)?;
                let there = if self.partial_tiles[0] {
                    Some(c.compare(CmpIPredicate::Slt, number, self.queries)?)
                } else {
                    None
                };
                let mut one = |c: Code| -> Result<()> {
                    let mut dims: Vec<LaneValue> =
                        t.query_tile.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
                    dims.push(LaneValue::Uniform(Ptx(c).i32_to_index(number)?));
                    let mut passed = ForwardedElements::from([
                        (sum.clone(), LaneValue::Uniform(total)),
                        (max.clone(), LaneValue::Uniform(most)),
                    ]);
                    self.scope.iteration(
                        c,
                        &[lse],
                        &dims,
                        Lanes { count: 1, mask: None },
                        &mut [],
                        &mut passed,
                    )
                };
                let both = c
                    .all_of(&[Some(first), there].into_iter().flatten().collect::<Vec<_>>())?
                    .ok_or("has no condition")?;
                c.if_else(both, &mut one, None)?;
                p.warp_barrier()?;
            }
            if self.partial_tiles[0] {
                c.if_else(c.compare(CmpIPredicate::Slt, number, self.queries)?, &mut store, None)?;
                // Reconverge: wgmma needs whole warps.
                p.warp_barrier()?;
            } else {
                store(c)?;
            }
        }
        Ok(())
    }
}
