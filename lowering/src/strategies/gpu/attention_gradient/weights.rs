//! The weights of a tile, computed again from its scores and the log-sum-exp of each query, and the
//! gradients of its scores.
use crate::{
    analysis::Access,
    emit::code::Code,
    strategies::gpu::{
        attention_gradient::{emit::Gradient, row_tile::RowTile},
        common::{ptx::Ptx, tile::Tile},
    },
};
use kiln_dialects::ir::*;
use std::f64::consts::LOG2_E;

/// The statistics of queries where queries are rows: fragments of rows.
#[derive(Clone, Copy)]
pub(super) struct RowStatistics {
    /// The negative log-sum-exp, as a logarithm to base 2; -inf for a query without keys.
    negated_lse: Value,
    delta: Value,
}

/// A tile of scores.
pub(super) struct ScoreTile<'a> {
    /// Its rows.
    pub(super) rows: &'a RowTile,
    /// Positions of the outer loops.
    pub(super) outer: &'a [Value],
    /// Its first column.
    pub(super) column: Value,
    /// Whether some scores are masked.
    pub(super) masked: bool,
    /// Where queries are rows.
    pub(super) statistics: Option<RowStatistics>,
}

/// The negative log-sum-exp to base 2. A query without keys has -inf: all its weights are 0.
fn negated(c: Code, lse: Value) -> Result<Value> {
    let low = c.number(f64::NEG_INFINITY, lse.ty())?;
    let none = arith::cmpf(c, CmpFPredicate::Oeq, lse, low)?;
    let scaled = arith::mulf(c, lse, c.number(-LOG2_E, lse.ty())?)?;
    c.select(none, low, scaled)
}

