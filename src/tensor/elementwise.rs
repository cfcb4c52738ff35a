//! Elementwise methods: math functions, activations, comparisons, selection, conversion.
use super::{Operand, Tensor, arg::Arg};
use kiln_dialects::value::DType;
use std::panic::Location;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $target:literal),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                self.call(stringify!($name), $target, [])
            }
        )* }
    };
}
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $target:literal $other:literal),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl Into<Operand>) -> Tensor {
                self.call(stringify!($name), $target, [($other, Arg::Operand(other.into()))])
            }
        )* }
    };
}

unary! {
    /// e^x. Here, and in all functions without integer results, integers and bools are converted to
    /// f32.
    exp "aten.exp.default",
    /// 2^x.
    exp2 "aten.exp2.default",
    /// e^x - 1, accurate near 0.
    expm1 "aten.expm1.default",
    /// The natural logarithm.
    log "aten.log.default",
    /// ln(1 + x), accurate near 0.
    log1p "aten.log1p.default",
    /// The logarithm to base 2.
    log2 "aten.log2.default",
    /// The logarithm to base 10.
    log10 "aten.log10.default",
    /// The square root.
    sqrt "aten.sqrt.default",
    /// 1 / sqrt(x).
    rsqrt "aten.rsqrt.default",
    /// 1 / x.
    reciprocal "aten.reciprocal.default",
    /// The sine.
    sin "aten.sin.default",
    /// The cosine.
    cos "aten.cos.default",
    /// The tangent.
    tan "aten.tan.default",
    /// The inverse sine.
    asin "aten.asin.default",
    /// The inverse cosine.
    acos "aten.acos.default",
    /// The inverse tangent.
    atan "aten.atan.default",
    /// The hyperbolic sine.
    sinh "aten.sinh.default",
    /// The hyperbolic cosine.
    cosh "aten.cosh.default",
    /// The hyperbolic tangent.
    tanh "aten.tanh.default",
    /// The error function.
    erf "aten.erf.default",
    /// Whether it is neither infinite nor NaN, as bool.
    isfinite "aten.isfinite.default",
    /// Whether it is NaN.
    isnan "aten.isnan.default",
    /// Whether it is infinite.
    isinf "aten.isinf.default",
    /// The absolute value.
    abs "aten.abs.default",
    /// -1, 0 or 1.
    sign "aten.sign.default",
    /// Rounded up.
    ceil "aten.ceil.default",
    /// Rounded down.
    floor "aten.floor.default",
    /// Rounded to the nearest integer, ties to even.
    round "aten.round.default",
    /// Rounded towards 0.
    trunc "aten.trunc.default",
    /// x * x.
    square "aten.square.default",
    /// Whether it is 0 or false.
    logical_not "aten.logical_not.default",
    /// max(x, 0).
    relu "aten.relu.default",
    /// min(max(x, 0), 6).
    relu6 "aten.relu6.default",
    /// 1 / (1 + e^-x).
    sigmoid "aten.sigmoid.default",
    /// x * sigmoid(x).
    silu "aten.silu.default",
    /// min(max(x + 3, 0), 6) / 6.
    hardsigmoid "aten.hardsigmoid.default",
    /// x * hardsigmoid(x).
    hardswish "aten.hardswish.default",
    /// x * tanh(softplus(x)).
    mish "aten.mish.default",
    /// ln(1 + e^x), and x above 20.
    softplus "aten.softplus.default",
}

binary! {
    /// Whether both are equal, as bool.
    eq "aten.eq.Tensor" "other",
    /// Whether they differ.
    ne "aten.ne.Tensor" "other",
    /// Whether this one is less.
    lt "aten.lt.Tensor" "other",
    /// Whether this one is less or equal.
    le "aten.le.Tensor" "other",
    /// Whether this one is greater.
    gt "aten.gt.Tensor" "other",
    /// Whether this one is greater or equal.
    ge "aten.ge.Tensor" "other",
    /// Whether both are nonzero.
    logical_and "aten.logical_and.default" "other",
    /// Whether one of them is nonzero.
    logical_or "aten.logical_or.default" "other",
    /// Whether exactly one of them is nonzero.
    logical_xor "aten.logical_xor.default" "other",
    /// The maximum; NaN if either is NaN.
    maximum "aten.maximum.default" "other",
    /// The minimum; NaN if either is NaN.
    minimum "aten.minimum.default" "other",
    /// The quotient, rounded down.
    floor_divide "aten.floor_divide.default" "other",
    /// The remainder with the sign of the dividend, as Rust's `%`; the operator `%` on tensors is
    /// Python's.
    fmod "aten.fmod.Tensor" "other",
    /// The angle of the point (other, self).
    atan2 "aten.atan2.default" "other",
}

