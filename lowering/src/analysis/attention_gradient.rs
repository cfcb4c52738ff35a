//! The stages of a kernel of attention's derivatives, as `kiln.structured.attention_gradient` states
//! them.
use crate::analysis::{generalize::AttentionGradientNests, *};

/// The stages of attention's derivatives.
#[derive(Clone, Debug)]
pub struct AttentionGradient {
    /// Scores Q Kᵀ, over `(outer.., query, key, depth)`.
    pub scores: usize,
    /// The weights of keys, over `(outer.., query, key)`; the second input is the log-sum-exp.
    pub weights: usize,
    /// Products of cotangents and values, over `(outer.., query, key, column)`.
    pub products: usize,
    /// Gradients of scores, over `(outer.., query, key)`; the third input is delta.
    pub gradients: usize,
    /// The results: by query over `(outer.., query, depth)`; by key over `(kept.., key, depth)` and
    /// by value over `(kept.., key, column)`.
    pub results: Vec<usize>,
    /// The number of outer loops (batch, heads).
    pub outer: usize,
    /// The outer loops that results have; results by keys are sums over the others.
    pub kept: Vec<usize>,
    /// Head dimension of queries and keys.
    pub depth: i64,
    /// Head dimension of values.
    pub columns: i64,
    /// Whether query i attends to keys j <= i only.
    pub causal: bool,
    /// The factor of a score.
    pub scale: f64,
}

impl AttentionGradient {
    /// The derivatives of a kernel whose stages are these nests and no others, with known head
    /// dimensions.
    pub(crate) fn of(k: &Kernel, nests: &AttentionGradientNests) -> Option<AttentionGradient> {
        let own = k.stages.len() == nests.ops.len()
            && k.stages.iter().zip(&nests.ops).all(|(s, op)| s.op == *op);
        let size = |s: usize, d: usize| k.stages.get(s)?.extents.get(d)?.known().filter(|n| *n > 0);
        own.then_some(())?;
        Some(AttentionGradient {
            scores: 0,
            weights: 1,
            products: 2,
            gradients: 3,
            results: (4..nests.ops.len()).skip(1).step_by(2).collect(),
            outer: nests.outer,
            kept: nests.kept.clone(),
            depth: size(0, nests.outer + 2)?,
            columns: size(2, nests.outer + 2)?,
            causal: nests.causal,
            scale: nests.scale,
        })
    }
    /// Whether the results are those by key and value.
    pub fn by_keys(&self) -> bool {
        self.results.len() == 2
    }
    /// Extents: of the outer loops, of queries, of keys.
    pub fn sizes<'a>(&self, k: &'a Kernel) -> Option<(&'a [Poly], &'a Poly, &'a Poly)> {
        let extents = &k.stages.get(self.weights)?.extents;
        Some((extents.get(..self.outer)?, extents.get(self.outer)?, extents.get(self.outer + 1)?))
    }
}
