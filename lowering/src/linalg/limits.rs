//! What a mask says about positions: selects of -inf by comparisons of indices, the outermost ones
//! of a masked score. Masks may be functions that users write, so these are found in the score.
use crate::linalg::expr::{Body, Index, Inputs};
use kiln_dialects::ir::*;

/// The outermost masks of a score.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The score before these masks.
    pub root: Value,
    /// Whether one of them is causal: query i attends to keys j <= i only.
    pub causal: bool,
    /// Sequence lengths of queries and of keys: integers of the body that depend on the first two
    /// loops only.
    pub lengths: [Option<Value>; 2],
}

/// The body of a score: where its conditions are looked up.
struct Scores<'a> {
    block: Block,
    inputs: &'a Inputs,
    index_op: Index,
    outer: usize,
}

impl Limits {
    /// The limits of a masked score in a body whose first argument is the score, over `outer` loops
    /// and those of queries and keys.
    pub fn of(masked: Value, body: &Body, outer: usize) -> Limits {
        let s =
            Scores { block: body.s.b.block(), inputs: body.inputs, index_op: body.index_op, outer };
        let mut limits = Limits { root: masked, causal: false, lengths: [None; 2] };
        while let Some(op) = limits.root.def().filter(|d| d.isa::<arith::Select>()) {
            let hides = constant(op.operand(2)) == Some(f64::NEG_INFINITY);
            let Some(inner) = limits.with(&s, op.operand(0)).filter(|_| hides) else { break };
            limits = Limits { root: op.operand(1), ..inner };
        }
        limits.add_inner_lengths(&s);
        limits
    }
    /// Sequence lengths stated by masks further inside, which stay in the expression.
    fn add_inner_lengths(&mut self, s: &Scores<'_>) {
        let (mut scores, mut masks) = (vec![self.root], vec![]);
        while let Some(op) = scores.pop().and_then(Value::def) {
            if op.isa::<arith::AddF>() || op.isa::<arith::ExtF>() {
                scores.extend(op.operands());
            } else if op.isa::<arith::Select>()
                && constant(op.operand(2)) == Some(f64::NEG_INFINITY)
            {
                masks.push(op.operand(0));
                scores.push(op.operand(1));
            }
        }
        while let Some(v) = masks.pop() {
            match v.def().filter(|op| op.isa::<arith::AndI>()) {
                Some(op) => masks.extend(op.operands()),
                None => self.lengths = self.with(s, v).map_or(self.lengths, |more| more.lengths),
            }
        }
    }
    /// Adds a condition, if it is a conjunction of such comparisons.
    fn with(&self, s: &Scores<'_>, condition: Value) -> Option<Limits> {
        let op = condition.def()?;
        if op.isa::<arith::AndI>() {
            return self.with(s, op.operand(0))?.with(s, op.operand(1));
        }
        if !op.isa::<arith::CmpI>() {
            return None;
        }
        let loop_of = |v: Value| {
            let v = v.def().filter(|d| d.isa::<arith::IndexCast>()).map_or(v, |d| d.operand(0));
            let index = v.def().filter(|d| d.is(s.index_op.name()))?;
            index.attr("dim")?.as_i64()?.checked_sub(s.outer as i64)
        };
        let (left, right) = (loop_of(op.operand(0)), op.operand(1));
        let predicate = op.attr("predicate")?.as_i64()?;
        let mut more = self.clone();
        match (predicate, left) {
            // sle
            (3, Some(1)) if loop_of(right) == Some(0) => more.causal = true,
            // slt
            (2, Some(axis @ 0..=1)) => {
                let slot = &mut more.lengths[axis as usize];
                (slot.is_none() && s.depends_on_outer(right)).then_some(())?;
                *slot = Some(right);
            }
            _ => return None,
        }
        Some(more)
    }
}

impl Scores<'_> {
    /// Whether a value depends only on the first two outer loops and on loads indexed by them.
    fn depends_on_outer(&self, v: Value) -> bool {
        let few = self.outer.min(2);
        match v.block_arg() {
            // The first argument is the score.
            Some((b, i)) if b == self.block => {
                let input = i.checked_sub(1).and_then(|i| self.inputs.list.get(i));
                let free = |d: usize| input.is_some_and(|x| !x.at.iter().any(|ix| ix.uses(d)));
                (few..self.outer + 2).all(free)
            }
            Some(_) => true,
            None => v.def().is_some_and(|op| match op {
                op if op.block() != Some(self.block) => true,
                op if op.is(self.index_op.name()) => {
                    op.attr("dim").and_then(Attr::as_i64).is_some_and(|d| (d as usize) < few)
                }
                op => {
                    op.regions().is_empty()
                        && op.operands().into_iter().all(|v| self.depends_on_outer(v))
                }
            }),
        }
    }
}

fn constant(v: Value) -> Option<f64> {
    v.def().filter(|d| d.isa::<arith::Constant>())?.attr("value")?.as_f64()
}