impl Gradient<'_> {
    /// The accesses of log-sum-exp and delta.
    fn statistics(&self) -> Result<[&Access; 2]> {
        let (at, stages) = (&self.pattern.at, &self.scope.kernel.stages);
        let input = |stage: usize, i: usize| stages.get(stage)?.inputs.get(i);
        let both = input(at.weights, 1).zip(input(at.gradients, 2));
        both.map(|(a, b)| [a, b]).ok_or_else(|| "has no log-sum-exp".into())
    }

    /// The statistics of a tile whose rows are queries.
    pub(super) fn row_statistics(
        &self,
        c: Code,
        tile: &RowTile,
        outer: &[Value],
    ) -> Result<RowStatistics> {
        let (t, f, p) = (Tile(c), self.fragments(), Ptx(c));
        let row = f.row(p.f32());
        // Rows out of bounds read what the last row reads.
        let last = p.add_signed(self.row_count, -1)?;
        let last = self.partial_tiles[0].then_some(last);
        let rows = t.iota(tile.first, last, f.row(Type::index(c.ctx())))?;
        let [lse, delta] = self.statistics()?;
        let made = t.map(&[rows], &[row, row], &mut |c, x| {
            let read = |a: &Access| -> Result<Value> {
                let at = self.scope.element_address(c, a, &[outer, x].concat())?;
                memref::load(c, self.scope.buffer(a.buffer)?, &[at])
            };
            Ok(vec![negated(c, read(lse)?)?, read(delta)?])
        })?;
        Ok(RowStatistics { negated_lse: made[0], delta: made[1] })
    }

    /// A statistic of a tile whose columns are queries, 0: log-sum-exp, 1: delta; none where rows are.
    /// It is loaded where this is, so that what follows hides the latency.
    pub(super) fn column_statistic(
        &self,
        c: Code,
        tile: &ScoreTile<'_>,
        which: usize,
    ) -> Result<Option<Value>> {
        if tile.statistics.is_some() {
            return Ok(None);
        }
        let (t, f, p) = (Tile(c), self.fragments(), Ptx(c));
        let a = self.statistics()?[which];
        let query = self.pattern.at.outer;
        let last = p.add_signed(self.column_count, -1)?;
        let clamped = tile.masked && self.partial_tiles[1];
        let index = f.columns(Type::index(c.ctx()), self.block);
        let columns = t.iota(tile.column, clamped.then_some(last), index)?;
        let even = a.at.dims.iter().filter(|(d, _)| **d != query).map(|(_, p)| p);
        let even = even.chain([&a.at.constant]).all(|p| p.is_zero() || p.multiple_of(2));
        let adjacent = a.at.coefficient(query).known() == Some(1) && a.at.divisions.is_empty();
        let vector = if even && adjacent && !clamped { 2 } else { 1 };
        let at =
            &mut |c: Code, x: Value| self.scope.element_address(c, a, &[tile.outer, &[x]].concat());
        let ty = f.columns(p.f32(), self.block);
        t.load(self.scope.buffer(a.buffer)?, columns, (vector, true), at, ty).map(Some)
    }

    /// The weights of a tile of scores. `lse`: that of each column, where queries are columns.
    pub(super) fn weights(
        &self,
        c: Code,
        tile: &ScoreTile<'_>,
        scores: Value,
        lse: Option<Value>,
    ) -> Result<Value> {
        let (t, f, p) = (Tile(c), self.fragments(), Ptx(c));
        let factor = LOG2_E * self.pattern.at.scale;
        let index = Type::index(c.ctx());
        let mut inputs = vec![scores];
        if let (Some(s), false) = (tile.statistics, tile.masked) {
            let over = t.broadcast(s.negated_lse, scores.ty())?;
            return t.exp2(math::fma(c, scores, c.number(factor, scores.ty())?, over)?);
        }
        let lse = lse.or(tile.statistics.map(|s| s.negated_lse));
        inputs.push(lse.ok_or("has no log-sum-exp")?);
        let causal = tile.masked && self.pattern.at.causal;
        let beyond = tile.masked && self.partial_tiles[1];
        if tile.masked {
            inputs.push(t.iota(tile.column, None, f.columns(index, self.block))?);
        }
        if causal {
            inputs.push(t.iota(tile.rows.first, None, f.row(index))?);
        }
        if beyond {
            inputs.push(arith::index_cast(c, p.add_signed(self.column_count, -1)?, index)?);
        }
        let made = t.map_as(&inputs, &[scores.ty()], true, &mut |c, x| {
            let mut x = x.iter().copied();
            let mut next = || x.next().ok_or("has too few operands");
            let (score, lse) = (next()?, next()?);
            let lse = if tile.statistics.is_some() { lse } else { negated(c, lse)? };
            let factor = c.number(factor, score.ty())?;
            let mut w = Tile(c).exp2(math::fma(c, score, factor, lse)?)?;
            if !tile.masked {
                return Ok(vec![w]);
            }
            let (column, zero) = (next()?, c.number(0.0, score.ty())?);
            if causal {
                let row = next()?;
                let (query, key) = if self.by_keys() { (column, row) } else { (row, column) };
                w = c.select(c.compare(CmpIPredicate::Sgt, key, query)?, zero, w)?;
            }
            if beyond {
                w = c.select(c.compare(CmpIPredicate::Sgt, column, next()?)?, zero, w)?;
            }
            Ok(vec![w])
        })?;
        made.first().copied().ok_or_else(|| "has no weights".into())
    }

    /// The gradients of a tile of scores, without their factor, from its weights and their gradients.
    /// `delta`: that of each column, where queries are columns.
    pub(super) fn gradients(
        &self,
        c: Code,
        tile: &ScoreTile<'_>,
        [weights, by_weights]: [Value; 2],
        delta: Option<Value>,
    ) -> Result<Value> {
        let t = Tile(c);
        if let Some(s) = tile.statistics {
            let delta = t.broadcast(s.delta, weights.ty())?;
            return arith::mulf(c, weights, arith::subf(c, by_weights, delta)?);
        }
        let inputs = [weights, by_weights, delta.ok_or("has no delta")?];
        let made = t.map_as(&inputs, &[weights.ty()], true, &mut |c, x| {
            Ok(vec![arith::mulf(c, x[0], arith::subf(c, x[1], x[2])?)?])
        })?;
        made.first().copied().ok_or_else(|| "has no gradients".into())
    }
}
