//! Matrix products and attention.
use super::{Graph, Tensor, arg::Arg};
use std::panic::Location;

/// What [`Tensor::scaled_dot_product_attention`] may be given.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// Truth values (true: seen), or numbers that are added to the scores; of a shape that
    /// broadcasts to [..., queries, keys].
    pub mask: Option<Tensor>,
    /// Query i sees keys up to i.
    pub causal: bool,
    /// What scores are multiplied by; 1 / sqrt(head size) if absent.
    pub scale: Option<f64>,
}

impl Tensor {
    /// The matrix product of the last two dimensions; leading dimensions broadcast; vectors are
    /// rows on the left and columns on the right. No promotion: both have one dtype.
    #[track_caller]
    pub fn matmul(&self, other: impl Into<Tensor>) -> Tensor {
        self.call("matmul", "aten.matmul.default", [("other", Arg::tensor(other))])
    }
    /// The products of two batches of matrices. Error: another rank than 3, batches of different
    /// sizes.
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
    /// softmax(scale q k^T + mask) v; this tensor is the queries, [..., heads, queries, size].
    /// Query heads may be a multiple of key heads.
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
    /// Einstein's sums of one or more tensors, such as `"bij,bjk->bik"`; no ellipsis, no diagonals.
    #[track_caller]
    pub fn einsum(&self, equation: &str, tensors: &[Tensor]) -> Tensor {
        let args = vec![("equation", equation.into()), ("tensors", Arg::from(tensors))];
        let [r] = self.exactly(Location::caller(), "einsum", "aten.einsum.default", args);
        r
    }
}
