//! The epilogue of attention: the last stage, on the accumulators.
use crate::{
    analysis::{Access, Poly, Stage},
    emit::code::Code,
    strategies::gpu::{
        attention::{
            body::StageBody, flash::Flash, masks::ScoreRows, query_tile::QueryTile,
            softmax::SoftmaxState,
        },
        common::{ptx::Ptx, tile::Tile},
    },
};
use kiln_dialects::{ir::*, ops::ReduceKind, value::DType};
use std::collections::HashMap;

impl Flash<'_> {
    fn stage(&self, i: usize) -> Result<&Stage> {
        Ok(self.scope.kernel.stages.get(i).ok_or("has no such stage")?)
    }
    fn written(&self, i: usize) -> Result<&Access> {
        Ok(&self.stage(i)?.outputs.first().ok_or("has no result")?.access)
    }
    /// What a stage gives at a position.
    fn stage_at(
        &self,
        c: Code,
        i: usize,
        position: Vec<Value>,
        given: &[(Access, Value)],
    ) -> Result<Value> {
        let (scope, stage) = (self.scope, self.stage(i)?);
        StageBody { scope, stage, position, made: HashMap::new() }.result(c, given)
    }

    /// Runs the last stage and stores the result.
    pub(super) fn finish(
        &self,
        c: Code,
        at: &QueryTile,
        rows: &ScoreRows,
        sums: Value,
        state: SoftmaxState,
    ) -> Result<()> {
        let (t, f, p, stages) = (Tile(c), self.fragments(), Ptx(c), &self.pattern.at);
        let (product, sum, max, result) = (
            self.written(stages.product)?,
            self.written(stages.sum)?,
            self.written(stages.max)?,
            self.written(stages.result)?,
        );
        let (index, f32) = (Type::index(c.ctx()), p.f32());
        let row = f.row(f32);
        let total = t.reduce(ReduceKind::Sum, state.sum, row)?;
        let valid = at.queries.map(|n| arith::index_cast(c, n, index)).transpose()?;
        // The row's value, or `other` for a query beyond the valid ones.
        let or = |c: Code, x: Value, other: f64, bound: Option<(Value, Value)>| match bound {
            Some((i, n)) => {
                let there = c.compare(CmpIPredicate::Slt, i, n)?;
                c.select(there, x, c.number(other, x.ty())?)
            }
            None => Ok(x),
        };
        let bound: Vec<Value> = valid.into_iter().flat_map(|n| [rows.all, n]).collect();
        let pair = |x: &[Value]| if let [i, n, ..] = x { Some((*i, *n)) } else { None };
        let mut stats = [total, state.max];
        if !bound.is_empty() {
            let inputs = [&stats, bound.as_slice()].concat();
            let made = t.map(&inputs, &[row, row], &mut |c, x| {
                let bound = pair(&x[2..]);
                Ok(vec![or(c, x[0], 0.0, bound)?, or(c, x[1], f64::NEG_INFINITY, bound)?])
            })?;
            stats = [made[0], made[1]];
        }
        if self.score.factor != 1.0 {
            stats[1] = arith::mulf(c, stats[1], c.number(self.score.factor, row)?)?;
        }
        let there = self.partial_tiles[0].then_some(self.queries);
        if let Some(lse) = stages.lse {
            let out = self.written(lse)?;
            let memory = self.scope.buffer(out.buffer)?;
            let ty = f.row(memory.ty().element().ok_or("has no result")?);
            let inputs = [stats[0], stats[1], rows.all];
            let made = t.map_one(&inputs, ty, &mut |c, x| {
                let given = [(sum.clone(), x[0]), (max.clone(), x[1])];
                self.stage_at(c, lse, [at.outer.as_slice(), &[x[2]]].concat(), &given)
            })?;
            t.store(made, memory, &[rows.all], (1, there), &mut |c, x| {
                self.scope.element_address(c, out, &[at.outer.as_slice(), x].concat())
            })?;
        }
        let memory = self.scope.buffer(result.buffer)?;
        let element = memory.ty().element().ok_or("has no result")?;
        let columns = t.iota(p.number(0)?, None, f.columns(index, self.columns()))?;
        let own = self.stage(stages.result)?;
        let placed =
            !own.indexed.is_empty() || own.inputs.iter().any(|a| ![product, sum, max].contains(&a));
        let positions: &[Value] = if placed { &[rows.all, columns] } else { &[] };
        let inputs = [&[sums, stats[0], stats[1]], positions, bound.as_slice()].concat();
        // Rounded in pairs afterwards, where the stage rounds last.
        let last = self.last_rounding(element)?;
        let kept = if last { f32 } else { element };
        let made = t.map_one(&inputs, f.accumulator(kept, self.columns()), &mut |c, x| {
            let (positions, bound) = x[3..].split_at(positions.len());
            let own = or(c, x[0], 0.0, pair(bound))?;
            let given = [(product.clone(), own), (sum.clone(), x[1]), (max.clone(), x[2])];
            let position = [at.outer.as_slice(), positions].concat();
            let made = self.stage_at(c, stages.result, position, &given)?;
            let Some(rounded) = made.def().filter(|_| last) else { return Ok(made) };
            let wide = rounded.operand(0);
            rounded.erase();
            Ok(wide)
        })?;
        let made = match last {
            true => t.convert(made, f.accumulator(element, self.columns()))?,
            false => made,
        };
        let eights = |p: &Poly| p.multiple_of(8);
        let outside = result.at.dims.iter().filter(|(d, _)| **d != stages.outer + 1);
        let wide = element.dtype()?.byte_size() == 2
            && result.at.divisions.is_empty()
            && outside.map(|(_, p)| p).chain([&result.at.constant]).all(eights);
        let vector = if wide { 8 } else { 2 };
        t.store(made, memory, &[rows.all, columns], (vector, there), &mut |c, x| {
            self.scope.element_address(c, result, &[at.outer.as_slice(), x].concat())
        })
    }

    /// Whether the last stage ends in rounding f32 to the element of the result.
    fn last_rounding(&self, element: Type) -> Result<bool> {
        let stage = self.stage(self.pattern.at.result)?;
        let crate::analysis::Body::Block(block) = stage.body else { return Ok(false) };
        let end = block.terminator().map(|end| end.operand(0));
        let op = end.filter(|v| v.uses().len() == 1).and_then(|v| v.def());
        Ok(op.is_some_and(|op| {
            op.isa::<arith::TruncF>()
                && op.operand(0).ty().dtype() == Ok(DType::F32)
                && op.result(0).ty() == element
                && element.dtype().is_ok_and(|d| d.byte_size() == 2)
        }))
    }
}
