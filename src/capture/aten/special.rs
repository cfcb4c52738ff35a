//! Elementwise functions that are formulas of prims: hyperbolic, gamma and error functions, entropies,
//! activations.
use super::{Args, Cx, Outcome, Row, formula::*, tools::*};
use kiln_dialects::{ir::*, ops::BroadcastInDim, value::DType};
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LOG2_E, PI, SQRT_2};

/// A row of one float tensor; integers are converted to the default float dtype.
macro_rules! of_one {
    ($name:literal, $formula:expr) => {
        Row { name: $name, arguments: "self", build: |cx, a| one(cx, a, $formula) }
    };
}
/// A row of two float tensors or numbers, promoted and converted to a float dtype.
macro_rules! of_two {
    ($name:literal, $arguments:literal, $formula:expr) => {
        Row { name: $name, arguments: $arguments, build: |cx, a| two(cx, a, $arguments, $formula) }
    };
}

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
    // As PyTorch computes it, which is 0 far below.
    of_one!("aten.special_ndtr.default", |x| ((x / SQRT_2).erf() + 1.0) * 0.5),
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
            formula(cx, |f| {
                let x = f.of(x);
                x.le(at).select(value, x)
            })
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
            let (x, end, w) =
                (cx.tensor(a, "self")?, cx.tensor(a, "end")?, cx.tensor(a, "weight")?);
            formula(cx, |f| {
                let (x, end, w) = (f.of(x), f.of(end), f.of(w));
                // From the nearer end, as PyTorch computes it.
                let step = end - x;
                w.abs().lt(0.5).select(x + w * step, end - step * (1.0 - w))
            })
        },
    },
];

/// Emits a formula as the row's only result.
pub(super) fn formula(
    cx: &mut Cx,
    make: impl for<'f> FnOnce(&'f Formula<'f>) -> Term<'f>,
) -> Result<Outcome> {
    let v = value(cx, make)?;
    cx.one(v)
}

/// Emits a formula.
pub(super) fn value(
    cx: &Cx,
    make: impl for<'f> FnOnce(&'f Formula<'f>) -> Term<'f>,
) -> Result<Value> {
    let f = Formula::new(cx);
    let term = make(&f);
    f.end(term)
}

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
    formula(cx, |f| make(f.of(x), f.of(y)))
}

/// A formula computed in f64 and rounded once: it cancels, or its result spans many magnitudes.
fn precisely<'f>(x: Term<'f>, make: impl FnOnce(Term<'f>) -> Term<'f>) -> Term<'f> {
    let d = x.dtype();
    make(x.to(DType::F64)).to(d)
}

