//! The analysis of masked scores: their factor, and which comparisons bound the visible keys.
use crate::{
    analysis::{Attention, Body},
    emit::body::Scope,
    strategies::gpu::common::score::{
        COLUMN, ELEMENT, Graph, Leaf, ROW, Score, dim, integer, number, small,
    },
};
use kiln_dialects::ir::*;
use std::collections::HashSet;

/// Comparisons of integers that mask a score with -inf unless they hold.
fn conditions(v: Value) -> Vec<Op> {
    let (mut all, mut scores, mut masks) = (vec![], vec![v], vec![]);
    while let Some(v) = scores.pop() {
        let Some(op) = v.def() else { continue };
        if op.isa::<arith::AddF>() {
            scores.extend(op.operands());
        } else if op.isa::<arith::Select>() && number(op.operand(2)) == Some(f64::NEG_INFINITY) {
            masks.push(op.operand(0));
            scores.push(op.operand(1));
        }
    }
    while let Some(v) = masks.pop() {
        let Some(op) = v.def() else { continue };
        if op.isa::<arith::AndI>() {
            masks.extend(op.operands());
        } else if op.isa::<arith::CmpI>() {
            all.push(op);
        }
    }
    all
}

/// The score where neither comparisons of positions nor other masks make it -inf.
fn unmasked(mut v: Value) -> Value {
    while let Some(op) = v
        .def()
        .filter(|op| op.isa::<arith::Select>() && number(op.operand(2)) == Some(f64::NEG_INFINITY))
    {
        v = op.operand(1);
    }
    v
}

impl<'a> Score<'a> {
    /// Analyses the masked scores of an attention kernel.
    pub fn of(scope: &'a Scope<'a>, at: &Attention) -> Result<Score<'a>> {
        let k = scope.kernel;
        let stage = k.stages.get(at.seen).ok_or("has no such stage")?;
        let Body::Block(block) = stage.body else {
            return Err("has scores that nothing computes".into());
        };
        let scores =
            k.stages.get(at.scores).and_then(|s| s.outputs.first()).ok_or("has no scores")?;
        let place = stage
            .inputs
            .iter()
            .position(|a| *a == scores.access)
            .ok_or("does not read its scores")?;
        let raw = *block.args().get(place).ok_or("does not read its scores")?;
        let root = at.limits.root;
        let (mut product, mut factor) = (None, 1.0);
        // Any other user of the product needs it with the factor.
        let alone = |op: &Op| op.isa::<arith::MulF>() && op.result(0).uses().len() == 1;
        if let Some(op) = unmasked(root).def().filter(alone) {
            let [a, b] = [op.operand(0), op.operand(1)];
            let positive = |v: Value| number(v).filter(|f| *f > 0.0 && f.is_finite());
            if let Some((f, rest)) =
                positive(b).map(|f| (f, a)).or_else(|| positive(a).map(|f| (f, b)))
            {
                (factor, product) = (f, Some((op.result(0), rest)));
            }
        }
        let (row, column) = (at.outer, at.outer + 1);
        let bits = |on: [bool; 2]| u8::from(on[0]) * ROW + u8::from(on[1]) * COLUMN;
        let graph = Graph::of(block, &|v| {
            if let Some((_, i)) = v.block_arg() {
                let read = stage.inputs.get(i).filter(|_| v != raw);
                let on = |a: &crate::analysis::Access| bits([a.at.uses(row), a.at.uses(column)]);
                return Some(Leaf { depends: read.map_or(ELEMENT, on), position: false });
            }
            let d = dim(v.def()?)? as usize;
            Some(Leaf { depends: bits([d == row, d == column]), position: true })
        });
        let mut s = Score {
            scope,
            stage,
            graph,
            outer: at.outer,
            raw,
            root,
            product,
            causal: at.limits.causal,
            factor,
            last_key: at.limits.causal.then_some(0),
            window: None,
            window_conditions: HashSet::new(),
        };
        for c in conditions(root) {
            s.bound(c);
        }
        Ok(s)
    }

    /// Turns a comparison of positions that must hold into a bound on the visible keys.
    fn bound(&mut self, compare: Op) -> Option<()> {
        let (l, r) = (self.sum(compare.operand(0))?, self.sum(compare.operand(1))?);
        let number = l[2] - r[2];
        let predicate = compare.attr("predicate").and_then(Attr::as_i64)?;
        // Normalised to key - query + constant, below or above 0.
        let (number, below, equal) = match ([l[0] - r[0], l[1] - r[1]], predicate) {
            ([-1, 1], 2 | 3) => (number, true, predicate == 3),
            ([-1, 1], 4 | 5) => (number, false, predicate == 5),
            ([1, -1], 2 | 3) => (-number, false, predicate == 3),
            ([1, -1], 4 | 5) => (-number, true, predicate == 5),
            _ => return None,
        };
        let least = |old: Option<i64>, new: i64| Some(old.map_or(new, |old| old.min(new)));
        let edge = i64::from(!equal);
        if below {
            self.last_key = least(self.last_key, -number - edge)
        } else {
            self.window = least(self.window, number - edge);
            self.window_conditions.insert(compare.result(0));
        }
        Some(())
    }

    /// Coefficients of query and key, and the constant, of an affine value.
    fn sum(&self, v: Value) -> Option<[i64; 3]> {
        let op = v.def().filter(|_| self.graph.affine_ints.contains(&v) || small(v).is_some())?;
        let both = || Some((self.sum(op.operand(0))?, self.sum(op.operand(1))?));
        let each = |f: &dyn Fn(i64, i64) -> i64| {
            both().map(|(a, b)| [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2])])
        };
        match op.name().as_str() {
            linalg::Index::NAME => match dim(op)? as usize {
                d if d == self.outer => Some([1, 0, 0]),
                d if d == self.outer + 1 => Some([0, 1, 0]),
                _ => None,
            },
            arith::Constant::NAME => Some([0, 0, integer(v)?]),
            arith::AddI::NAME => each(&|a, b| a + b),
            arith::SubI::NAME => each(&|a, b| a - b),
            arith::MulI::NAME => None,
            _ => self.sum(op.operand(0)),
        }
    }

    /// Whether the result is the raw score times the factor, or -inf.
    pub fn is_scaled_only(&self) -> bool {
        let v = unmasked(self.root);
        self.product.filter(|(product, _)| *product == v).map_or(v, |(_, rest)| rest) == self.raw
    }
}
