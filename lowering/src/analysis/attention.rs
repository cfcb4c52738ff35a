//! The stages of an attention kernel, as `kiln.structured.attention` states them.
use crate::analysis::{generalize::AttentionNests, *};
use kiln_dialects::ir::Value;

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
    /// Head dimension of queries and keys.
    pub depth: i64,
    /// Head dimension of values.
    pub columns: i64,
    /// Positional masks: causal, sequence lengths.
    pub limits: Limits,
}

/// Positions whose masked scores are -inf.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The scores without these limits, a value of the masked scores' body.
    pub root: Value,
    /// Whether query i attends to keys j <= i only.
    pub causal: bool,
    /// Sequence lengths of queries and of keys: integers of that body that depend on the first two
    /// loops only.
    pub lengths: [Option<Value>; 2],
}

impl NestPlan {
    /// A plan without nests: no intermediate of an attention has memory.
    pub fn without_nests(k: &Kernel) -> NestPlan {
        let passed = k.buffers.iter().map(|b| b.role == Role::Temporary).collect();
        NestPlan { nests: vec![], dependent: false, rows: 0, forwarded: passed }
    }
}

impl Attention {
    /// The attention of a kernel whose stages are these nests and no others, with known head
    /// dimensions.
    pub(crate) fn of(k: &Kernel, nests: &AttentionNests) -> Option<Attention> {
        let own = k.stages.len() == nests.ops.len()
            && k.stages.iter().zip(&nests.ops).all(|(s, op)| s.op == *op);
        let plain = |i: usize| k.stages[i].captured.is_empty() && k.stages[i].inputs.len() >= 2;
        if !own || !plain(0) || !plain(5) {
            return None;
        }
        let size = |s: usize, d: usize| k.stages[s].extents.get(d)?.known().filter(|n| *n > 0);
        Some(Attention {
            scores: 0,
            seen: 1,
            max: 2,
            weights: 3,
            sum: 4,
            product: 5,
            result: 6,
            lse: (nests.ops.len() == 8).then_some(7),
            outer: nests.outer,
            depth: size(0, nests.outer + 2)?,
            columns: size(6, nests.outer + 1)?,
            limits: Limits { root: nests.unlimited, causal: nests.causal, lengths: nests.lengths },
        })
    }
    /// Extents: of the outer loops, of queries, of keys.
    pub fn sizes<'a>(&self, k: &'a Kernel) -> Option<(&'a [Poly], &'a Poly, &'a Poly)> {
        let extents = &k.stages.get(self.seen)?.extents;
        Some((extents.get(..self.outer)?, extents.get(self.outer)?, extents.get(self.outer + 1)?))
    }
}
