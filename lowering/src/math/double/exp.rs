//! exp in f64, and expm1, tanh, sinh and erf, which are computed from it.
use crate::math::emit::{Emit, IntegerParts, Res};
use kiln_dialects::{Result, ir::Value};
use std::f64::consts::{LN_2, LOG2_E};

/// ln 2 as a Cody-Waite pair. The high part has 32 bits, so its product with an 11-bit n is exact.
const LN2_HI: f64 = 0.6931471803691238;
const LN2_LO: f64 = 1.9082149292705877e-10;
/// Minimax polynomial of (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2; error 2^-60.3 relative to the
/// result.
const EXP: [f64; 11] = [
    2.0921590736646324e-09,
    2.510524646969551e-08,
    2.7557252960629384e-07,
    2.7557255330101186e-06,
    2.4801587347208557e-05,
    0.0001984126987487487,
    0.0013888888888874504,
    0.00833333333332612,
    0.041666666666666685,
    0.1666666666666667,
    0.5,
];

/// Range reduction: x = n ln 2 + r.
fn reduce(e: &Emit, x: Value) -> Result<(IntegerParts, Value)> {
    let (n, bits) = e.round(e.mul(x, e.c(LOG2_E)?)?)?;
    Ok(((n, bits), e.fmac(n, -LN2_LO, e.fmac(n, -LN2_HI, x)?)?))
}

/// e^r - 1 for a reduced r.
pub fn small_expm1(e: &Emit, r: Value) -> Res {
    e.fma(e.mul(r, r)?, e.poly(r, &EXP)?, r)
}

/// e^x 2^more.
fn exp_scaled(e: &Emit, x: Value, more: i64) -> Res {
    let (n, r) = reduce(e, e.clamp(x, -746.0, 712.0)?)?;
    e.scale(e.add(small_expm1(e, r)?, e.c(1.0)?)?, n, more)
}

pub fn exp(e: &Emit, x: Value) -> Res {
    exp_scaled(e, x, 0)
}

pub fn exp2(e: &Emit, x: Value) -> Res {
    let x = e.clamp(x, -1076.0, 1025.0)?;
    let (n, bits) = e.round(x)?;
    let r = e.mul(e.sub(x, n)?, e.c(LN_2)?)?;
    e.scale(e.add(small_expm1(e, r)?, e.c(1.0)?)?, (n, bits), 0)
}

pub fn expm1(e: &Emit, x: Value) -> Res {
    // At x = 710, n is still 1024 and the result overflows as it should.
    let ((_, n), r) = reduce(e, e.clamp(x, -40.0, 710.0)?)?;
    // Computes half of the result, because 2^1024 overflows where the result is still finite: 2
    // (2^(n-1) (e^r - 1) + 2^(n-1) - 1/2).
    let half = e.power_of_two(e.isub(n, e.i(1)?)?)?;
    let y = e.fma(half, small_expm1(e, r)?, e.sub(half, e.c(0.5)?)?)?;
    // e^x - 1 = x + x^2/2 + …, which rounds to x below 2^-54.
    let tiny = e.lt(e.abs(x)?, e.c(f64::powi(2.0, -54))?)?;
    e.select(tiny, x, e.add(y, y)?)
}

/// Minimax polynomial in x^2 of (tanh(x) - x) / x^3 below 0.625; error 2^-61.3 relative to the
/// result.
const TANH: [f64; 12] = [
    6.054619252020792e-06,
    -3.0215697796163382e-05,
    9.158758676739956e-05,
    -0.0002370288819736409,
    0.0005894581840478298,
    -0.0014557275148146679,
    0.0035921142555557744,
    -0.008863234339915847,
    0.02186948847055363,
    -0.05396825396613074,
    0.13333333333329883,
    -0.33333333333333315,
];

