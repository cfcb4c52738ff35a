//! Windows of signal processing, as factories: Hann, Hamming, Blackman, Bartlett, Kaiser.
use super::{Args, Cx, Outcome, Row, special::bessel::i0e, tools::*};
use kiln_dialects::{ir::*, value::DType};
use kiln_passes::formula::{Formula, Term};
use std::f64::consts::PI;

macro_rules! window {
    ($name:literal, $arguments:literal, $build:expr) => {
        Row { name: $name, arguments: $arguments, build: |cx, a| window(cx, a, $build) }
    };
}
/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    window!("aten.hann_window.default", "window_length, dtype=None", hann),
    window!("aten.hann_window.periodic", "window_length, periodic, dtype=None", hann),
    window!("aten.hamming_window.default", "window_length, dtype=None", hamming),
    window!("aten.hamming_window.periodic", "window_length, periodic, dtype=None", hamming),
    window!(
        "aten.hamming_window.periodic_alpha",
        "window_length, periodic, alpha, dtype=None",
        hamming
    ),
    window!(
        "aten.hamming_window.periodic_alpha_beta",
        "window_length, periodic, alpha, beta, dtype=None",
        hamming
    ),
    window!("aten.blackman_window.default", "window_length, dtype=None", blackman),
    window!("aten.blackman_window.periodic", "window_length, periodic, dtype=None", blackman),
    window!("aten.bartlett_window.default", "window_length, dtype=None", bartlett),
    window!("aten.bartlett_window.periodic", "window_length, periodic, dtype=None", bartlett),
    window!("aten.kaiser_window.default", "window_length, dtype=None", kaiser),
    window!("aten.kaiser_window.periodic", "window_length, periodic, dtype=None", kaiser),
    window!("aten.kaiser_window.beta", "window_length, periodic, beta, dtype=None", kaiser),
];

/// The value at `at`, a position from 0 to `last`.
type Shape = for<'f> fn(&Args<'_>, at: Term<'f>, last: f64) -> Result<Term<'f>>;

/// A window of `window_length` elements. A periodic one is the first part of a symmetric one that
/// is longer by one.
fn window(cx: &mut Cx, a: &Args<'_>, shape: Shape) -> Result<Outcome> {
    let n = a.int("window_length", None)?;
    let d = a.dtype("dtype")?.unwrap_or(DType::F32);
    if n < 0 || !d.is_float() {
        return Err(format!("wants {n} elements of {}", d.name()).into());
    }
    let sizes = vec![Size::Static(n)];
    if n <= 1 {
        let v = cx.b.splat(d, &sizes, 1.0)?;
        return cx.one(v);
    }
    let last = if a.flag("periodic", true)? { n } else { n - 1 };
    let at = cx.iota(statistics_dtype(d), sizes, 0)?;
    let f = Formula::new(&cx.b);
    let term = shape(a, f.of(at), last as f64)?;
    let v = cx.convert(f.end(term)?, d)?;
    cx.one(v)
}

/// `alpha - beta cos(2 pi k / last)`.
fn cosine<'f>(at: Term<'f>, last: f64, alpha: f64, beta: f64) -> Term<'f> {
    (at * (2.0 * PI / last)).cos() * -beta + alpha
}

fn hann<'f>(_: &Args<'_>, at: Term<'f>, last: f64) -> Result<Term<'f>> {
    Ok(cosine(at, last, 0.5, 0.5))
}

fn hamming<'f>(a: &Args<'_>, at: Term<'f>, last: f64) -> Result<Term<'f>> {
    Ok(cosine(at, last, a.float("alpha", Some(0.54))?, a.float("beta", Some(0.46))?))
}

fn blackman<'f>(_: &Args<'_>, at: Term<'f>, last: f64) -> Result<Term<'f>> {
    Ok(cosine(at, last, 0.42, 0.5) + (at * (4.0 * PI / last)).cos() * 0.08)
}

fn bartlett<'f>(_: &Args<'_>, at: Term<'f>, last: f64) -> Result<Term<'f>> {
    let up = at * (2.0 / last);
    Ok(up.min(2.0 - up))
}

/// `i0(beta sqrt(1 - (2 k / last - 1)^2)) / i0(beta)`.
fn kaiser<'f>(a: &Args<'_>, at: Term<'f>, last: f64) -> Result<Term<'f>> {
    let beta = a.float("beta", Some(12.0))?;
    let off = at * (2.0 / last) - 1.0;
    let inside = (1.0 - off * off).max(0.0).sqrt() * beta;
    let full = at * 0.0 + beta;
    Ok(i0e(inside) / i0e(full) * (inside - beta).exp())
}