/// Whether a number is negative, by its sign bit.
fn negative(x: Term<'_>) -> Term<'_> {
    let bits = match x.dtype() {
        DType::F64 => DType::I64,
        DType::F32 => DType::I32,
        DType::F16 | DType::BF16 => DType::I16,
        DType::F8E4M3FN | DType::F8E5M2 => DType::I8,
        DType::I1 | DType::UI8 => return x.ne(x),
        _ => return x.lt(0.0),
    };
    x.bitcast(bits).lt(0.0)
}

/// A magnitude with the sign of `x`.
fn sign_of<'f>(x: Term<'f>, magnitude: Term<'f>) -> Term<'f> {
    negative(x).select(-magnitude, magnitude)
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

/// Chebyshev coefficients of ln(erfcx(z)) - ln(t) in 4t - 2, t = 2 / (2 + z): Press et al.,
/// Numerical Recipes, 3rd edition, 6.2.2. Relative error 1.5e-13 up to z = 24.
const ERFC: [f64; 28] = [
    -1.3026537197817094,
    6.419_697_923_564_902e-1,
    1.9476473204185836e-2,
    -9.561_514_786_808_63e-3,
    -9.46595344482036e-4,
    3.66839497852761e-4,
    4.2523324806907e-5,
    -2.0278578112534e-5,
    -1.624290004647e-6,
    1.303655835580e-6,
    1.5626441722e-8,
    -8.5238095915e-8,
    6.529054439e-9,
    5.059343495e-9,
    -9.91364156e-10,
    -2.27365122e-10,
    9.6467911e-11,
    2.394038e-12,
    -6.886027e-12,
    8.94487e-13,
    3.13092e-13,
    -1.12708e-13,
    3.81e-16,
    7.106e-15,
    -1.523e-15,
    -9.4e-17,
    1.21e-16,
    -2.8e-17,
];

/// `e^(z^2) erfc(z)` for z >= 0, by Clenshaw's recurrence.
fn scaled_tail(z: Term<'_>) -> Term<'_> {
    let t = 2.0 / (z + 2.0);
    let y = t * 4.0 - 2.0;
    let (mut d, mut before) = (z.number(0.0), z.number(0.0));
    for k in ERFC[1..].iter().rev() {
        (d, before) = (y * d - before + *k, d);
    }
    t * ((y * d + ERFC[0]) * 0.5 - before).exp()
}

fn erfc(x: Term<'_>) -> Term<'_> {
    let z = x.abs();
    let tail = scaled_tail(z) * (-(z * z)).exp();
    x.lt(0.0).select(2.0 - tail, tail)
}

fn erfcx(x: Term<'_>) -> Term<'_> {
    let z = x.abs();
    let tail = scaled_tail(z);
    x.lt(0.0).select((z * z).exp() * 2.0 - tail, tail)
}

/// The inverse of the error function: Giles, Approximating the erfinv function, 2012, and two steps
/// of Newton's method.
fn erfinv(x: Term<'_>) -> Term<'_> {
    const NEAR: [f64; 9] = [
        1.50140941,
        0.246640727,
        -0.00417768164,
        -0.00125372503,
        0.00021858087,
        -4.39150654e-06,
        -3.5233877e-06,
        3.43273939e-07,
        2.81022636e-08,
    ];
    const FAR: [f64; 9] = [
        2.83297682,
        1.00167406,
        0.00943887047,
        -0.0076224613,
        0.00573950773,
        -0.00367342844,
        0.00134934322,
        0.000100950558,
        -0.000200214257,
    ];
    let w = -((1.0 - x) * (x + 1.0)).ln();
    let far = (w.sqrt() - 3.0).polynomial(&FAR);
    let mut y = w.lt(5.0).select((w - 2.5).polynomial(&NEAR), far) * x;
    for _ in 0..2 {
        // erf(y) - x by the complement, which does not cancel far out.
        let m = y.abs();
        let off = sign_of(y, (1.0 - x.abs()) - erfc(m));
        y = y - off / ((-(y * y)).exp() * FRAC_2_SQRT_PI);
    }
    let end = sign_of(x, x.number(f64::INFINITY));
    x.abs().eq(1.0).select(end, y)
}

/// ln |gamma(x)|: Lanczos' approximation with g = 7 and nine terms, and the reflection formula below
/// 1/2.
fn lgamma(x: Term<'_>) -> Term<'_> {
    const G: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let low = x.lt(0.5);
    let z = low.select(-x, x - 1.0);
    let series = (1..9).fold(z.number(G[0]), |sum, i| sum + G[i] / (z + i as f64));
    let t = z + 7.5;
    let value = (z + 0.5) * t.ln() - t + series.ln() + 0.5 * (2.0 * PI).ln();
    let value = z.eq(f64::INFINITY).select(z, value);
    // |sin(pi x)| of the fraction, which is exact for large x.
    let sine = ((x - x.floor()) * PI).sin().abs();
    let pole = low & (x.eq(x.floor()));
    let reflected = (PI / sine).ln() - value;
    let both = low.select(reflected, value);
    (pole | x.eq(f64::NEG_INFINITY)).select(f64::INFINITY, both)
}

fn multigammaln<'f>(p: i64, x: Term<'f>) -> Term<'f> {
    let rest = (p * (p - 1)) as f64 / 4.0 * PI.ln();
    (0..p).fold(x.number(rest), |sum, j| sum + lgamma(x - j as f64 / 2.0))
}

/// The logarithmic derivative of gamma: ten steps of its recurrence, then the asymptotic series.
fn digamma(x: Term<'_>) -> Term<'_> {
    let low = x.lt(0.0);
    let y = low.select(1.0 - x, x);
    let shift = (0..10).fold(y.number(0.0), |sum, k| sum + 1.0 / (y + k as f64));
    let t = y + 10.0;
    let z = 1.0 / (t * t);
    let series = z * z.polynomial(&[
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32760.0,
        1.0 / 12.0,
    ]);
    let value = t.ln() - 0.5 / t - series - shift;
    let angle = (x - x.floor()) * PI;
    let reflected = value - PI * angle.cos() / angle.sin();
    let pole = low & x.eq(x.floor());
    let value = low.select(pole.select(f64::NAN, reflected), value);
    // At 0 the sign of the zero decides.
    let end = sign_of(x, x.number(f64::NEG_INFINITY));
    x.eq(0.0).select(end, value)
}

/// The n-th derivative of digamma.
fn polygamma<'f>(n: i64, x: Term<'f>) -> Term<'f> {
    match n {
        0 => digamma(x),
        1 => {
            let low = x.lt(0.5);
            let value = zeta(x.number(2.0), low.select(1.0 - x, x));
            let sine = ((x - x.floor()) * PI).sin();
            low.select(PI * PI / (sine * sine) - value, value)
        }
        n => {
            let sign = if n % 2 == 1 { 1.0 } else { -1.0 };
            let factorial: f64 = (1..=n).map(|k| k as f64).product();
            zeta(x.number(n as f64 + 1.0), x) * (sign * factorial)
        }
    }
}

/// Hurwitz' zeta function by the Euler-Maclaurin formula with [`SUMMED`] terms before the remainder.
fn zeta<'f>(s: Term<'f>, q: Term<'f>) -> Term<'f> {
    // (2k)! / B(2k)
    const A: [f64; 12] = [
        12.0,
        -720.0,
        30240.0,
        -1209600.0,
        47900160.0,
        -1.892_437_580_318_379_2e9,
        7.472_424_96e10,
        -2.950_130_727_918_164e12,
        1.164_678_281_435_006_7e14,
        -4.597_978_722_407_473e15,
        1.815_210_540_194_354_7e17,
        -7.166_165_256_175_667e18,
    ];
    let sum = (0..SUMMED).fold(s * 0.0, |sum, k| sum + (q + k as f64).pow(-s));
    let w = q + (SUMMED - 1) as f64;
    let mut b = w.pow(-s);
    let mut total = sum + b * w / (s - 1.0) - b * 0.5;
    let (mut a, mut k) = (s * 0.0 + 1.0, 0.0);
    for divisor in A {
        a = a * (s + k);
        b = b / w;
        total = total + a * b / divisor;
        k += 1.0;
        a = a * (s + k);
        b = b / w;
        k += 1.0;
    }
    let pole = q.le(0.0) & q.eq(q.floor());
    let undefined = s.lt(1.0) | (q.le(0.0) & s.ne(s.floor()));
    let value = pole.select(f64::INFINITY, total);
    let value = undefined.select(f64::NAN, value);
    s.eq(1.0).select(f64::INFINITY, value)
}

/// Terms of zeta's sum before its remainder: enough for arguments above -11.
const SUMMED: usize = 20;

/// From here on the asymptotic series of the modified Bessel functions is exact to f64's rounding.
const FAR: f64 = 25.0;

/// `e^-|x| I_n(x)` for n 0 or 1: the power series, and far out the asymptotic one (Abramowitz and
/// Stegun 9.6.10, 9.7.1).
fn bessel_ie<'f>(n: usize, x: Term<'f>) -> Term<'f> {
    let m = x.abs();
    let near = m.min(FAR);
    let mut term = 1.0;
    let coefficients: Vec<f64> = (0..70)
        .map(|k| {
            let this = term;
            term /= ((k + 1) * (k + 1 + n)) as f64;
            this
        })
        .collect();
    let q = near * near * 0.25;
    let mut series = q.polynomial(&coefficients) * (-near).exp();
    if n == 1 {
        series = series * near * 0.5;
    }
    let mu = (4 * n * n) as f64;
    let mut term = 1.0;
    let tail: Vec<f64> = (0..24)
        .map(|k| {
            let this = term;
            let odd = (2 * k + 1) as f64;
            term *= -(mu - odd * odd) / ((k + 1) as f64 * 8.0);
            this
        })
        .collect();
    let far = m.max(FAR);
    let asymptotic = (1.0 / far).polynomial(&tail) / (far * (2.0 * PI)).sqrt();
    m.gt(FAR).select(asymptotic, series)
}

fn i0e(x: Term<'_>) -> Term<'_> {
    bessel_ie(0, x)
}

fn i1e(x: Term<'_>) -> Term<'_> {
    sign_of(x, bessel_ie(1, x))
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
