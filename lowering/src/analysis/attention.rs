//! Matches attention kernels: seven or eight stages, as `kiln-to-linalg` emits them.
use crate::analysis::*;
use kiln_dialects::ir::{Attr, Value};

/// Attribute of the stage of masked scores: causal, query i attends to keys j <= i only.
pub const CAUSAL: &str = "kiln.causal";

/// The stages of an attention, and how they access query, key and value.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Scores Q Kᵀ, over `(outer.., query, key, depth)`.
    pub scores: usize,
    /// Masked scores, with scale, bias and masks, over `(outer.., query, key)`.
    pub seen: usize,
    /// Row maximum of the masked scores over keys.
    pub max: usize,
    /// Softmax numerators: exp(score - maximum).
    pub weights: usize,
    /// Softmax denominator: their sum over keys.
    pub sum: usize,
    /// Weights times values (P V), over `(outer.., query, column, key)`.
    pub product: usize,
    /// The result, over `(outer.., query, column)`.
    pub result: usize,
    /// The log-sum-exp of the scores, over `(outer.., query)`.
    pub lse: Option<usize>,
    /// Number of loops around those over queries (batch, heads).
    pub outer: usize,
    /// Whether the mask is causal.
    pub causal: bool,
    /// Head dimension of queries and keys.
    pub depth: i64,
    /// Head dimension of values.
    pub columns: i64,
    /// Positional masks: causal, sequence lengths.
    pub limits: Limits,
}

/// The outermost masks of the scores: selects of -inf by comparisons of positions.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The scores before these masks.
    pub root: Value,
    /// Whether one of them is causal.
    pub causal: bool,
    /// Sequence lengths of queries and of keys: integers of the body that depend on the first two
    /// loops only.
    pub lengths: [Option<Value>; 2],
}

impl Limits {
    fn of(s: &Stage, outer: usize) -> Option<Limits> {
        let Body::Block(block) = s.body else { return None };
        let mut limits = Limits {
            root: block.terminator()?.operands().first().copied()?,
            causal: false,
            lengths: [None; 2],
        };
        while let Some(op) = limits.root.def().filter(|d| d.is("arith.select")) {
            let hides = constant(op.operand(2)) == Some(f64::NEG_INFINITY);
            let Some(inner) = limits.with(s, op.operand(0), outer).filter(|_| hides) else { break };
            limits = Limits { root: op.operand(1), ..inner };
        }
        limits.further(s, outer);
        Some(limits)
    }
    /// Sequence lengths stated by masks further inside, which stay in the expression.
    fn further(&mut self, s: &Stage, outer: usize) {
        let (mut scores, mut masks) = (vec![self.root], vec![]);
        while let Some(op) = scores.pop().and_then(Value::def) {
            if op.is("arith.addf") || op.is("arith.extf") {
                scores.extend(op.operands());
            } else if op.is("arith.select") && constant(op.operand(2)) == Some(f64::NEG_INFINITY) {
                masks.push(op.operand(0));
                scores.push(op.operand(1));
            }
        }
        while let Some(v) = masks.pop() {
            match v.def().filter(|op| op.is("arith.andi")) {
                Some(op) => masks.extend(op.operands()),
                None => {
                    self.lengths = self.with(s, v, outer).map_or(self.lengths, |more| more.lengths)
                }
            }
        }
    }
    /// Adds a condition, if it is a conjunction of such comparisons.
    fn with(&self, s: &Stage, condition: Value, outer: usize) -> Option<Limits> {
        let op = condition.def()?;
        if op.is("arith.andi") {
            return self.with(s, op.operand(0), outer)?.with(s, op.operand(1), outer);
        }
        let loop_of = |v: Value| {
            let v = v.def().filter(|d| d.is("arith.index_cast")).map_or(v, |d| d.operand(0));
            v.def()
                .filter(|d| d.is("linalg.index"))?
                .attr("dim")?
                .as_i64()?
                .checked_sub(outer as i64)
        };
        let (left, right) = (loop_of(op.operand(0)), op.operand(1));
        let predicate =
            if op.is("arith.cmpi") { op.attr("predicate")?.as_i64()? } else { return None };
        let mut more = self.clone();
        match (predicate, left) {
            // sle
            (3, Some(1)) if loop_of(right) == Some(0) => more.causal = true,
            // slt
            (2, Some(axis @ 0..=1)) => {
                let slot = &mut more.lengths[axis as usize];
                (slot.is_none() && around(s, right, outer)).then_some(())?;
                *slot = Some(right);
            }
            _ => return None,
        }
        Some(more)
    }
}

