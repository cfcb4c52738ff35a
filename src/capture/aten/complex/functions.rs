//! Overloads of complex arguments that are functions of both parts.
use super::super::{find as row_of, formula as real, formula::Term};
use super::{Args, Build, Cx, Outcome, Val, Z, number::formula};
use kiln_dialects::{ir::*, ops::*};
use std::collections::HashMap;

pub(super) fn find(name: &str) -> Option<Build> {
    let name = name.strip_prefix("special_").unwrap_or(name);
    let all = UNARY.iter().chain(BINARY).chain(OTHERS);
    all.into_iter().find(|(known, _)| *known == name).map(|(_, build)| *build)
}

/// A complex function of one number.
macro_rules! one {
    ($($name:literal => |$z:ident| $e:expr),* $(,)?) => {
        &[$(($name, |cx, _, a| {
            let [z] = cx.numbers(a, ["self"])?;
            formula(cx, |f| { let $z = Z::of(f, z); $e })
        })),*]
    };
}
/// A complex function of two numbers.
macro_rules! two {
    ($($name:literal, $other:literal => |$x:ident, $y:ident| $e:expr),* $(,)?) => {
        &[$(($name, |cx, _, a| {
            let [x, y] = cx.numbers(a, ["self", $other])?;
            formula(cx, |f| { let ($x, $y) = (Z::of(f, x), Z::of(f, y)); $e })
        })),*]
    };
}
/// A real function of one number.
macro_rules! real_of {
    (|$z:ident| $e:expr) => {
        |cx, _, a| {
            let [z] = cx.numbers(a, ["self"])?;
            real::formula(cx, |f| {
                let $z = Z::of(f, z);
                $e
            })
        }
    };
}
/// A condition on two numbers.
macro_rules! condition {
    (|$x:ident, $y:ident| $e:expr) => {
        |cx, _, a| {
            let [x, y] = cx.numbers(a, ["self", "other"])?;
            real::formula(cx, |f| {
                let ($x, $y) = (Z::of(f, x), Z::of(f, y));
                $e
            })
        }
    };
}

const UNARY: &[(&str, Build)] = one! {
    "exp.default" => |z| z.exp(),
    "exp2.default" => |z| z.scaled(std::f64::consts::LN_2).exp(),
    // e^z - 1 = expm1(x) cos y - 2 sin(y/2)^2 + i e^x sin y, which does not cancel.
    "expm1.default" => |z| {
        let half = (z.im * 0.5).sin();
        Z { re: z.re.expm1() * z.im.cos() - half * half * 2.0, im: z.re.exp() * z.im.sin() }
    },
    "log.default" => |z| z.ln(),
    "log1p.default" => |z| (z + z.number(1.0, 0.0)).ln(),
    "log2.default" => |z| z.ln().scaled(std::f64::consts::LOG2_E),
    "log10.default" => |z| z.ln().scaled(std::f64::consts::LOG10_E),
    "sqrt.default" => |z| z.sqrt(),
    "rsqrt.default" => |z| z.sqrt().recip(),
    "reciprocal.default" => |z| z.recip(),
    "square.default" => |z| z * z,
    "sinh.default" => |z| z.sinh(),
    "cosh.default" => |z| z.cosh(),
    "tanh.default" => |z| z.tanh(),
    // sin z = -i sinh iz, cos z = cosh iz, tan z = -i tanh iz.
    "sin.default" => |z| -z.turned().sinh().turned(),
    "cos.default" => |z| z.turned().cosh(),
    "tan.default" => |z| -z.turned().tanh().turned(),
    "sinc.default" => |z| {
        let w = z.scaled(std::f64::consts::PI);
        z.number(1.0, 0.0).or(z.is_zero(), -w.turned().sinh().turned() / w)
    },
    "sigmoid.default" => |z| z.number(1.0, 0.0) / ((-z).exp() + z.number(1.0, 0.0)),
};

const BINARY: &[(&str, Build)] = two! {
    "mul.Tensor", "other" => |x, y| x * y,
    "mul.Scalar", "other" => |x, y| x * y,
    "div.Tensor", "other" => |x, y| x / y,
    "div.Scalar", "other" => |x, y| x / y,
    "pow.Tensor_Tensor", "exponent" => |x, y| x.pow(y),
    "pow.Scalar", "exponent" => |x, y| x.pow(y),
};