/// Polynomial below 0.625, else 1 - 2 / (e^2x + 1).
pub fn tanh(e: &Emit, x: Value) -> Res {
    let a = e.abs(x)?;
    let z = e.mul(x, x)?;
    let small = e.fma(e.mul(e.poly(z, &TANH)?, z)?, x, x)?;
    let near = e.clamp(a, 0.0, 22.0)?;
    let (one, two) = (e.c(1.0)?, e.c(2.0)?);
    let large = e.sub(one, e.div(two, e.add(exp(e, e.add(near, near)?)?, one)?)?)?;
    e.unless_tiny(x, e.select(e.lt(a, e.c(0.625)?)?, small, e.copysign(large, x)?)?)
}

/// Minimax polynomial in x^2 of (sinh(x) - x) / x^3 below 1; error 2^-63.2 relative to the result.
const SINH: [f64; 7] = [
    7.759314707870601e-13,
    1.6057240263075854e-10,
    2.5052123399476912e-08,
    2.7557319155331865e-06,
    0.00019841269841437692,
    0.008333333333333139,
    0.16666666666666669,
];

/// Polynomial below 1, else e^|x| / 2 - e^-|x| / 2.
pub fn sinh(e: &Emit, x: Value) -> Res {
    let a = e.abs(x)?;
    let z = e.mul(x, x)?;
    let small = e.fma(e.mul(e.poly(z, &SINH)?, z)?, x, x)?;
    let half = exp_scaled(e, a, -1)?;
    let large = e.sub(half, e.div(e.c(0.25)?, half)?)?;
    e.unless_tiny(x, e.select(e.lt(a, e.c(1.0)?)?, small, e.copysign(large, x)?)?)
}

pub fn cosh(e: &Emit, x: Value) -> Res {
    let half = exp_scaled(e, e.abs(x)?, -1)?;
    e.add(half, e.div(e.c(0.25)?, half)?)
}

/// Minimax polynomial in x^2 of erf(x) / x - 1 below 1; error 2^-62.8 relative to the result.
const ERF: [f64; 13] = [
    5.960621917954424e-11,
    -1.1374916116050676e-09,
    1.4660317803257876e-08,
    -1.635039447708251e-07,
    1.6461008298775953e-06,
    -1.4925595759893433e-05,
    0.00012055331132384474,
    -0.0008548326981407729,
    0.005223977624828071,
    -0.02686617064507783,
    0.11283791670954885,
    -0.3761263890318375,
    0.1283791670955126,
];
/// Minimax polynomial in (2 t - 7) / 5 of e^(t^2) erfc(t) for 1 <= t <= 6; error 2^-56.5 relative
/// to the result.
const ERFCX: [f64; 21] = [
    0.00010662983635962558,
    0.0007042530841879973,
    0.00212770679624579,
    0.0036277504760385544,
    0.003618401176103435,
    0.0015519973979408643,
    -0.000666185170413741,
    -0.0016163100255345258,
    -0.0006603197489047758,
    -0.0005563199778616225,
    0.0009633963659730204,
    -0.001441954736431435,
    0.0028210438416197145,
    -0.0050312255188434685,
    0.008831184375247773,
    -0.015182877893107388,
    0.02549556953592993,
    -0.041766778400790426,
    0.06663208336639437,
    -0.10330894457963086,
    0.15529365560721953,
];

/// Polynomial below 1, else 1 - erfc(|x|), which rounds to 1 from 6 on.
pub fn erf(e: &Emit, x: Value) -> Res {
    let a = e.abs(x)?;
    let small = e.fma(x, e.poly(e.mul(x, x)?, &ERF)?, x)?;
    let t = e.clamp(a, 1.0, 6.0)?;
    let u = e.fmac(t, 0.4, e.c(-1.4)?)?;
    let large = e.sub(e.c(1.0)?, e.mul(exp(e, e.neg(e.mul(t, t)?)?)?, e.poly(u, &ERFCX)?)?)?;
    e.select(e.lt(a, e.c(1.0)?)?, small, e.copysign(large, x)?)
}
