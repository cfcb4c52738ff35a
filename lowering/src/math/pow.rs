//! x^y in f32 as 2^(y log2 |x|), computed in f64: an f32 logarithm would lose as many bits as the
//! exponent has.
use crate::math::emit::{Emit, Res};
use kiln_dialects::{ir::Value, value::DType};
use std::f64::consts::{LN_2, LOG2_E};

/// log2 of a positive normal f64, by the atanh series in (m - 1) / (m + 1), to 2^-38.
fn log2(w: &Emit, x: Value) -> Res {
    /// The upper half of the bit pattern of sqrt 1/2.
    const SQRT_HALF: i64 = 0x3fe6a09e << 32;
    let bits = w.bits(x)?;
    let n = w.shr(w.isub(bits, w.i(SQRT_HALF)?)?, 52)?;
    let m = w.float(w.isub(bits, w.shl(n, 52)?)?)?;
    let one = w.c(1.0)?;
    let s = w.div(w.sub(m, one)?, w.add(m, one)?)?;
    // atanh(s) = s + s^3/3 + s^5/5 + …
    let series: Vec<f64> = (0..8).rev().map(|k| 2.0 * LOG2_E / (2 * k + 1) as f64).collect();
    w.fma(s, w.poly(w.mul(s, s)?, &series)?, to_float(w, n)?)
}

/// A small integer as f64, by adding a magic number: AVX2 has no 64-bit conversion.
fn to_float(w: &Emit, n: Value) -> Res {
    let magic = 6755399441055744.0f64;
    w.sub(w.float(w.iadd(n, w.i(magic.to_bits() as i64)?)?)?, w.c(magic)?)
}

/// 2^t for |t| <= 500, by the Taylor series of e^r, to 2^-32.
fn exp2(w: &Emit, t: Value) -> Res {
    let (n, bits) = w.round(t)?;
    let r = w.mul(w.sub(t, n)?, w.c(LN_2)?)?;
    let factorials = [40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0];
    w.mul(w.poly(r, &factorials.map(|f| 1.0 / f))?, w.power_of_two(bits)?)
}

pub fn powf(e: &Emit, x: Value, y: Value) -> Res {
    let w = e.wide();
    let (zero, one, inf) = (e.c(0.0)?, e.c(1.0)?, e.c(f64::INFINITY)?);
    let ax = e.abs(x)?;
    let l = log2(&w, e.extend(ax, DType::F64)?)?;
    let wide_inf = w.c(f64::INFINITY)?;
    let is_inf = e.eq(ax, inf)?;
    let l = w.select(is_inf, wide_inf, l)?;
    let l = w.select(e.eq(ax, zero)?, w.neg(wide_inf)?, l)?;
    let t = w.mul(l, e.extend(y, DType::F64)?)?;
    // 0 times infinity: 1 to any power is 1. Beyond 200, the truncation to f32 gives 0 or infinity.
    let t = w.select(e.eq(ax, one)?, w.c(0.0)?, t)?;
    let power = e.truncate(exp2(&w, w.clamp(t, -200.0, 200.0)?)?, DType::F32)?;
    special_cases(e, x, y, ax, power)
}

/// Special cases of x^y, given ax = |x| and its power: the sign, powers without a real result, NaN,
/// and the powers that are 1 for any other operand.
pub fn special_cases(e: &Emit, x: Value, y: Value, ax: Value, power: Value) -> Res {
    let (zero, one) = (e.c(0.0)?, e.c(1.0)?);
    // The sign: odd powers of a negative x are negative. Floats too large for a fraction bit are
    // even.
    let half = e.mul(y, e.c(0.5)?)?;
    let fraction = e.ne(e.floor(y)?, y)?;
    let odd_or_fraction = e.ne(e.floor(half)?, half)?;
    let odd = e.xor(odd_or_fraction, e.and(odd_or_fraction, fraction)?)?;
    let signed = e.and(odd, e.negative(e.bits(x)?)?)?;
    let power = e.select(signed, e.neg(power)?, power)?;
    // A negative base with a fractional exponent has no real result, except for an infinite base.
    let no_root = e.and(e.and(e.lt(x, zero)?, fraction)?, e.ne(ax, e.c(f64::INFINITY)?)?)?;
    let power = e.select(no_root, e.c(f64::NAN)?, power)?;
    let power = e.select(e.unordered(x, y)?, e.add(x, y)?, power)?;
    let is_one = e.or(e.eq(x, one)?, e.eq(y, zero)?)?;
    e.select(is_one, one, power)
}
