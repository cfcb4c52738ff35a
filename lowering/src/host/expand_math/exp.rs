//! exp and what is made of it. Reduction to |r| <= ln 2 / 2 after Cody and Waite; the polynomial is that of Cephes' `expf` (S. Moshier).
use super::emit::{Emit, Res};
use kiln_dialects::ir::Value;

const LOG2E: f64 = std::f64::consts::LOG2_E;
/// ln 2 in two parts; a product of the first with an n of 8 bits is exact, as is that of fma anyway.
const LN2_HI: f64 = 0.693359375;
const LN2_LO: f64 = -2.12194440e-4;
/// (e^r - 1 - r) / r^2.
const EXP: [f64; 6] = [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1];

/// x as n ln 2 + r: n in the low bits of an integer, and r.
fn reduce(e: &Emit, x: Value) -> Result<(Value, Value), String> {
    let (n, bits) = e.round(e.mul(x, e.c(LOG2E)?)?)?;
    let r = e.fmac(n, -LN2_HI, x)?;
    Ok((bits, e.fmac(n, -LN2_LO, r)?))
}

/// e^r - 1.
fn small_expm1(e: &Emit, r: Value) -> Res {
    e.fma(e.mul(r, r)?, e.poly(r, &EXP)?, r)
}

/// e^x 2^more.
fn exp_scaled(e: &Emit, x: Value, more: i64) -> Res {
    let (n, r) = reduce(e, e.clamp(x, -105.0, 91.0)?)?;
    e.scale(e.add(small_expm1(e, r)?, e.c(1.0)?)?, n, more)
}

pub fn exp(e: &Emit, x: Value) -> Res {
    exp_scaled(e, x, 0)
}

pub fn exp2(e: &Emit, x: Value) -> Res {
    let x = e.clamp(x, -151.0, 129.0)?;
    let (n, bits) = e.round(x)?;
    let r = e.mul(e.sub(x, n)?, e.c(std::f64::consts::LN_2)?)?;
    e.scale(e.add(small_expm1(e, r)?, e.c(1.0)?)?, bits, 0)
}

pub fn expm1(e: &Emit, x: Value) -> Res {
    // At 89 n is 128 still, and the result overflows.
    let (n, r) = reduce(e, e.clamp(x, -20.0, 89.0)?)?;
    // Half of the result, since 2^128 is no float where the result still is: 2 (2^(n-1) (e^r - 1) + 2^(n-1) - 1/2).
    let half = e.power_of_two(e.isub(n, e.i(1)?)?)?;
    let y = e.fma(half, small_expm1(e, r)?, e.sub(half, e.c(0.5)?)?)?;
    // e^x - 1 = x + x^2/2 + …; below 2^-25 that is x.
    let tiny = e.lt(e.abs(x)?, e.c(f64::powi(2.0, -25))?)?;
    e.select(tiny, x, e.add(y, y)?)
}

/// (tanh(x) / x - 1) / x^2 in x^2 below 0.625, from Cephes' `tanhf`.
pub const TANH: [f64; 5] = [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1];

/// Cephes' `tanhf` below 0.625, else 1 - 2 / (e^2x + 1).
pub fn tanh(e: &Emit, x: Value) -> Res {
    let a = e.abs(x)?;
    let z = e.mul(x, x)?;
    let small = e.fma(e.mul(e.poly(z, &TANH)?, z)?, x, x)?;
    let a10 = e.clamp(a, 0.0, 10.0)?;
    let (one, two) = (e.c(1.0)?, e.c(2.0)?);
    let large = e.sub(one, e.div(two, e.add(exp(e, e.add(a10, a10)?)?, one)?)?)?;
    e.unless_tiny(x, e.select(e.lt(a, e.c(0.625)?)?, small, e.copysign(large, x)?)?)
}

/// Cephes' `sinhf` below 1, else e^|x| / 2 - e^-|x| / 2.
pub fn sinh(e: &Emit, x: Value) -> Res {
    let a = e.abs(x)?;
    let z = e.mul(x, x)?;
    let p = e.poly(z, &[2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1])?;
    let small = e.fma(e.mul(p, z)?, x, x)?;
    let half = exp_scaled(e, a, -1)?;
    let large = e.sub(half, e.div(e.c(0.25)?, half)?)?;
    e.unless_tiny(x, e.select(e.lt(a, e.c(1.0)?)?, small, e.copysign(large, x)?)?)
}

pub fn cosh(e: &Emit, x: Value) -> Res {
    let half = exp_scaled(e, e.abs(x)?, -1)?;
    e.add(half, e.div(e.c(0.25)?, half)?)
}

/// ln erfc(t) on 1 <= t <= 4 as a polynomial in (2 t - 5) / 3: a least-squares fit on 120 Chebyshev nodes with weight erfc(t), reweighted
/// after Lawson to the minimax one; 1e-9 of 1.
pub const LN_ERFC: [f64; 7] = [0.002113857317, -0.001184409801, 0.01244283847, -0.03617226386, -2.123742031, -8.029040948, -7.806817803];
/// erf(x) / x in x^2 below 1, from Cephes' `erff`.
pub const ERF: [f64; 7] = [
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.7612625824233e-1,
    1.12837916572671,
];

pub fn erf(e: &Emit, x: Value) -> Res {
    let a = e.abs(x)?;
    let small = e.mul(x, e.poly(e.mul(x, x)?, &ERF)?)?;
    // Above 4 the result is 1 in f32.
    let t = e.clamp(a, 1.0, 4.0)?;
    let u = e.fmac(t, 2.0 / 3.0, e.c(-5.0 / 3.0)?)?;
    let large = e.sub(e.c(1.0)?, exp(e, e.poly(u, &LN_ERFC)?)?)?;
    e.select(e.lt(a, e.c(1.0)?)?, small, e.copysign(large, x)?)
}