const OTHERS: &[(&str, Build)] = &[
    ("abs.default", real_of!(|z| z.abs())),
    ("isfinite.default", real_of!(|z| z.re.is_finite() & z.im.is_finite())),
    ("isnan.default", real_of!(|z| z.re.is_nan() | z.im.is_nan())),
    ("isinf.default", real_of!(|z| infinite(z.re) | infinite(z.im))),
    ("isreal.default", real_of!(|z| z.im.eq(0.0))),
    ("logical_not.default", real_of!(|z| z.is_zero())),
    ("logical_and.default", condition!(|x, y| !x.is_zero() & !y.is_zero())),
    ("logical_or.default", condition!(|x, y| !(x.is_zero() & y.is_zero()))),
    ("logical_xor.default", condition!(|x, y| x.is_zero().ne(y.is_zero()))),
    ("eq.Tensor", condition!(|x, y| x.re.eq(y.re) & x.im.eq(y.im))),
    ("eq.Scalar", condition!(|x, y| x.re.eq(y.re) & x.im.eq(y.im))),
    ("ne.Tensor", condition!(|x, y| x.re.ne(y.re) | x.im.ne(y.im))),
    ("ne.Scalar", condition!(|x, y| x.re.ne(y.re) | x.im.ne(y.im))),
    ("pow.Tensor_Scalar", power),
    ("_assert_tensor_metadata.default", |_, _, _| Ok(Outcome::Many(vec![]))),
    ("addcmul.default", |cx, _, a| added(cx, a, |x, y| x * y)),
    ("addcdiv.default", |cx, _, a| added(cx, a, |x, y| x / y)),
    ("any.default", |cx, row, a| on_flags(cx, row, a)),
    ("any.dim", |cx, row, a| on_flags(cx, row, a)),
    ("any.dims", |cx, row, a| on_flags(cx, row, a)),
    ("all.default", |cx, row, a| on_flags(cx, row, a)),
    ("all.dim", |cx, row, a| on_flags(cx, row, a)),
    ("linalg_vector_norm.default", |cx, row, a| on_magnitudes(cx, row, a)),
    ("norm.ScalarOpt_dim", |cx, row, a| on_magnitudes(cx, row, a)),
    ("prod.default", prod),
    ("prod.dim_int", prod),
    ("mH.default", |cx, _, a| transposed(cx, a, "aten.mT.default")),
    ("matrix_H.default", |cx, _, a| transposed(cx, a, "aten.mT.default")),
    ("adjoint.default", |cx, _, a| transposed(cx, a, "aten.mT.default")),
];

