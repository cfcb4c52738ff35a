//! Elementwise overloads.
use super::{Outcome, Row, arithmetic::*, tools::*};
use kiln_dialects::{ops::*, value::DType};

/// A row for a float function; integers are converted to the default float dtype.
macro_rules! float_unary {
    ($($name:literal => $kind:ident),* $(,)?) => { [$( Row { name: $name, arguments: "self", build: |cx, a| {
        let x = cx.floating(a, "self")?;
        let y = cx.unary(UnaryKind::$kind, x)?;
        cx.one(y)
    } } ),*] };
}
/// A row that keeps the dtype.
macro_rules! unary_row {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "self",
            build: |cx, a| {
                let x = cx.tensor(a, "self")?;
                let y = cx.unary(UnaryKind::$kind, x)?;
                cx.one(y)
            },
        }
    };
}
/// A row that rounds floats and leaves integers as they are.
macro_rules! rounding_row {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "self",
            build: |cx, a| {
                let x = cx.tensor(a, "self")?;
                let y = if dtype_of(x)?.is_float() { cx.unary(UnaryKind::$kind, x)? } else { x };
                cx.one(y)
            },
        }
    };
}
/// A row for a composite float op.
macro_rules! activation {
    ($name:literal, $node:ident) => {
        Row {
            name: $name,
            arguments: "self",
            build: |cx, a| {
                let input = cx.floating(a, "self")?;
                let y = cx.b.add(&$node { input })?;
                cx.one(y)
            },
        }
    };
}
macro_rules! binary_row {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "self, other",
            build: |cx, a| {
                let (x, y) = cx.promoted(a, "self", "other")?;
                let r = cx.binary(BinaryKind::$kind, x, y)?;
                cx.one(r)
            },
        }
    };
}
macro_rules! compare_row {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "self, other",
            build: |cx, a| {
                let (x, y) = cx.promoted(a, "self", "other")?;
                let r = cx.compare(CompareKind::$kind, x, y)?;
                cx.one(r)
            },
        }
    };
}
macro_rules! logical_row {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "self, other",
            build: |cx, a| {
                let (x, y) =
                    (cx.operand(a, "self", DType::I1)?, cx.operand(a, "other", DType::I1)?);
                let r = cx.binary(BinaryKind::$kind, x, y)?;
                cx.one(r)
            },
        }
    };
}

const FLOATS: [Row; 21] = float_unary! {
    "aten.exp.default" => Exp, "aten.exp2.default" => Exp2, "aten.expm1.default" => Expm1, "aten.log.default" => Log, "aten.log1p.default" => Log1p,
    "aten.log2.default" => Log2, "aten.sqrt.default" => Sqrt, "aten.rsqrt.default" => Rsqrt, "aten.sin.default" => Sin, "aten.cos.default" => Cos,
    "aten.tan.default" => Tan, "aten.asin.default" => Asin, "aten.acos.default" => Acos, "aten.atan.default" => Atan, "aten.sinh.default" => Sinh,
    "aten.cosh.default" => Cosh, "aten.tanh.default" => Tanh, "aten.erf.default" => Erf, "aten.isfinite.default" => IsFinite, "aten.isnan.default" => IsNan,
    "aten.special_erf.default" => Erf,
};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &rows();

const fn rows() -> [Row; FLOATS.len() + OTHERS.len()] {
    let mut all = [const { Row { name: "", arguments: "", build: |_, _| Ok(Outcome::Many(vec![])) } };
        FLOATS.len() + OTHERS.len()];
    let mut i = 0;
    while i < FLOATS.len() {
        all[i] =
            Row { name: FLOATS[i].name, arguments: FLOATS[i].arguments, build: FLOATS[i].build };
        i += 1;
    }
    let mut j = 0;
    while j < OTHERS.len() {
        all[i + j] =
            Row { name: OTHERS[j].name, arguments: OTHERS[j].arguments, build: OTHERS[j].build };
        j += 1;
    }
    all
}

