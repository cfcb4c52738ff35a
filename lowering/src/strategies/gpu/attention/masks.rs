//! Masked scores as maps. What depends on rows only is computed once for all keys.
use crate::{
    analysis::Body,
    emit::code::Code,
    strategies::gpu::{
        attention::{body::StageBody, flash::Flash, query_tile::QueryTile},
        common::{
            ptx::Ptx,
            score::{COLUMN, ROW, dim},
            tile::Tile,
        },
    },
};
use kiln_dialects::ir::*;
use std::collections::{HashMap, HashSet};

/// Which masks a key tile needs: causal or out of bounds at its end, sliding window at its start.
#[derive(Clone, Copy)]
pub(super) struct Edges {
    pub(super) last: bool,
    pub(super) window: bool,
}

/// A query tile's rows, and what scores take that does not depend on keys.
pub(super) struct ScoreRows {
    /// The rows, and those that exist: rows out of bounds read what the last row reads.
    pub(super) all: Value,
    existing: Value,
    /// Values of the score's body that do not depend on rows, and those that do.
    uniform: HashMap<Value, Value>,
    rows: Vec<(Value, Value)>,
    /// Which positions the rest takes: rows, columns, outer loops.
    depends: u8,
    outer: Vec<usize>,
}

impl Flash<'_> {
    /// Whether a value is worth an op of its own where it does not depend on keys. A fragment of
    /// indices holds positions, which are small.
    fn hoisted(&self, v: Value, depends: u8) -> bool {
        let g = &self.score.graph;
        let constant = v.def().is_some_and(|op| op.isa::<arith::Constant>());
        let own = g.has(v) && g.depends(v) == depends && !g.is_affine(v);
        own && !constant && !(depends == ROW && v.ty().is_index())
    }

    /// Writes values of the score's body.
    fn score_body<'b>(
        &'b self,
        outer: &[Value],
        rest: &[Value],
        made: HashMap<Value, Value>,
    ) -> StageBody<'b> {
        let position = [outer, rest].concat();
        StageBody { scope: self.score.scope, stage: self.score.stage, position, made }
    }

    /// What scores take from a query tile.
    pub(super) fn score_rows(&self, c: Code, at: &QueryTile) -> Result<ScoreRows> {
        let (t, f, p, s) = (Tile(c), self.fragments(), Ptx(c), &self.score);
        let index = f.row(Type::index(c.ctx()));
        let all = t.iota(at.first, None, index)?;
        let mut rows = ScoreRows {
            all,
            existing: all,
            uniform: HashMap::new(),
            rows: vec![],
            depends: 0,
            outer: vec![],
        };
        let Body::Block(block) = s.stage.body else { return Ok(rows) };
        // From the root down to what is computed once.
        let (mut seen, mut stack, mut own) = (HashSet::new(), vec![s.root], vec![]);
        while let Some(v) = stack.pop().map(|v| self.replaced(v)) {
            let element = v == s.raw || self.is_staged(v);
            if !s.graph.has(v) || element || !seen.insert(v) || self.hoisted(v, 0) {
                continue;
            }
            if self.hoisted(v, ROW) {
                own.push(v);
            } else if v.block_arg().is_some() || v.def().and_then(dim).is_some() {
                rows.depends |= s.graph.depends(v) & (ROW | COLUMN);
                rows.outer
                    .extend(v.def().and_then(dim).map(|d| d as usize).filter(|d| *d < s.outer));
            } else {
                stack.extend(v.def().into_iter().flat_map(Op::operands));
            }
        }
        rows.outer.sort_unstable();
        rows.outer.dedup();
        if self.partial_tiles[0] && (rows.depends & ROW != 0 || !own.is_empty()) {
            rows.existing = t.iota(at.first, Some(p.add_signed(self.queries, -1)?), index)?;
        }
        let values: Vec<Value> =
            block.args().into_iter().chain(block.ops().into_iter().flat_map(Op::results)).collect();
        let used = s.used();
        let mut once = self.score_body(&at.outer, &[], HashMap::new());
        for v in values.iter().filter(|v| used.contains(v) && self.hoisted(**v, 0)) {
            once.value(c, *v)?;
        }
        rows.uniform = once.made;
        rows.uniform.retain(|v, _| self.hoisted(*v, 0));
        // In the order of the body.
        let own: Vec<Value> = values.into_iter().filter(|v| own.contains(v)).collect();
        if own.is_empty() {
            return Ok(rows);
        }
        let types: Vec<Type> = own.iter().map(|v| f.row(v.ty())).collect();
        let made = t.map_as(&[rows.existing], &types, true, &mut |c, x| {
            let mut body = self.score_body(&at.outer, x, rows.uniform.clone());
            own.iter().map(|v| body.value(c, *v)).collect()
        })?;
        rows.rows = own.into_iter().zip(made).collect();
        Ok(rows)
    }

    /// The value that stands for another one: the factor is applied later.
    fn replaced(&self, v: Value) -> Value {
        self.score.product.filter(|(product, _)| *product == v).map_or(v, |(_, rest)| rest)
    }

    /// Masked scores, unscaled, of the key tile `back` tiles before the last one. `biases`: tiles,
    /// each with the argument of the score's body that is its element.
    pub(super) fn masked_scores(
        &self,
        c: Code,
        at: &QueryTile,
        rows: &ScoreRows,
        (scores, biases): (Value, &[(Value, Value)]),
        (back, edges): (Value, Edges),
    ) -> Result<Value> {
        let (t, f, p, s) = (Tile(c), self.fragments(), Ptx(c), &self.score);
        let beyond = edges.last && self.partial_tiles[1];
        let hidden = edges.last && s.causal;
        let trivial = s.is_scaled_only() && self.replaced(s.root) == s.raw;
        if trivial && !beyond && !hidden {
            return Ok(scores);
        }
        let first = self.first_key(p, at, back)?;
        let ty = f.columns(Type::index(c.ctx()), self.keys);
        let end = p.add_signed(at.count, -1)?;
        let (mut inputs, mut limit) = (vec![scores], false);
        if beyond || hidden {
            limit = true;
            let last = match (hidden, beyond) {
                (true, true) => t.iota(at.first, Some(end), rows.all.ty())?,
                (true, false) => rows.all,
                _ => arith::index_cast(c, end, Type::index(c.ctx()))?,
            };
            inputs.extend([t.iota(first, None, ty)?, last]);
        }
        if rows.depends & COLUMN != 0 {
            let last = if beyond {
                Some(p.max(p.add_signed(self.count, -1)?, p.number(0)?)?)
            } else {
                None
            };
            inputs.push(match (beyond, limit) {
                (false, true) => inputs[1],
                _ => t.iota(first, last, ty)?,
            });
        }
        if rows.depends & ROW != 0 {
            inputs.push(rows.existing);
        }
        inputs.extend(rows.outer.iter().filter_map(|d| at.outer.get(*d)));
        inputs.extend(biases.iter().chain(&rows.rows).map(|(_, v)| *v));
        let made = t.map_as(&inputs, &[scores.ty()], true, &mut |c, x| {
            let mut x = x.iter().copied();
            let mut next = || x.next().ok_or("has too few operands");
            let raw = next()?;
            let limit = if limit { Some((next()?, next()?)) } else { None };
            let column = if rows.depends & COLUMN != 0 { Some(next()?) } else { None };
            let row = if rows.depends & ROW != 0 { Some(next()?) } else { None };
            let mut outer = at.outer.clone();
            for d in &rows.outer {
                outer[*d] = next()?;
            }
            let mut known = rows.uniform.clone();
            known.insert(s.raw, raw);
            for (v, _) in biases.iter().chain(&rows.rows) {
                known.insert(*v, next()?);
            }
            // Positions that nothing reads have no operand.
            let none = outer.first().copied().map_or_else(|| c.index(0), Ok)?;
            let own = [row.unwrap_or(none), column.unwrap_or(none)];
            let mut body = self.score_body(&outer, &own, known);
            if !edges.window {
                for v in &s.window_conditions {
                    body.made.insert(*v, c.integer(1, v.ty())?);
                }
            }
            if let Some((product, rest)) = s.product {
                let rest = body.value(c, rest)?;
                body.made.insert(product, rest);
            }
            let seen = body.value(c, s.root)?;
            let Some((column, limit)) = limit else { return Ok(vec![seen]) };
            let low = c.number(f64::NEG_INFINITY, seen.ty())?;
            let masked = c.compare(CmpIPredicate::Sgt, column, limit)?;
            Ok(vec![c.select(masked, low, seen)?])
        })?;
        made.first().copied().ok_or_else(|| "has no scores".into())
    }

    /// Zeroes the values of masked keys in the last tile: they may be NaN, and 0 × NaN is NaN. A
    /// late warpgroup writes zeros over zeros.
    pub(super) fn zero_masked_values(&self, c: Code, at: &QueryTile, stage: Value) -> Result<()> {
        let p = Ptx(c);
        let rest = p.sub(at.count, self.first_key(p, at, p.number(0)?)?)?;
        let some = [
            c.compare(CmpIPredicate::Slt, rest, p.number(self.keys)?)?,
            c.compare(CmpIPredicate::Slt, at.count, self.count)?,
        ];
        let mut zeros = |c: Code| -> Result<()> {
            let (t, p) = (Tile(c), Ptx(c));
            t.wait(self.values_ring, stage)?;
            let from = p.max(rest, p.number(0)?)?;
            t.zero_rows(t.view(self.values_ring, stage)?, from)
        };
        c.if_else(c.all_of(&some)?.ok_or("has no condition")?, &mut zeros, None)
    }
}