fn infinite(x: Term<'_>) -> Term<'_> {
    x.abs().eq(f64::INFINITY)
}

/// Small exponents are products and roots, as in PyTorch.
fn power(cx: &mut Cx, _: &super::Row, a: &Args<'_>) -> Result<Outcome> {
    let [z, y] = cx.numbers(a, ["self", "exponent"])?;
    let exponent = a.float("exponent", None).ok();
    formula(cx, |f| {
        let (z, y) = (Z::of(f, z), Z::of(f, y));
        match exponent {
            Some(0.5) => z.sqrt(),
            Some(-0.5) => z.sqrt().recip(),
            Some(1.0) => z,
            Some(2.0) => z * z,
            Some(3.0) => z * z * z,
            Some(-1.0) => z.recip(),
            Some(-2.0) => (z * z).recip(),
            _ => z.pow(y),
        }
    })
}

/// `self + value * kind(tensor1, tensor2)`.
fn added(
    cx: &mut Cx,
    a: &Args<'_>,
    kind: impl for<'f> Fn(Z<'f>, Z<'f>) -> Z<'f>,
) -> Result<Outcome> {
    let [x, y, z] = cx.numbers(a, ["self", "tensor1", "tensor2"])?;
    let by = match a.get("value") {
        Some(Val::ComplexNumber(re, im)) => (*re, *im),
        _ => (a.float("value", Some(1.0))?, 0.0),
    };
    formula(cx, |f| {
        let term = kind(Z::of(f, y), Z::of(f, z));
        let term = if by == (1.0, 0.0) { term } else { term.number(by.0, by.1) * term };
        Z::of(f, x) + term
    })
}

/// A row of a real tensor in the place of `self`.
fn on(cx: &mut Cx, row: &super::Row, a: &Args<'_>, x: Value) -> Result<Outcome> {
    let mut values: HashMap<&str, Val> = a.values.iter().map(|(k, v)| (*k, v.clone())).collect();
    values.insert("self", Val::Tensor(cx.store.fresh(x)));
    values.retain(|_, v| !matches!(v, Val::ComplexDType(_)));
    let args = Args { values };
    super::check(row, cx, &args)?;
    (row.build)(cx, &args)
}

fn on_flags(cx: &mut Cx, row: &super::Row, a: &Args<'_>) -> Result<Outcome> {
    let [z] = cx.numbers(a, ["self"])?;
    let x = real::value(cx, |f| !Z::of(f, z).is_zero())?;
    on(cx, row, a, x)
}

fn on_magnitudes(cx: &mut Cx, row: &super::Row, a: &Args<'_>) -> Result<Outcome> {
    let [z] = cx.numbers(a, ["self"])?;
    let x = real::value(cx, |f| Z::of(f, z).abs())?;
    on(cx, row, a, x)
}

/// The conjugate of a transposed matrix.
fn transposed(cx: &mut Cx, a: &Args<'_>, name: &str) -> Result<Outcome> {
    let row = row_of(name).ok_or("has no transpose")?;
    let [(re, im)] = cx.numbers(a, ["self"])?;
    let mut part = |v| match on(cx, row, a, v)? {
        Outcome::One(Val::Tensor(t)) => cx.get(t),
        _ => Err("has no transpose".into()),
    };
    let z = (part(re)?, part(im)?);
    formula(cx, |f| Z::of(f, z).conj())
}

/// A product along one dimension, or of all elements, by halves: as many steps as the size has
/// bits. The size is static.
fn prod(cx: &mut Cx, _: &super::Row, a: &Args<'_>) -> Result<Outcome> {
    let [(mut re, mut im)] = cx.numbers(a, ["self"])?;
    if let Some(Val::ComplexDType(d)) = a.get("dtype") {
        (re, im) = (cx.convert(re, *d)?, cx.convert(im, *d)?);
    }
    let whole = !a.has("dim");
    if whole {
        let mut n = cx.b.sizes_of(re)?.into_iter();
        let n = n.try_fold(Size::Static(1), |n, s| cx.size_mul(n, s))?;
        (re, im) = (cx.reshape(re, vec![n])?, cx.reshape(im, vec![n])?);
    }
    let axis = super::wrap(a.int("dim", Some(0))?, super::rank_of(re))?;
    let mut sizes = cx.b.sizes_of(re)?;
    if sizes.is_empty() {
        return cx.one_complex(re, im);
    }
    let slice = |cx: &Cx, input: Value, from: i64, n: i64| {
        let mut sizes = cx.b.sizes_of(input)?;
        let mut offsets = vec![Size::Static(0); sizes.len()];
        let strides = vec![1; sizes.len()];
        (sizes[axis], offsets[axis]) = (Size::Static(n), Size::Static(from));
        cx.b.add(&Slice { input, offsets, sizes, strides })
    };
    let mut n = super::super::split::known_size(cx, re, axis)?;
    if n == 0 {
        sizes[axis] = Size::Static(1);
        let d = super::dtype_of(re)?;
        (re, im) = (cx.b.splat(d, &sizes, 1.0)?, cx.b.splat(d, &sizes, 0.0)?);
        n = 1;
    }
    while n > 1 {
        let half = n / 2;
        let part = |from, n| Ok::<_, Error>((slice(cx, re, from, n)?, slice(cx, im, from, n)?));
        let (x, y, odd) = (part(0, half)?, part(half, half)?, part(2 * half, n - 2 * half)?);
        let both = real::pair(cx, |f| {
            let p = Z::of(f, x) * Z::of(f, y);
            (p.re, p.im)
        })?;
        (re, im) = both;
        if n % 2 == 1 {
            let axis = axis as i64;
            re = cx.b.add(&Concat { inputs: vec![re, odd.0], axis })?;
            im = cx.b.add(&Concat { inputs: vec![im, odd.1], axis })?;
        }
        n -= half;
    }
    sizes.remove(axis);
    if a.flag("keepdim", false)? {
        sizes.insert(axis, Size::Static(1));
    }
    let (re, im) = (cx.reshape(re, sizes.clone())?, cx.reshape(im, sizes)?);
    cx.one_complex(re, im)
}
