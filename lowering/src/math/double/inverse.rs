//! Inverse trigonometric functions in f64.
use crate::math::{
    emit::{Emit, Res},
    trig::slope,
};
use kiln_dialects::{Result, ir::Value};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

/// Low parts of pi/2 and pi/4.
const PI_2_LO: f64 = 6.123233995736766e-17;
const PI_4_LO: f64 = 3.061616997868383e-17;
/// Minimax polynomial in r^2 of (asin(r) - r) / r^3 for |r| <= 1/2; error 2^-59.8 relative to the
/// result.
const ASIN: [f64; 13] = [
    0.03267614120594938,
    -0.02107606135787052,
    0.021762602463102368,
    0.0036834232600408156,
    0.01078642412326088,
    0.01139779557471769,
    0.01398095892421902,
    0.01735160031725331,
    0.02237221564662903,
    0.030381942684161396,
    0.04464285717510752,
    0.07499999999970279,
    0.16666666666666763,
];
/// Minimax polynomial in r^2 of (atan(r) - r) / r^3 for |r| <= tan(pi/8); error 2^-59.5 relative to
/// the result.
const ATAN: [f64; 11] = [
    -0.01792179834870511,
    0.03807789036595103,
    -0.05039828852609042,
    0.05848005270605412,
    -0.0666311988803484,
    0.07692061593782301,
    -0.09090897834021791,
    0.11111110786053692,
    -0.1428571428024684,
    0.19999999999954066,
    -0.333333333333332,
];

/// For r = min(|x|, sqrt((1 - |x|) / 2)): r, asin(r) - r, and whether r is the square root. The
/// root is NaN for |x| > 1.
fn half_asin(e: &Emit, x: Value) -> Result<(Value, Value, Value)> {
    let a = e.abs(x)?;
    let far = e.gt(a, e.c(0.5)?)?;
    let folded = e.mul(e.sub(e.c(1.0)?, a)?, e.c(0.5)?)?;
    let z = e.select(far, folded, e.mul(a, a)?)?;
    let root = e.sqrt(folded)?;
    // Rounding error of the square root; 0 at 0.
    let lost = e.div(e.fma(e.neg(root)?, root, folded)?, e.add(root, root)?)?;
    let lost = e.select(e.and(far, e.gt(root, e.c(0.0)?)?)?, lost, e.c(0.0)?)?;
    let r = e.select(far, root, a)?;
    Ok((r, e.fma(e.mul(e.poly(z, &ASIN)?, z)?, r, lost)?, far))
}

pub fn asin(e: &Emit, x: Value) -> Res {
    let (r, more, far) = half_asin(e, x)?;
    // pi/2 - 2 (r + more), compensated for the rounding error of the first subtraction.
    let (quarter, twice) = (e.c(FRAC_PI_2)?, e.add(r, r)?);
    let main = e.sub(quarter, twice)?;
    let lost = e.sub(e.sub(quarter, main)?, twice)?;
    let end = e.add(main, e.fmac(more, -2.0, e.add(lost, e.c(PI_2_LO)?)?)?)?;
    let y = e.select(far, end, e.add(r, more)?)?;
    e.unless_tiny(x, e.copysign(y, x)?)
}

pub fn acos(e: &Emit, x: Value) -> Res {
    let (r, more, far) = half_asin(e, x)?;
    let left = e.lt(x, e.c(0.0)?)?;
    let y = e.add(r, more)?;
    let twice = e.add(y, y)?;
    let ends = e.select(left, e.sub(e.c(PI)?, e.sub(twice, e.c(2.0 * PI_2_LO)?)?)?, twice)?;
    // pi/2 - (x + more).
    let (signed, more) = (e.copysign(r, x)?, e.select(left, e.neg(more)?, more)?);
    let middle = e.sub(e.c(FRAC_PI_2)?, e.sub(signed, e.sub(e.c(PI_2_LO)?, more)?)?)?;
    e.select(far, ends, middle)
}

/// atan of an a >= 0, reduced to an argument of at most tan(pi/8).
fn positive_atan(e: &Emit, a: Value) -> Res {
    let (zero, one) = (e.c(0.0)?, e.c(1.0)?);
    let above = e.gt(a, e.c(2.414213562373095)?)?;
    let middle = e.gt(a, e.c(0.41421356237309503)?)?;
    let folded = e.div(e.sub(a, one)?, e.add(a, one)?)?;
    let r = e.select(above, e.div(e.c(-1.0)?, a)?, e.select(middle, folded, a)?)?;
    let pick =
        |far: f64, near: f64| e.select(above, e.c(far)?, e.select(middle, e.c(near)?, zero)?);
    let (base, low) = (pick(FRAC_PI_2, FRAC_PI_4)?, pick(PI_2_LO, PI_4_LO)?);
    let z = e.mul(r, r)?;
    let more = e.fma(e.mul(e.poly(z, &ATAN)?, z)?, r, low)?;
    e.add(base, e.add(r, more)?)
}

pub fn atan(e: &Emit, x: Value) -> Res {
    e.unless_tiny(x, e.copysign(positive_atan(e, e.abs(x)?)?, x)?)
}

/// Angle of (x, y): atan of the smaller over the greater magnitude, moved to its octant.
pub fn atan2(e: &Emit, y: Value, x: Value) -> Res {
    let (quotient, steep) = slope(e, y, x)?;
    // A tiny quotient is its own atan; it may be subnormal.
    let angle = e.unless_tiny(quotient, positive_atan(e, quotient)?)?;
    let angle = e.select(steep, e.sub(e.c(FRAC_PI_2)?, e.sub(angle, e.c(PI_2_LO)?)?)?, angle)?;
    let left = e.negative(e.bits(x)?)?;
    let angle = e.select(left, e.sub(e.c(PI)?, e.sub(angle, e.c(2.0 * PI_2_LO)?)?)?, angle)?;
    e.select(e.unordered(x, y)?, e.add(x, y)?, e.copysign(angle, y)?)
}
