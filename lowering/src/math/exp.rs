//! exp in f32, and expm1, tanh, sinh and erf, which are computed from it. Cody-Waite reduction to
//! |r| <= ln 2 / 2; the polynomial is that of Cephes' `expf` (S. Moshier).
use crate::math::emit::{Emit, IntegerParts, Res};
use kiln_dialects::{Result, ir::Value};

const LOG2E: f64 = std::f64::consts::LOG2_E;
/// ln 2 as a Cody-Waite pair. The product of the high part with an 8-bit n is exact, with or
/// without FMA.
const LN2_HI: f64 = 0.693359375;
const LN2_LO: f64 = -2.12194440e-4;
/// Polynomial of (e^r - 1 - r) / r^2.
const EXP: [f64; 6] = [
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
];

/// Range reduction: x = n ln 2 + r.
fn reduce(e: &Emit, x: Value) -> Result<(IntegerParts, Value)> {
    let (n, bits) = e.round(e.mul(x, e.c(LOG2E)?)?)?;
    let r = e.fmac(n, -LN2_HI, x)?;
    Ok(((n, bits), e.fmac(n, -LN2_LO, r)?))
}

/// e^r - 1 for a reduced r.
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
    e.scale(e.add(small_expm1(e, r)?, e.c(1.0)?)?, (n, bits), 0)
}

pub fn expm1(e: &Emit, x: Value) -> Res {
    // At x = 89, n is still 128 and the result overflows as it should.
    let ((_, n), r) = reduce(e, e.clamp(x, -20.0, 89.0)?)?;
    // Computes half of the result, because 2^128 overflows where the result is still finite: 2
    // (2^(n-1) (e^r - 1) + 2^(n-1) - 1/2).
    let half = e.power_of_two(e.isub(n, e.i(1)?)?)?;
    let y = e.fma(half, small_expm1(e, r)?, e.sub(half, e.c(0.5)?)?)?;
    // e^x - 1 = x + x^2/2 + …, which rounds to x below 2^-25.
    let tiny = e.lt(e.abs(x)?, e.c(f64::powi(2.0, -25))?)?;
    e.select(tiny, x, e.add(y, y)?)
}

/// Polynomial in x^2 of (tanh(x) / x - 1) / x^2 below 0.625, from Cephes' `tanhf`.
pub const TANH: [f64; 5] =
    [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1];

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

/// Polynomial of -ln(erfc(x)) / x - 9/8 on 0 <= x <= 4. A weighted least-squares fit on 2,000
/// points, reweighted by Lawson's algorithm until the largest relative error of erf is minimal,
/// 4e-9.
const LN_ERFC: [f64; 9] = [
    -9.255984952e-6,
    1.176386525e-4,
    -6.328270324e-4,
    1.667008415e-3,
    -1.603755727e-4,
    -0.01915307612,
    0.1027778343,
    0.6366193814,
    1.128379172 - 1.125,
];

/// 1 - erfc(x), computed as e^ln(erfc(x)) - 1 to avoid cancellation near 0.
pub fn erf(e: &Emit, x: Value) -> Res {
    // Above 4, erf rounds to 1 in f32.
    let (a, four) = (e.abs(x)?, e.c(4.0)?);
    let a = e.select(e.gt(a, four)?, four, a)?;
    // Split into two terms: a rounding error of the factor would be one of the result.
    let y = e.fma(a, e.poly(a, &LN_ERFC)?, e.mul(a, e.c(1.125)?)?)?;
    let ((_, n), r) = reduce(e, e.neg(y)?)?;
    let power = e.power_of_two(n)?;
    let magnitude = e.fma(e.neg(power)?, small_expm1(e, r)?, e.sub(e.c(1.0)?, power)?)?;
    e.copysign(magnitude, x)
}