const OTHERS: &[Row] = &[
    rounding_row!("aten.ceil.default", Ceil),
    rounding_row!("aten.floor.default", Floor),
    rounding_row!("aten.round.default", RoundEven),
    rounding_row!("aten.trunc.default", Trunc),
    rounding_row!("aten.fix.default", Trunc),
    unary_row!("aten.neg.default", Neg),
    unary_row!("aten.abs.default", Abs),
    Row {
        name: "aten.sign.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let d = dtype_of(x)?;
            if d == DType::I1 {
                return cx.one(x);
            }
            let mut y = cx.unary(UnaryKind::Sign, x)?;
            if d.is_float() {
                // That of NaN is 0 in PyTorch, and NaN in the dialect.
                let (is_number, zero) = (cx.compare(CompareKind::Eq, x, x)?, cx.number(d, 0.0)?);
                y = cx.select(is_number, y, zero)?;
            }
            cx.one(y)
        },
    },
    unary_row!("aten.bitwise_not.default", Not),
    activation!("aten.sigmoid.default", Sigmoid),
    activation!("aten.silu.default", Silu),
    activation!("aten.hardsigmoid.default", Hardsigmoid),
    activation!("aten.hardswish.default", Hardswish),
    Row { name: "aten.mul.Tensor", arguments: "self, other", build: mul },
    Row { name: "aten.mul.Scalar", arguments: "self, other", build: mul },
    binary_row!("aten.maximum.default", Max),
    binary_row!("aten.minimum.default", Min),
    binary_row!("aten.fmod.Tensor", Rem),
    binary_row!("aten.fmod.Scalar", Rem),
    Row {
        name: "aten.floor_divide.default",
        arguments: "self, other",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "self", "other")?;
            quotient(cx, a, true, x, y)
        },
    },
    binary_row!("aten.bitwise_and.Tensor", And),
    binary_row!("aten.bitwise_and.Scalar", And),
    binary_row!("aten.bitwise_or.Tensor", Or),
    binary_row!("aten.bitwise_or.Scalar", Or),
    binary_row!("aten.bitwise_xor.Tensor", Xor),
    binary_row!("aten.__and__.Tensor", And),
    binary_row!("aten.__or__.Tensor", Or),
    binary_row!("aten.__lshift__.Scalar", Shl),
    binary_row!("aten.__rshift__.Scalar", Shr),
    compare_row!("aten.eq.Tensor", Eq),
    compare_row!("aten.eq.Scalar", Eq),
    compare_row!("aten.ne.Tensor", Ne),
    compare_row!("aten.ne.Scalar", Ne),
    compare_row!("aten.lt.Tensor", Lt),
    compare_row!("aten.lt.Scalar", Lt),
    compare_row!("aten.le.Tensor", Le),
    compare_row!("aten.le.Scalar", Le),
    compare_row!("aten.gt.Tensor", Gt),
    compare_row!("aten.gt.Scalar", Gt),
    compare_row!("aten.ge.Tensor", Ge),
    compare_row!("aten.ge.Scalar", Ge),
    logical_row!("aten.logical_and.default", And),
    logical_row!("aten.logical_or.default", Or),
    logical_row!("aten.logical_xor.default", Xor),
    Row {
        name: "aten.logical_not.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.operand(a, "self", DType::I1)?;
            let y = cx.unary(UnaryKind::Not, x)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.add.Tensor",
        arguments: "self, other, alpha=1",
        build: |cx, a| scaled(cx, a, BinaryKind::Add),
    },
    Row {
        name: "aten.add.Scalar",
        arguments: "self, other, alpha=1",
        build: |cx, a| scaled(cx, a, BinaryKind::Add),
    },
    Row {
        name: "aten.sub.Tensor",
        arguments: "self, other, alpha=1",
        build: |cx, a| scaled(cx, a, BinaryKind::Sub),
    },
    Row {
        name: "aten.sub.Scalar",
        arguments: "self, other, alpha=1",
        build: |cx, a| scaled(cx, a, BinaryKind::Sub),
    },
    Row {
        name: "aten.rsub.Scalar",
        arguments: "self, other, alpha=1",
        build: |cx, a| {
            let (mut x, y) = cx.promoted(a, "self", "other")?;
            if a.has("alpha") && a.float("alpha", None)? != 1.0 {
                let alpha = cx.operand(a, "alpha", dtype_of(x)?)?;
                x = cx.binary(BinaryKind::Mul, x, alpha)?;
            }
            let r = cx.binary(BinaryKind::Sub, y, x)?;
            cx.one(r)
        },
    },
    Row { name: "aten.div.Tensor", arguments: "self, other", build: true_div },
    Row { name: "aten.div.Scalar", arguments: "self, other", build: true_div },
    Row { name: "aten.div.Tensor_mode", arguments: "self, other, rounding_mode", build: div_mode },
    Row { name: "aten.div.Scalar_mode", arguments: "self, other, rounding_mode", build: div_mode },
    Row { name: "aten.remainder.Tensor", arguments: "self, other", build: remainder },
    Row { name: "aten.remainder.Scalar", arguments: "self, other", build: remainder },
    Row { name: "aten.pow.Tensor_Tensor", arguments: "self, exponent", build: |cx, a| pow(cx, a) },
    Row { name: "aten.pow.Tensor_Scalar", arguments: "self, exponent", build: |cx, a| pow(cx, a) },
    Row { name: "aten.pow.Scalar", arguments: "self, exponent", build: |cx, a| pow(cx, a) },
    Row {
        name: "aten.square.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            // A power, which is i64 of bools.
            let x = if dtype_of(x)? == DType::I1 { cx.convert(x, DType::I64)? } else { x };
            let y = cx.binary(BinaryKind::Mul, x, x)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.reciprocal.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.floating(a, "self")?;
            let one = cx.number(dtype_of(x)?, 1.0)?;
            let y = cx.binary(BinaryKind::Div, one, x)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.atan2.default",
        arguments: "self, other",
        build: |cx, a| {
            let d = default_float(cx.common_dtype(a, &["self", "other"])?);
            let (x, y) = (cx.operand(a, "self", d)?, cx.operand(a, "other", d)?);
            let r = cx.binary(BinaryKind::Atan2, x, y)?;
            cx.one(r)
        },
    },
    Row {
        name: "aten.log10.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.floating(a, "self")?;
            let l = cx.unary(UnaryKind::Log, x)?;
            let c = cx.number(dtype_of(x)?, std::f64::consts::LN_10)?;
            let y = cx.binary(BinaryKind::Div, l, c)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.isinf.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.floating(a, "self")?;
            let m = cx.unary(UnaryKind::Abs, x)?;
            let inf = cx.number(dtype_of(x)?, f64::INFINITY)?;
            let y = cx.compare(CompareKind::Eq, m, inf)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.relu.default",
        arguments: "self",
        build: |cx, a| {
            let input = cx.tensor(a, "self")?;
            let y = match dtype_of(input)?.is_float() {
                true => cx.b.add(&Relu { input })?,
                false => cx.binary(BinaryKind::Max, input, cx.full_like(input, 0.0)?)?,
            };
            cx.one(y)
        },
    },
    Row {
        name: "aten.relu6.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            hardtanh(cx, x, 0.0, 6.0)
        },
    },
    Row {
        name: "aten.hardtanh.default",
        arguments: "self, min_val=-1, max_val=1",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let bound = |name, default| a.float(name, Some(default));
            hardtanh(cx, x, bound("min_val", -1.0)?, bound("max_val", 1.0)?)
        },
    },
    Row {
        name: "aten.leaky_relu.default",
        arguments: "self, negative_slope=0.01",
        build: |cx, a| {
            let x = cx.floating(a, "self")?;
            let slope = cx.number(dtype_of(x)?, a.float("negative_slope", Some(0.01))?)?;
            let low = cx.binary(BinaryKind::Mul, x, slope)?;
            positive_or(cx, x, low)
        },
    },
    Row {
        name: "aten.elu.default",
        arguments: "self, alpha=1, scale=1, input_scale=1",
        build: |cx, a| {
            let x = cx.floating(a, "self")?;
            let d = dtype_of(x)?;
            let number = |cx: &Cx, name| cx.number(d, a.float(name, Some(1.0))?);
            let inner = cx.binary(BinaryKind::Mul, x, number(cx, "input_scale")?)?;
            let grown = cx.binary(
                BinaryKind::Mul,
                cx.unary(UnaryKind::Expm1, inner)?,
                number(cx, "alpha")?,
            )?;
            let (scale, zero) = (number(cx, "scale")?, cx.number(d, 0.0)?);
            let c = cx.compare(CompareKind::Gt, x, zero)?;
            let y = cx.binary(BinaryKind::Mul, cx.select(c, x, grown)?, scale)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.gelu.default",
        arguments: "self, approximate='none'",
        build: |cx, a| {
            let input = cx.floating(a, "self")?;
            let y = cx.b.add(&Gelu { tanh: a.text("approximate", "none")? == "tanh", input })?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.softplus.default",
        arguments: "self, beta=1, threshold=20",
        build: |cx, a| {
            let input = cx.floating(a, "self")?;
            let y = cx.b.add(&Softplus {
                input,
                beta: a.float("beta", Some(1.0))?,
                threshold: a.float("threshold", Some(20.0))?,
            })?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.mish.default",
        arguments: "self",
        build: |cx, a| {
            let input = cx.floating(a, "self")?;
            let s = cx.b.add(&Softplus { input, beta: 1.0, threshold: 20.0 })?;
            let y = cx.binary(BinaryKind::Mul, input, cx.unary(UnaryKind::Tanh, s)?)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.lerp.Scalar",
        arguments: "self, end, weight",
        build: |cx, a| {
            let (x, end) = cx.promoted(a, "self", "end")?;
            let w = cx.number(dtype_of(x)?, a.float("weight", None)?)?;
            let step = cx.binary(BinaryKind::Mul, cx.binary(BinaryKind::Sub, end, x)?, w)?;
            let y = cx.binary(BinaryKind::Add, x, step)?;
            cx.one(y)
        },
    },
    Row {
        name: "aten.addcmul.default",
        arguments: "self, tensor1, tensor2, value=1",
        build: |cx, a| addc(cx, a, BinaryKind::Mul),
    },
    Row {
        name: "aten.addcdiv.default",
        arguments: "self, tensor1, tensor2, value=1",
        build: |cx, a| addc(cx, a, BinaryKind::Div),
    },
];