fn constant(v: Value) -> Option<f64> {
    v.def().filter(|d| d.is("arith.constant"))?.attr("value")?.as_f64()
}

/// Whether a value of a body depends only on the first two outer loops and on loads indexed by
/// them.
fn around(s: &Stage, v: Value, outer: usize) -> bool {
    let Body::Block(block) = s.body else { return false };
    let few = outer.min(2);
    match v.block_arg() {
        Some((b, i)) if b == block => {
            s.inputs.get(i).is_some_and(|a| (few..s.extents.len()).all(|d| !a.at.uses(d)))
        }
        Some(_) => true,
        None => v.def().is_some_and(|op| match op {
            op if op.block() != Some(block) => true,
            op if op.is("linalg.index") => {
                op.attr("dim").and_then(Attr::as_i64).is_some_and(|d| (d as usize) < few)
            }
            op => op.regions().is_empty() && op.operands().into_iter().all(|v| around(s, v, outer)),
        }),
    }
}

impl Plan {
    /// A plan without nests: no intermediate of an attention has memory.
    pub fn whole(k: &Kernel) -> Plan {
        let passed = k.buffers.iter().map(|b| b.role == Role::Temporary).collect();
        Plan { nests: vec![], dependent: false, rows: 0, passed }
    }
}

impl Attention {
    /// Matches a kernel as an attention.
    pub fn of(k: &Kernel) -> Option<Attention> {
        let about = k.func.parent()?.attr("kiln.kernel")?;
        about.entry("kind").and_then(Attr::as_string).filter(|kind| kind == "attention")?;
        let (main, more) = k.stages.split_at_checked(7)?;
        let [scores, seen, max, weights, sum, product, result] = main else { return None };
        let loops = seen.extents.len();
        let outer = loops.checked_sub(2)?;
        let last = |s: &Stage, n: usize| {
            s.extents.len() == n && s.reduction.iter().position(|r| *r) == Some(n - 1)
        };
        let all = |s: &Stage| s.extents.len() == loops && !s.reduction.contains(&true);
        let shapes = last(scores, loops + 1)
            && all(seen)
            && last(max, loops)
            && all(weights)
            && last(sum, loops);
        if !shapes || !last(product, loops + 1) || !all(result) {
            return None;
        }
        let contracts = |s: &Stage| {
            let combine = s.outputs.first()?.combine.filter(|c| c.op.is("arith.addf"))?;
            combine
                .other
                .def()
                .filter(|p| p.is("arith.mulf") && s.inputs.len() >= 2 && s.captured.is_empty())
        };
        let reads = |s: &Stage, from: &Stage| {
            s.inputs.iter().any(|a| from.outputs.iter().any(|o| o.access == *a))
        };
        let chain = reads(seen, scores)
            && reads(max, seen)
            && reads(weights, seen)
            && reads(weights, max)
            && reads(sum, weights);
        let ends = product.inputs.first()?.buffer == weights.outputs.first()?.access.buffer
            && reads(result, product)
            && reads(result, sum);
        let plain = [max, weights, sum, result]
            .iter()
            .all(|s| s.captured.is_empty() && s.indexed.is_empty() && s.outputs.len() == 1);
        if !(chain && ends && plain) || contracts(scores).is_none() || contracts(product).is_none()
        {
            return None;
        }
        let lse = match more {
            [] => None,
            [s] if s.extents.len() == outer + 1
                && reads(s, sum)
                && reads(s, max)
                && s.captured.is_empty()
                && s.outputs.len() == 1 =>
            {
                Some(7)
            }
            _ => return None,
        };
        let size = |s: &Stage, d: usize| s.extents.get(d)?.known().filter(|n| *n > 0);
        Some(Attention {
            scores: 0,
            seen: 1,
            max: 2,
            weights: 3,
            sum: 4,
            product: 5,
            result: 6,
            lse,
            outer,
            causal: seen.op.attr(CAUSAL).is_some(),
            depth: size(scores, loops)?,
            columns: size(result, outer + 1)?,
            limits: Limits::of(seen, outer)?,
        })
    }
    /// Extents: of the outer loops, of queries, of keys.
    pub fn sizes<'a>(&self, k: &'a Kernel) -> Option<(&'a [Poly], &'a Poly, &'a Poly)> {
        let extents = &k.stages.get(self.seen)?.extents;
        Some((extents.get(..self.outer)?, extents.get(self.outer)?, extents.get(self.outer + 1)?))
    }
}
