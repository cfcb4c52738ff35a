//! The remainder of floats, as exact as C's `fmod`: x - q y for the whole number q that is x / y
//! without its fraction.
//!
//! A step takes away a multiple of y whose factor has the upper 31 bits of the quotient. What is
//! left is a multiple of y's last place times the factor's, below y times the factor's last place,
//! so that it has no more bits than y and an FMA gives it without rounding. Then again, until it is
//! below y.
use crate::math::emit::{Emit, Res};
use kiln_dialects::ir::Value;

/// Bits of a quotient that a step does not look at.
const REST: i64 = (1 << 22) - 1;
/// The bits of an f64 that are its exponent.
const EXPONENT: i64 = 0x7ff << 52;

/// The remainder in f64, or in f32 by way of it: quotients of these have no more than 277 bits.
pub fn remainder(e: &Emit, x: Value, y: Value) -> Res {
    if e.is_f64() {
        return exact(e, x, y, true);
    }
    let w = e.wide();
    e.truncate(exact(&w, e.extend(x, "f64")?, e.extend(y, "f64")?, false)?, "f32")
}

/// `far`: whether the quotient may be beyond what is a float.
fn exact(w: &Emit, x: Value, y: Value, far: bool) -> Res {
    let (all, size) = (w.abs(x)?, w.abs(y)?);
    let is_number = w.and(w.lt(all, w.c(f64::INFINITY)?)?, w.gt(size, w.c(0.0)?)?)?;
    let left = |w: &Emit, r: Value| w.and(is_number, w.ge(r, size)?);
    let mut again = |w: &Emit, r: Value| w.any(left(w, r)?);
    let r =
        w.repeat(all, &mut again, &mut |w, r| w.select(left(w, r)?, step(w, r, size, far)?, r))?;
    w.select(is_number, w.copysign(r, x)?, w.c(f64::NAN)?)
}

/// What a step leaves of r, which is y at least.
fn step(w: &Emit, r: Value, y: Value, far: bool) -> Res {
    let mut by = y;
    if far {
        // Any multiple of y will do; one that is no float is never below r.
        let near = w.mul(y, w.c(f64::powi(2.0, 1000))?)?;
        let beyond = w.mul(near, w.c(f64::powi(2.0, 100))?)?;
        by = w.select(w.ge(r, near)?, near, by)?;
        by = w.select(w.ge(r, beyond)?, beyond, by)?;
    }
    let quotient = w.bits(w.same("math.trunc", &[w.div(r, by)?])?)?;
    let quotient = w.float(w.and(quotient, w.i(!REST)?)?)?;
    let left = w.fma(w.neg(quotient)?, by, r)?;
    // The division may have rounded up to the next factor.
    let place =
        w.mul(w.float(w.and(w.bits(quotient)?, w.i(EXPONENT)?)?)?, w.c(f64::powi(2.0, -30))?)?;
    let one = w.c(1.0)?;
    let place = w.select(w.gt(place, one)?, place, one)?;
    w.select(w.lt(left, w.c(0.0)?)?, w.fma(by, place, left)?, left)
}
