//! Reductions, statistics, scans and sorts.
use super::{Axes, Tensor, arg::Arg};

macro_rules! reduce {
    ($($(#[$doc:meta])* $name:ident $target:literal),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, dims: impl Axes, keepdim: bool) -> Tensor {
                self.call(stringify!($name), $target, [("dim", dims.axes().into()), ("keepdim", keepdim.into())])
            }
        )* }
    };
}

reduce! {
    /// Sum over dimensions (`..` for all), which are removed or kept as size 1. Integers are summed
    /// in i64.
    sum "aten.sum.dim_IntList",
    /// Product; integers in i64.
    prod "aten.prod.default",
    /// Maximum; NaN propagates.
    amax "aten.amax.default",
    /// Minimum; NaN propagates.
    amin "aten.amin.default",
    /// Whether any element is nonzero.
    any "aten.any.dims",
    /// Whether all elements are nonzero.
    all "aten.all.dim",
    /// ln(sum of e^x), numerically stable.
    logsumexp "aten.logsumexp.default",
}

impl Tensor {
    /// Mean. Error: an integer dtype; convert first.
    #[track_caller]
    pub fn mean(&self, dims: impl Axes, keepdim: bool) -> Tensor {
        match self.dtype() {
            Ok(d) if !d.is_float() => self.refuse("mean", format!("wants floats, not {d}")),
            _ => self.call(
                "mean",
                "aten.mean.dim",
                [("dim", dims.axes().into()), ("keepdim", keepdim.into())],
            ),
        }
    }
    /// Variance with divisor n - `correction` (1: unbiased).
    #[track_caller]
    pub fn var(&self, dims: impl Axes, correction: f64, keepdim: bool) -> Tensor {
        let args = [
            ("dim", dims.axes().into()),
            ("correction", correction.into()),
            ("keepdim", keepdim.into()),
        ];
        self.call("var", "aten.var.correction", args)
    }
    /// Standard deviation: the root of [`Tensor::var`].
    #[track_caller]
    pub fn std(&self, dims: impl Axes, correction: f64, keepdim: bool) -> Tensor {
        let args = [
            ("dim", dims.axes().into()),
            ("correction", correction.into()),
            ("keepdim", keepdim.into()),
        ];
        self.call("std", "aten.std.correction", args)
    }
    /// Index of the maximum along a dimension; without one, of the flattened tensor.
    #[track_caller]
    pub fn argmax(&self, dim: Option<i64>, keepdim: bool) -> Tensor {
        self.call(
            "argmax",
            "aten.argmax.default",
            [("dim", Arg::optional(dim)), ("keepdim", keepdim.into())],
        )
    }
    /// As [`Tensor::argmax`], of the minimum.
    #[track_caller]
    pub fn argmin(&self, dim: Option<i64>, keepdim: bool) -> Tensor {
        self.call(
            "argmin",
            "aten.argmin.default",
            [("dim", Arg::optional(dim)), ("keepdim", keepdim.into())],
        )
    }
    /// Maximum along a dimension, and its index.
    #[track_caller]
    pub fn max_dim(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        let [v, i] = self.call_many(
            "max",
            "aten.max.dim",
            [("dim", dim.into()), ("keepdim", keepdim.into())],
        );
        (v, i)
    }
    /// Minimum along a dimension, and its index.
    #[track_caller]
    pub fn min_dim(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        let [v, i] = self.call_many(
            "min",
            "aten.min.dim",
            [("dim", dim.into()), ("keepdim", keepdim.into())],
        );
        (v, i)
    }
    /// Cumulative sum (inclusive); integers in i64.
    #[track_caller]
    pub fn cumsum(&self, dim: i64) -> Tensor {
        self.call("cumsum", "aten.cumsum.default", [("dim", dim.into())])
    }
    /// Cumulative product (inclusive); integers in i64.
    #[track_caller]
    pub fn cumprod(&self, dim: i64) -> Tensor {
        self.call("cumprod", "aten.cumprod.default", [("dim", dim.into())])
    }
    /// The `k` largest (or smallest) elements along a dimension, sorted, and their indices.
    #[track_caller]
    pub fn topk(&self, k: i64, dim: i64, largest: bool) -> (Tensor, Tensor) {
        let [v, i] = self.call_many(
            "topk",
            "aten.topk.default",
            [("k", k.into()), ("dim", dim.into()), ("largest", largest.into())],
        );
        (v, i)
    }
    /// Stable sort along a dimension, and the original indices.
    #[track_caller]
    pub fn sort(&self, dim: i64, descending: bool) -> (Tensor, Tensor) {
        let [v, i] = self.call_many(
            "sort",
            "aten.sort.default",
            [("dim", dim.into()), ("descending", descending.into())],
        );
        (v, i)
    }
}
