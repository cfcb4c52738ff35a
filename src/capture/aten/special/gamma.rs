//! The gamma function's logarithm and its derivatives, and Hurwitz' zeta function.
use super::super::formula::*;
use std::f64::consts::PI;

/// ln |gamma(x)|: Lanczos' approximation with g = 7 and nine terms, and the reflection formula below
/// 1/2.
pub(in crate::capture::aten) fn lgamma(x: Term<'_>) -> Term<'_> {
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
    let both = (x.eq(1.0) | x.eq(2.0)).select(0.0, both);
    (pole | x.eq(f64::NEG_INFINITY)).select(f64::INFINITY, both)
}

pub(super) fn multigammaln<'f>(p: i64, x: Term<'f>) -> Term<'f> {
    let rest = (p * (p - 1)) as f64 / 4.0 * PI.ln();
    (0..p).fold(x.number(rest), |sum, j| sum + lgamma(x - j as f64 / 2.0))
}

/// The logarithmic derivative of gamma: ten steps of its recurrence, then the asymptotic series.
pub(super) fn digamma(x: Term<'_>) -> Term<'_> {
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
pub(super) fn polygamma<'f>(n: i64, x: Term<'f>) -> Term<'f> {
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
pub(super) fn zeta<'f>(s: Term<'f>, q: Term<'f>) -> Term<'f> {
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
