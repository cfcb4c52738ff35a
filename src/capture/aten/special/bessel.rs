//! Modified Bessel functions of the first kind.
use super::super::formula::*;
use std::f64::consts::PI;

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

pub(in crate::capture::aten) fn i0e(x: Term<'_>) -> Term<'_> {
    bessel_ie(0, x)
}

pub(super) fn i1e(x: Term<'_>) -> Term<'_> {
    sign_of(x, bessel_ie(1, x))
}
