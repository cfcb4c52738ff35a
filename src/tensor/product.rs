//! Matrix products and attention.
use super::{Graph, Tensor, arg::Arg};
use std::panic::Location;

/// Options of [`Tensor::scaled_dot_product_attention`].
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// A bool mask (true: attend), or a bias added to the scores. Broadcasts to [..., queries,
    /// keys].
    pub mask: Option<Tensor>,
    /// Causal mask: query i attends to keys 0 to i.
    pub causal: bool,
    /// Scale of the scores; 1 / sqrt(head size) by default.
    pub scale: Option<f64>,
}

impl Tensor {
    /// Matrix product over the last two dimensions; leading dimensions broadcast. A vector is a row
    /// on the left and a column on the right. No type promotion: both have one dtype.
    #[track_caller]
    pub fn matmul(&self, other: impl Into<Tensor>) -> Tensor {
        self.call("matmul", "aten.matmul.default", [("other", Arg::tensor(other))])
    }
    /// Batched matrix product of [B, M, K] and [B, K, N]. Error: a rank other than 3, or batch
    /// sizes differ.
    #[track_caller]
    pub fn bmm(&self, other: impl Into<Tensor>) -> Tensor {
        let other = other.into();
        for t in [self, &other] {
            match t.rank() {
                Ok(n) if n != 3 => return t.refuse("bmm", format!("wants 3 dimensions, has {n}")),
                _ => {}
            }
        }
        let (a, b) = (self.size(0), other.size(0));
        match (a.known(), b.known()) {
            (Some(x), Some(y)) if x != y => self.graph().refuse(
                Location::caller(),
                "bmm",
                format!("has batches of {x} and {y}"),
                &[self.clone(), other],
            ),
            _ => self.call("bmm", "aten.bmm.default", [("mat2", Arg::tensor(other))]),
        }
    }
    /// x @ weight^T + bias: weight is `[N, K]`, bias `[N]`.
    #[track_caller]
    pub fn linear(&self, weight: impl Into<Tensor>, bias: Option<Tensor>) -> Tensor {
        let args = vec![
            ("input", Arg::tensor(self)),
            ("weight", Arg::tensor(weight)),
            ("bias", Arg::from(bias)),
        ];
        let [r] = super::emit::exactly(Location::caller(), "linear", "aten.linear.default", args);
        r
    }
    /// softmax(scale q k^T + mask) v; this tensor holds the queries, [..., heads, queries, size].
    /// The number of query heads may be a multiple of the key heads (grouped-query attention).
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        key: impl Into<Tensor>,
        value: impl Into<Tensor>,
        options: Attention,
    ) -> Tensor {
        let args = vec![
            ("query", Arg::tensor(self)),
            ("key", Arg::tensor(key)),
            ("value", Arg::tensor(value)),
            ("attn_mask", options.mask.into()),
            ("is_causal", options.causal.into()),
            ("scale", Arg::optional(options.scale)),
        ];
        let [r] = super::emit::exactly(
            Location::caller(),
            "scaled_dot_product_attention",
            "aten.scaled_dot_product_attention.default",
            args,
        );
        r
    }
}

impl Graph {
    /// Einstein summation of one or more tensors, such as `"bij,bjk->bik"`; no ellipsis, no
    /// diagonals.
    #[track_caller]
    pub fn einsum(&self, equation: &str, tensors: &[Tensor]) -> Tensor {
        let args = vec![("equation", equation.into()), ("tensors", Arg::from(tensors))];
        let [r] = self.exactly(Location::caller(), "einsum", "aten.einsum.default", args);
        r
    }
}
