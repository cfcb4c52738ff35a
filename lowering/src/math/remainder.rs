//! Floating-point remainder, exact as C's `fmod`: x - q y, where q is x / y truncated.
//!
//! Each iteration subtracts c y, where c is the quotient truncated to its upper 31 bits. The
//! difference is a multiple of ulp(y) ulp(c) and below y ulp(c), so it has no more bits than y and
//! an FMA computes it exactly. The loop ends when it is below y.
use crate::math::emit::{Emit, Res};
use kiln_dialects::{ir::*, value::DType};

/// Low quotient bits that an iteration ignores.
const REST: i64 = (1 << 22) - 1;
/// The exponent bits of an f64.
const EXPONENT: i64 = 0x7ff << 52;

/// The remainder in f64; f32 is computed via f64, where quotients have at most 277 bits.
pub fn remainder(e: &Emit, x: Value, y: Value) -> Res {
    if e.is_f64() {
        return exact(e, x, y, true);
    }
    let w = e.wide();
    e.truncate(exact(&w, e.extend(x, DType::F64)?, e.extend(y, DType::F64)?, false)?, DType::F32)
}

/// The remainder of |x| by |y|, with the sign of x. `far`: whether the quotient may overflow.
fn exact(w: &Emit, x: Value, y: Value, far: bool) -> Res {
    let (all, size) = (w.abs(x)?, w.abs(y)?);
    let is_number = w.and(w.lt(all, w.c(f64::INFINITY)?)?, w.gt(size, w.c(0.0)?)?)?;
    let left = |w: &Emit, r: Value| w.and(is_number, w.ge(r, size)?);
    let mut again = |w: &Emit, r: Value| w.any(left(w, r)?);
    let r =
        w.repeat(all, &mut again, &mut |w, r| w.select(left(w, r)?, step(w, r, size, far)?, r))?;
    w.select(is_number, w.copysign(r, x)?, w.c(f64::NAN)?)
}

/// One iteration: what is left of r, for r >= y.
fn step(w: &Emit, r: Value, y: Value, far: bool) -> Res {
    let mut by = y;
    if far {
        // Any multiple of y will do; one that overflows to infinity is never below r.
        let near = w.mul(y, w.c(f64::powi(2.0, 1000))?)?;
        let beyond = w.mul(near, w.c(f64::powi(2.0, 100))?)?;
        by = w.select(w.ge(r, near)?, near, by)?;
        by = w.select(w.ge(r, beyond)?, beyond, by)?;
    }
    let quotient = w.bits(math::trunc(w, w.div(r, by)?)?)?;
    let quotient = w.float(w.and(quotient, w.i(!REST)?)?)?;
    let left = w.fma(w.neg(quotient)?, by, r)?;
    // The division may have rounded up to the next c; then adds y ulp(c) back.
    let place =
        w.mul(w.float(w.and(w.bits(quotient)?, w.i(EXPONENT)?)?)?, w.c(f64::powi(2.0, -30))?)?;
    let one = w.c(1.0)?;
    let place = w.select(w.gt(place, one)?, place, one)?;
    w.select(w.lt(left, w.c(0.0)?)?, w.fma(by, place, left)?, left)
}
