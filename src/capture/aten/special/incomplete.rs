//! Regularised incomplete gamma functions: the power series (DLMF 8.7.1) and the continued fraction
//! (DLMF 8.9.2, by Lentz' method), each repeated until all elements have converged.
use super::{
    super::{
        Args, Cx, Outcome, Row,
        arithmetic::default_float,
        formula::{Term, value},
        repeat::{any, repeat},
    },
    gamma::lgamma,
};
use kiln_dialects::{ir::*, value::DType};

/// Rows of this family.
pub const ROWS: &[Row] = &[
    Row {
        name: "aten.igamma.default",
        arguments: "self, other",
        build: |cx, a| build(cx, a, false),
    },
    Row {
        name: "aten.igammac.default",
        arguments: "self, other",
        build: |cx, a| build(cx, a, true),
    },
];

/// Relative change of the fraction or of the sum below which an element has converged: a few
/// roundings.
const SETTLED: f64 = 2e-15;

/// `x^a e^-x / gamma(a + more)`.
fn factor<'f>(a: Term<'f>, x: Term<'f>, more: f64) -> Term<'f> {
    (a * x.ln() - x - lgamma(a + more)).exp()
}

/// Where both arguments are positive and finite, and where the series serves.
fn regions<'f>(a: Term<'f>, x: Term<'f>) -> [Term<'f>; 2] {
    let inside = a.gt(0.0) & x.gt(0.0) & a.is_finite() & x.is_finite();
    [inside & x.lt(a + 1.0), inside & x.ge(a + 1.0)]
}

/// The sum `1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ..`.
fn series(cx: &mut Cx, a: Value, x: Value) -> Result<Value> {
    let one = cx.full_like(a, 1.0)?;
    let growing = |cx: &Cx, state: &[Value]| {
        any(cx, value(cx, |f| f.of(state[1]).gt(f.of(state[2]) * SETTLED))?)
    };
    let step = |cx: &Cx, state: &[Value]| {
        let (k, term, sum) = (state[0], state[1], state[2]);
        let next = value(cx, |f| f.of(term) * (f.of(x) / (f.of(a) + f.of(k))))?;
        let after = value(cx, |f| f.of(k) + 1.0)?;
        Ok(vec![after, next, value(cx, |f| f.of(sum) + f.of(next))?])
    };
    let first = cx.number(DType::F64, 1.0)?;
    Ok(repeat(cx, &[first, one, one], &growing, &step)?[2])
}

/// The fraction `1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ..)))`.
fn fraction(cx: &mut Cx, a: Value, x: Value) -> Result<Value> {
    let b = value(cx, |f| f.of(x) + 1.0 - f.of(a))?;
    let d = value(cx, |f| 1.0 / f.of(b))?;
    // Lentz' first value: in place of 1 / 0.
    let c = cx.full_like(a, 1e300)?;
    let ratio = cx.full_like(a, 2.0)?;
    let moving = |cx: &Cx, state: &[Value]| {
        any(cx, value(cx, |f| (f.of(state[4]) - 1.0).abs().gt(SETTLED))?)
    };
    let step = |cx: &Cx, state: &[Value]| {
        let (k, c, d, h) = (state[0], state[1], state[2], state[3]);
        let numerator = value(cx, |f| f.of(k) * (f.of(a) - f.of(k)))?;
        let b = value(cx, |f| f.of(b) + f.of(k) * 2.0)?;
        let d = value(cx, |f| 1.0 / (f.of(numerator) * f.of(d) + f.of(b)))?;
        let c = value(cx, |f| f.of(b) + f.of(numerator) / f.of(c))?;
        let ratio = value(cx, |f| f.of(c) * f.of(d))?;
        let h = value(cx, |f| f.of(h) * f.of(ratio))?;
        Ok(vec![value(cx, |f| f.of(k) + 1.0)?, c, d, h, ratio])
    };
    let first = cx.number(DType::F64, 1.0)?;
    Ok(repeat(cx, &[first, c, d, d, ratio], &moving, &step)?[3])
}

fn build(cx: &mut Cx, args: &Args<'_>, upper: bool) -> Result<Outcome> {
    let d = default_float(cx.common_dtype(args, &["self", "other"])?);
    let (a, x) = (cx.operand(args, "self", d)?, cx.operand(args, "other", d)?);
    let (a, x) = cx.broadcast(a, x)?;
    let (a, x) = (cx.convert(a, DType::F64)?, cx.convert(x, DType::F64)?);
    let low = value(cx, |f| regions(f.of(a), f.of(x))[0])?;
    let high = value(cx, |f| regions(f.of(a), f.of(x))[1])?;
    // Elsewhere numbers for which both converge at once.
    let chosen =
        |cx: &Cx, c: Value, v: Value, other: f64| value(cx, |f| f.of(c).select(f.of(v), other));
    let (p, q) = (chosen(cx, low, a, 1.0)?, chosen(cx, low, x, 0.0)?);
    let sum = series(cx, p, q)?;
    let (p, q) = (chosen(cx, high, a, 1.0)?, chosen(cx, high, x, 2.0)?);
    let rest = fraction(cx, p, q)?;
    let v = value(cx, |f| {
        let (a, x) = (f.of(a), f.of(x));
        let (below, above) = (factor(a, x, 1.0) * f.of(sum), factor(a, x, 0.0) * f.of(rest));
        let (below, above) = if upper { (1.0 - below, above) } else { (below, 1.0 - above) };
        let (at_zero, at_end) = if upper { (1.0, 0.0) } else { (0.0, 1.0) };
        let v = f.of(low).select(below, f.of(high).select(above, f64::NAN));
        let v = x.eq(f64::INFINITY).select(at_end, v);
        let endless = x.eq(f64::INFINITY).select(a.number(f64::NAN), a.number(at_zero));
        let v = a.eq(f64::INFINITY).select(endless, v);
        let v = x.eq(0.0).select(at_zero, v);
        let v = a.eq(0.0).select(x.gt(0.0).select(a.number(at_end), a.number(f64::NAN)), v);
        let undefined = x.lt(0.0) | a.lt(0.0) | x.is_nan() | a.is_nan();
        undefined.select(f64::NAN, v).to(d)
    })?;
    cx.one(v)
}
