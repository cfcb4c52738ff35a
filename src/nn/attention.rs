//! Self-attention, with the weights of `torch.nn.MultiheadAttention(batch_first=True)`.
use super::{Init, Linear, Module, Parameter, Scope, linear::bound};
use crate::tensor::{self, Tensor};
use std::panic::Location;

/// Multi-head self-attention over [B, T, E]; the result has the same shape.
#[derive(Debug)]
pub struct Attention {
    in_weight: Parameter,
    in_bias: Parameter,
    out: Linear,
    heads: usize,
    /// Whether to apply a causal mask; false by default.
    pub causal: bool,
}

impl Attention {
    /// Embedding size `size`, split into `heads` heads of `size / heads`.
    pub fn new(scope: &Scope, size: usize, heads: usize) -> Attention {
        Attention {
            in_weight: scope.parameter(
                "in_proj_weight",
                &[size.saturating_mul(3), size],
                bound(size),
            ),
            in_bias: scope.parameter(
                "in_proj_bias",
                &[size.saturating_mul(3)],
                Init::Constant(0.0),
            ),
            out: Linear::new(&scope.child("out_proj"), size, size),
            heads,
            causal: false,
        }
    }
    /// Enables the causal mask.
    pub fn causal(self) -> Attention {
        Attention { causal: true, ..self }
    }
}

impl Module for Attention {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let g = x.graph();
        let _frame = g.frame(Location::caller());
        let (batch, length) = (x.size(0), x.size(1));
        let all = x.linear(self.in_weight.on(&g), Some(self.in_bias.on(&g)));
        let [q, k, v] = all
            .chunk(-1)
            .map(|t| t.reshape([batch, length, self.heads.into(), (-1i64).into()]).transpose(1, 2));
        let options = tensor::Attention { causal: self.causal, ..Default::default() };
        let r = q.scaled_dot_product_attention(k, v, options).transpose(1, 2).flatten(2, 3);
        self.out.forward(&r)
    }
    fn parameters(&self) -> Vec<&Parameter> {
        [vec![&self.in_weight, &self.in_bias], self.out.parameters()].concat()
    }
}
