//! Elementwise functions that are formulas of prims: hyperbolic, gamma and error functions, entropies,
//! activations.
/// A row of one float tensor; integers are converted to the default float dtype.
macro_rules! of_one {
    ($name:literal, $formula:expr) => {
        of_one!($name, "self", $formula)
    };
    ($name:literal, $argument:literal, $formula:expr) => {
        Row {
            name: $name,
            arguments: $argument,
            build: |cx, a| {
                let x = cx.floating(a, $argument)?;
                formula(cx, |f| widely(f.of(x), $formula))
            },
        }
    };
}
/// A row of two float tensors or numbers, promoted and converted to a float dtype.
macro_rules! of_two {
    ($name:literal, $arguments:literal, $formula:expr) => {
        Row { name: $name, arguments: $arguments, build: |cx, a| two(cx, a, $arguments, $formula) }
    };
}

pub(super) mod bessel;
pub(super) mod cylinder;
mod erf;
pub(super) mod gamma;
pub(super) mod incomplete;
pub(super) mod polynomials;

use super::{Args, Cx, Outcome, Row, formula::*, tools::*};
use bessel::{i0e, i1e};
use erf::{erfc, erfcx, erfinv};
use gamma::{digamma, lgamma, multigammaln, polygamma, zeta};
use kiln_dialects::{ir::*, ops::BroadcastInDim, value::DType};
use std::f64::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E, PI, SQRT_2};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    of_one!("aten.asinh.default", asinh),
    of_one!("aten.acosh.default", |x| {
        // ln(x + sqrt(x^2 - 1)), by the difference from 1, which is exact near 1.
        let t = x - 1.0;
        let near = (t + (t * (t + 2.0)).sqrt()).ln_1p();
        x.gt(1e8).select(x.ln() + LN_2, near)
    }),
    of_one!("aten.atanh.default", |x| {
        let m = x.abs();
        let y = ((2.0 * m) / (1.0 - m)).ln_1p() * 0.5;
        sign_of(x, y)
    }),
    of_one!("aten.erfc.default", |x| precisely(x, erfc)),
    of_one!("aten.special_erfc.default", |x| precisely(x, erfc)),
    of_one!("aten.erfinv.default", |x| precisely(x, erfinv)),
    of_one!("aten.special_erfinv.default", |x| precisely(x, erfinv)),
    of_one!("aten.special_erfcx.default", |x| precisely(x, erfcx)),
    of_one!("aten.lgamma.default", |x| precisely(x, lgamma)),
    of_one!("aten.special_gammaln.default", |x| precisely(x, lgamma)),
    of_one!("aten.digamma.default", |x| precisely(x, digamma)),
    of_one!("aten.special_digamma.default", |x| precisely(x, digamma)),
    of_one!("aten.special_psi.default", |x| precisely(x, digamma)),
    Row { name: "aten.special_ndtr.default", arguments: "self", build: |cx, a| one(cx, a, ndtr) },
    of_one!("aten.special_log_ndtr.default", |x| precisely(x, |x| {
        let t = x / SQRT_2;
        // Below -1 the tail: ln(erfcx(-t) / 2) - t^2.
        x.lt(-1.0).select((erfcx(-t) * 0.5).ln() - t * t, (-(erfc(t) * 0.5)).ln_1p())
    })),
    of_one!("aten.special_ndtri.default", |p| precisely(p, |p| SQRT_2 * erfinv(2.0 * p - 1.0))),
    of_one!("aten.special_entr.default", |x| {
        let inside = -(x * x.ln());
        let zero = x.eq(0.0).select(0.0 * x, inside);
        x.lt(0.0).select(x.number(f64::NEG_INFINITY), zero)
    }),
    of_one!("aten.sinc.default", sinc),
    of_one!("aten.special_sinc.default", sinc),
    of_one!("aten.rad2deg.default", |x| x * (180.0 / PI)),
    of_one!("aten.deg2rad.default", |x| x * (PI / 180.0)),
    of_one!("aten.special_expm1.default", |x| x.expm1()),
    of_one!("aten.special_exp2.default", |x| x.exp2()),
    of_one!("aten.special_log1p.default", |x| x.ln_1p()),
    of_one!("aten.special_expit.default", |x| 1.0 / ((-x).exp() + 1.0)),
    of_one!("aten.frac.default", |x| x - x.trunc()),
    of_one!("aten.special_i0.default", |x| precisely(x, |x| i0e(x) * x.abs().exp())),
    of_one!("aten.i0.default", |x| precisely(x, |x| i0e(x) * x.abs().exp())),
    of_one!("aten.special_i0e.default", |x| precisely(x, i0e)),
    of_one!("aten.special_i1.default", |x| precisely(x, |x| i1e(x) * x.abs().exp())),
    of_one!("aten.special_i1e.default", |x| precisely(x, i1e)),
    of_one!("aten.log_sigmoid.default", log_sigmoid),
    of_one!("aten.tanhshrink.default", |x| x - x.tanh()),
    of_one!("aten.softsign.default", |x| x / (x.abs() + 1.0)),
    of_one!("aten.selu.default", |x| {
        const SCALE: f64 = 1.050_700_987_355_480_5;
        const ALPHA: f64 = 1.673_263_242_354_377_2;
        x.gt(0.0).select(x * SCALE, x.expm1() * (SCALE * ALPHA))
    }),
    of_two!("aten.logaddexp.default", "self, other", logaddexp),
    of_two!("aten.logaddexp2.default", "self, other", |x, y| {
        let m = x.max(y);
        let sum = m + ((-(x - y).abs()).exp2()).ln_1p() * LOG2_E;
        m.abs().eq(f64::INFINITY).select(m, sum)
    }),
    of_two!("aten.hypot.default", "self, other", |x, y| {
        // Scaled by the larger magnitude, so that squares neither overflow nor vanish.
        let (a, b) = (x.abs(), y.abs());
        let (m, n) = (a.max(b), a.min(b));
        let q = n / m;
        let d = m * (1.0 + q * q).sqrt();
        let d = m.eq(0.0).select(m, d);
        let inf = a.eq(f64::INFINITY) | b.eq(f64::INFINITY);
        inf.select(f64::INFINITY, d)
    }),
    of_two!("aten.xlogy.Tensor", "self, other", xlogy),
    of_two!("aten.xlogy.Scalar_Other", "self, other", xlogy),
    of_two!("aten.xlogy.Scalar_Self", "self, other", xlogy),
    of_two!("aten.special_xlogy.default", "self, other", xlogy),
    of_two!("aten.special_xlogy.other_scalar", "self, other", xlogy),
    of_two!("aten.special_xlogy.self_scalar", "self, other", xlogy),
    of_two!("aten.special_xlog1py.default", "self, other", xlog1py),
    of_two!("aten.special_xlog1py.other_scalar", "self, other", xlog1py),
    of_two!("aten.special_xlog1py.self_scalar", "self, other", xlog1py),
    of_two!("aten.ldexp.Tensor", "self, other", |x, n| x * n.exp2()),
    of_two!("aten.copysign.Tensor", "self, other", |x, y| sign_of(y, x.abs())),
    of_two!("aten.copysign.Scalar", "self, other", |x, y| sign_of(y, x.abs())),
    Row { name: "aten.logit.default", arguments: "self, eps=None", build: logit },
    Row { name: "aten.special_logit.default", arguments: "self, eps=None", build: logit },
    Row {
        name: "aten.mvlgamma.default",
        arguments: "self, p",
        build: |cx, a| {
            let p = a.int("p", None)?;
            one(cx, a, |x| precisely(x, |x| multigammaln(p, x)))
        },
    },
    Row {
        name: "aten.special_multigammaln.default",
        arguments: "self, p",
        build: |cx, a| {
            let p = a.int("p", None)?;
            one(cx, a, |x| precisely(x, |x| multigammaln(p, x)))
        },
    },
    Row {
        name: "aten.celu.default",
        arguments: "self, alpha=1",
        build: |cx, a| {
            let alpha = a.float("alpha", Some(1.0))?;
            one(cx, a, |x| x.gt(0.0).select(x, (x / alpha).expm1() * alpha))
        },
    },
    Row {
        name: "aten.hardshrink.default",
        arguments: "self, lambd=0.5",
        build: |cx, a| {
            let by = a.float("lambd", Some(0.5))?;
            one(cx, a, |x| (x.ge(-by) & x.le(by)).select(0.0, x))
        },
    },
    Row {
        name: "aten.softshrink.default",
        arguments: "self, lambd=0.5",
        build: |cx, a| {
            let by = a.float("lambd", Some(0.5))?;
            one(cx, a, |x| {
                let below = x.lt(-by).select(x + by, x * 0.0);
                x.gt(by).select(x - by, below)
            })
        },
    },
    Row {
        name: "aten.threshold.default",
        arguments: "self, threshold, value",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let (at, value) = (a.float("threshold", None)?, a.float("value", None)?);
            // 16-bit floats are compared with the unrounded number.
            let wide = super::axes::wide(dtype_of(x)?);
            formula(cx, |f| f.of(x).to(wide).le(at).select(value, f.of(x)))
        },
    },
    Row {
        name: "aten.heaviside.default",
        arguments: "self, values",
        build: |cx, a| {
            let (x, v) = cx.promoted(a, "self", "values")?;
            formula(cx, |f| {
                let (x, v) = (f.of(x), f.of(v));
                let step = x.lt(0.0).select(0.0 * v.number(1.0), v.number(1.0));
                // NaN counts as above 0.
                x.eq(0.0).select(v, step)
            })
        },
    },
    Row {
        name: "aten.signbit.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            formula(cx, |f| negative(f.of(x)))
        },
    },
    Row {
        name: "aten.isposinf.default",
        arguments: "self",
        build: |cx, a| one(cx, a, |x| x.eq(f64::INFINITY)),
    },
    Row {
        name: "aten.isneginf.default",
        arguments: "self",
        build: |cx, a| one(cx, a, |x| x.eq(f64::NEG_INFINITY)),
    },
    Row {
        name: "aten.fmax.default",
        arguments: "self, other",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "self", "other")?;
            formula(cx, |f| ignoring_nan(f.of(x), f.of(y), f.of(x).max(f.of(y))))
        },
    },
    Row {
        name: "aten.fmin.default",
        arguments: "self, other",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "self", "other")?;
            formula(cx, |f| ignoring_nan(f.of(x), f.of(y), f.of(x).min(f.of(y))))
        },
    },
    Row {
        name: "aten.prelu.default",
        arguments: "self, weight",
        build: |cx, a| {
            let (x, mut w) = (cx.tensor(a, "self")?, cx.tensor(a, "weight")?);
            if rank_of(x) > 1 && rank_of(w) == 1 {
                let sizes = cx.b.sizes_of(x)?;
                w = per_channel(cx, w, &sizes)?;
            } else if rank_of(x) == 0 {
                w = cx.reshape(w, vec![])?;
            }
            formula(cx, |f| {
                let x = f.of(x);
                x.gt(0.0).select(x, x * f.of(w))
            })
        },
    },
    Row {
        name: "aten._prelu_kernel.default",
        arguments: "self, weight",
        build: |cx, a| {
            let (x, w) = (cx.tensor(a, "self")?, cx.tensor(a, "weight")?);
            formula(cx, |f| {
                let x = f.of(x);
                x.gt(0.0).select(x, x * f.of(w))
            })
        },
    },
    Row {
        name: "aten.glu.default",
        arguments: "self, dim=-1",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let (left, right) = halves(cx, x, a.int("dim", Some(-1))?)?;
            formula(cx, |f| f.of(left) / ((-f.of(right)).exp() + 1.0))
        },
    },
    Row {
        name: "aten.polygamma.default",
        arguments: "n, self",
        build: |cx, a| {
            let n = a.int("n", None)?;
            one(cx, a, |x| precisely(x, |x| polygamma(n, x)))
        },
    },
    Row {
        name: "aten.special_polygamma.default",
        arguments: "n, self",
        build: |cx, a| {
            let n = a.int("n", None)?;
            one(cx, a, |x| precisely(x, |x| polygamma(n, x)))
        },
    },
    of_two!("aten.special_zeta.default", "self, other", |s, q| zeta(
        s.to(DType::F64),
        q.to(DType::F64)
    )
    .to(s.dtype())),
    of_two!("aten.special_zeta.other_scalar", "self, other", |s, q| zeta(
        s.to(DType::F64),
        q.to(DType::F64)
    )
    .to(s.dtype())),
    of_two!("aten.special_zeta.self_scalar", "self, other", |s, q| zeta(
        s.to(DType::F64),
        q.to(DType::F64)
    )
    .to(s.dtype())),
    Row {
        name: "aten.lerp.Tensor",
        arguments: "self, end, weight",
        build: |cx, a| {
            let (x, end) = (cx.tensor(a, "self")?, cx.tensor(a, "end")?);
            // A number as a tensor may have another dtype.
            let w = cx.operand(a, "weight", dtype_of(x)?)?;
            formula(cx, |f| {
                let (x, end, w) = (f.of(x), f.of(end), f.of(w));
                // From the nearer end, as PyTorch computes it.
                let step = end - x;
                w.abs().lt(0.5).select(x + w * step, end - step * (1.0 - w))
            })
        },
    },
];

