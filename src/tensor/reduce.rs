//! Reductions, statistics, scans, sorts.
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
    /// The sum over dimensions (`..` for all), which vanish or stay with size 1. Sums of integers
    /// are in i64.
    sum "aten.sum.dim_IntList",
    /// The product; of integers in i64.
    prod "aten.prod.default",
    /// The greatest element; NaN wins.
    amax "aten.amax.default",
    /// The least element; NaN wins.
    amin "aten.amin.default",
    /// Whether one element is nonzero.
    any "aten.any.dims",
    /// Whether all elements are nonzero.
    all "aten.all.dim",
    /// ln(sum of e^x), without overflow.
    logsumexp "aten.logsumexp.default",
}

impl Tensor {
    /// The mean. Error: of integers; convert first.
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
    /// The variance with divisor n - `correction` (1 for the unbiased one).
    #[track_caller]
    pub fn var(&self, dims: impl Axes, correction: f64, keepdim: bool) -> Tensor {
        let args = [
            ("dim", dims.axes().into()),
            ("correction", correction.into()),
            ("keepdim", keepdim.into()),
        ];
        self.call("var", "aten.var.correction", args)
    }
    /// The root of [`Tensor::var`].
    #[track_caller]
    pub fn std(&self, dims: impl Axes, correction: f64, keepdim: bool) -> Tensor {
        let args = [
            ("dim", dims.axes().into()),
            ("correction", correction.into()),
            ("keepdim", keepdim.into()),
        ];
        self.call("std", "aten.std.correction", args)
    }
    /// The position of the greatest element along a dimension; without one, in row-major order of
    /// all.
    #[track_caller]
    pub fn argmax(&self, dim: Option<i64>, keepdim: bool) -> Tensor {
        self.call(
            "argmax",
            "aten.argmax.default",
            [("dim", Arg::optional(dim)), ("keepdim", keepdim.into())],
        )
    }
    /// As [`Tensor::argmax`], of the least.
    #[track_caller]
    pub fn argmin(&self, dim: Option<i64>, keepdim: bool) -> Tensor {
        self.call(
            "argmin",
            "aten.argmin.default",
            [("dim", Arg::optional(dim)), ("keepdim", keepdim.into())],
        )
    }
    /// The greatest elements along a dimension, and their positions.
    #[track_caller]
    pub fn max_dim(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        let [v, i] = self.call_many(
            "max",
            "aten.max.dim",
            [("dim", dim.into()), ("keepdim", keepdim.into())],
        );
        (v, i)
    }
    /// The least elements along a dimension, and their positions.
    #[track_caller]
    pub fn min_dim(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        let [v, i] = self.call_many(
            "min",
            "aten.min.dim",
            [("dim", dim.into()), ("keepdim", keepdim.into())],
        );
        (v, i)
    }
    /// Sums of all elements up to each; of integers in i64.
    #[track_caller]
    pub fn cumsum(&self, dim: i64) -> Tensor {
        self.call("cumsum", "aten.cumsum.default", [("dim", dim.into())])
    }
    /// Products of all elements up to each; of integers in i64.
    #[track_caller]
    pub fn cumprod(&self, dim: i64) -> Tensor {
        self.call("cumprod", "aten.cumprod.default", [("dim", dim.into())])
    }
    /// The `k` greatest (or least) elements along a dimension, in order, and their positions.
    #[track_caller]
    pub fn topk(&self, k: i64, dim: i64, largest: bool) -> (Tensor, Tensor) {
        let [v, i] = self.call_many(
            "topk",
            "aten.topk.default",
            [("k", k.into()), ("dim", dim.into()), ("largest", largest.into())],
        );
        (v, i)
    }
    /// Sorted along a dimension, equal elements in their order, and where each was.
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