impl Tensor {
    /// x^exponent. Error: a negative integer exponent of integers.
    #[track_caller]
    pub fn pow(&self, exponent: impl Into<Operand>) -> Tensor {
        let exponent = exponent.into();
        let integers = self.dtype().is_ok_and(|d| !d.is_float());
        let exponent = match exponent {
            // Whether it is negative must be known statically.
            Operand::Number(s) if integers && !s.is_float() => {
                s.specialised(Location::caller(), "the exponent of integers is")
            }
            other => other,
        };
        match exponent {
            Operand::Int(n) if n < 0 && integers => {
                self.refuse("pow", format!("of integers has the exponent {n}, which is negative"))
            }
            _ => self.call("pow", "aten.pow.Tensor_Tensor", [("exponent", Arg::Operand(exponent))]),
        }
    }
    /// x (1 + erf(x / sqrt 2)) / 2.
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        self.call("gelu", "aten.gelu.default", [])
    }
    /// [`Tensor::gelu`], tanh approximation: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        self.call("gelu", "aten.gelu.default", [("approximate", "tanh".into())])
    }
    /// x where it is positive, else `slope` x.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Tensor {
        self.call("leaky_relu", "aten.leaky_relu.default", [("negative_slope", slope.into())])
    }
    /// x where it is positive, else `alpha` (e^x - 1).
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Tensor {
        self.call("elu", "aten.elu.default", [("alpha", alpha.into())])
    }
    /// min(max(x, min), max), with type promotion.
    #[track_caller]
    pub fn clamp(&self, min: impl Into<Operand>, max: impl Into<Operand>) -> Tensor {
        self.call(
            "clamp",
            "aten.clamp.default",
            [("min", Arg::Operand(min.into())), ("max", Arg::Operand(max.into()))],
        )
    }
    /// max(x, min).
    #[track_caller]
    pub fn clamp_min(&self, min: impl Into<Operand>) -> Tensor {
        self.call("clamp_min", "aten.clamp.default", [("min", Arg::Operand(min.into()))])
    }
    /// min(x, max).
    #[track_caller]
    pub fn clamp_max(&self, max: impl Into<Operand>) -> Tensor {
        self.call("clamp_max", "aten.clamp.default", [("max", Arg::Operand(max.into()))])
    }
    /// `torch.where(self, on_true, on_false)`: this tensor is the condition.
    #[track_caller]
    pub fn where_(&self, on_true: impl Into<Operand>, on_false: impl Into<Operand>) -> Tensor {
        let args = vec![
            ("condition", Arg::tensor(self)),
            ("self", Arg::Operand(on_true.into())),
            ("other", Arg::Operand(on_false.into())),
        ];
        let [r] = super::emit::exactly(Location::caller(), "where", "aten.where.self", args);
        r
    }
    /// `value`, in this tensor's dtype, where `mask` is true.
    #[track_caller]
    pub fn masked_fill(&self, mask: impl Into<Tensor>, value: impl Into<Operand>) -> Tensor {
        self.call(
            "masked_fill",
            "aten.masked_fill.Scalar",
            [("mask", Arg::tensor(mask)), ("value", Arg::Operand(value.into()))],
        )
    }
    /// Converts to another dtype.
    #[track_caller]
    pub fn to(&self, dtype: DType) -> Tensor {
        self.call("to", "aten.to.dtype", [("dtype", dtype.into())])
    }
    /// Dropout in training mode: `x / (1 - p)` with probability 1 - p, else 0. The mask is a function
    /// of `key`, `i64 [2]`: a seed and the number of a stream. For the formula see `kiln.dropout`.
    /// Error: a probability outside of 0 to 1, or another key.
    #[track_caller]
    pub fn dropout_by(&self, key: impl Into<Tensor>, p: f64) -> Tensor {
        let args = vec![("input", Arg::tensor(self)), ("key", Arg::tensor(key)), ("p", p.into())];
        let [r] = super::emit::exactly(Location::caller(), "dropout", "kiln.dropout", args);
        r
    }
    /// Dropout in inference mode: the identity. Error: a probability outside of 0 to 1.
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Tensor {
        if !(0.0..=1.0).contains(&p) {
            return self.refuse("dropout", format!("has probability {p}, which is not in 0 to 1"));
        }
        let args = vec![("input", Arg::tensor(self)), ("p", p.into()), ("train", false.into())];
        let [r] = super::emit::exactly(Location::caller(), "dropout", "aten.dropout.default", args);
        r
    }
}