fn one(
    cx: &mut Cx,
    a: &Args<'_>,
    make: impl for<'f> FnOnce(Term<'f>) -> Term<'f>,
) -> Result<Outcome> {
    let x = cx.floating(a, "self")?;
    formula(cx, |f| make(f.of(x)))
}

fn two(
    cx: &mut Cx,
    a: &Args<'_>,
    names: &str,
    make: impl for<'f> FnOnce(Term<'f>, Term<'f>) -> Term<'f>,
) -> Result<Outcome> {
    let (x, y) = names.split_once(", ").ok_or("has other than two arguments")?;
    let d = cx.common_dtype(a, &[x, y])?;
    let d = if d.is_float() { d } else { DType::F32 };
    let (x, y) = (cx.operand(a, x, d)?, cx.operand(a, y, d)?);
    let wide = super::axes::wide(d);
    formula(cx, |f| make(f.of(x).to(wide), f.of(y).to(wide)).to(d))
}

fn ignoring_nan<'f>(x: Term<'f>, y: Term<'f>, both: Term<'f>) -> Term<'f> {
    if !x.dtype().is_float() {
        return both;
    }
    x.is_nan().select(y, y.is_nan().select(x, both))
}

fn asinh(x: Term<'_>) -> Term<'_> {
    let m = x.abs();
    let near = (m + m * m / ((m * m + 1.0).sqrt() + 1.0)).ln_1p();
    sign_of(x, m.gt(1e8).select(m.ln() + LN_2, near))
}

fn sinc(x: Term<'_>) -> Term<'_> {
    let t = x * PI;
    x.eq(0.0).select(1.0, t.sin() / t)
}

/// As PyTorch computes it, with its roundings: 0 far below.
fn ndtr(x: Term<'_>) -> Term<'_> {
    let d = x.dtype();
    let t = (x.to(super::axes::wide(d)) * FRAC_1_SQRT_2).rounded(d);
    ((t.erf().rounded(d) + 1.0).rounded(d) * 0.5).to(d)
}

fn log_sigmoid(x: Term<'_>) -> Term<'_> {
    x.min(0.0) - (-x.abs()).exp().ln_1p()
}

fn logaddexp<'f>(x: Term<'f>, y: Term<'f>) -> Term<'f> {
    let m = x.max(y);
    let sum = m + (-(x - y).abs()).exp().ln_1p();
    // Equal infinities have no difference.
    m.abs().eq(f64::INFINITY).select(m, sum)
}

fn xlogy<'f>(x: Term<'f>, y: Term<'f>) -> Term<'f> {
    let product = x.eq(0.0).select(0.0, x * y.ln());
    y.is_nan().select(y, product)
}

fn xlog1py<'f>(x: Term<'f>, y: Term<'f>) -> Term<'f> {
    let product = x.eq(0.0).select(0.0, x * y.ln_1p());
    y.is_nan().select(y, product)
}

fn logit(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let eps = if a.has("eps") { Some(a.float("eps", None)?) } else { None };
    one(cx, a, |x| {
        let x = eps.map_or(x, |e| x.max(e).min(1.0 - e));
        (x / (1.0 - x)).ln()
    })
}

/// Both halves of a tensor along a dimension.
fn halves(cx: &Cx, x: Value, dim: i64) -> Result<(Value, Value)> {
    let dim = wrap(dim, rank_of(x))?;
    let half = cx.size_div(cx.b.size_of(x, dim)?, Size::Static(2))?;
    let part = |start| super::view::cut(cx, x, dim, start, half, 1)?.apply(&cx.b, x);
    Ok((part(Size::Static(0))?, part(half)?))
}

/// A vector `[C]` in the shape of `[N, C, …]`.
fn per_channel(cx: &Cx, v: Value, sizes: &[Size]) -> Result<Value> {
    cx.b.add(&BroadcastInDim { input: v, dims: vec![1], sizes: sizes.to_vec() })
}
