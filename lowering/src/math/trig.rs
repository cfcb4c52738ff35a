//! Trigonometric functions and their inverses in f32. The polynomials are those of Cephes' `sinf`,
//! `cosf`, `asinf` and `atanf` (S. Moshier).
use crate::math::emit::{Emit, Res};
use kiln_dialects::{ir::*, value::DType};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, PI};

/// Low part of pi/2: pi/2 - FRAC_PI_2.
const PI_2_LO: f64 = 6.123233995736766e-17;

/// Largest |x| for Cody-Waite reduction: n has 41 bits, and the two constants give pi/2 to 2^-107.
const NEAR: f64 = (1u64 << 40) as f64;

/// Range reduction: x modulo pi/2 in f64, and the quadrant in the low bits of an integer. With FMA
/// only one rounding remains.
fn reduce(e: &Emit, x: Value) -> Result<(Value, Value)> {
    let w = e.wide();
    let wide = e.extend(x, DType::F64)?;
    let (n, bits) = w.round(w.mul(wide, w.c(FRAC_2_PI)?)?)?;
    let r = w.fmac(n, -PI_2_LO, w.fmac(n, -FRAC_PI_2, wide)?)?;
    let a = e.abs(x)?;
    let far = e.and(e.gt(a, e.c(NEAR)?)?, e.lt(a, e.c(f64::INFINITY)?)?)?;
    // A branch, since arguments this large are rare.
    let both = e.branch(e.any(far)?, &[r, bits], &mut |e| {
        let all = e.rare("reduce_far", &[x], &[r.ty(), bits.ty()], &mut |e, x| {
            let (r, n) = reduce_far(e, x[0])?;
            Ok(vec![r, n])
        })?;
        Ok(vec![e.select(far, all[0], r)?, e.select(far, all[1], bits)?])
    })?;
    Ok((both[0], both[1]))
}

/// The first fraction bits of 2/pi.
const TWO_OVER_PI: [i64; 7] =
    [0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab];

/// Payne-Hanek reduction beyond [`NEAR`]: computes only the two lowest integer bits of x 2/pi and
/// its fraction.
fn reduce_far(e: &Emit, x: Value) -> Result<(Value, Value)> {
    let w = e.wide();
    let bits = arith::extui(e, e.bits(x)?, w.ty(DType::I64))?;
    let mantissa = w.shl(w.or(w.and(bits, w.i(0x7fffff)?)?, w.i(0x800000)?)?, 8)?;
    // x = mantissa 2^(exponent - 32), with an exponent from 41 to 128.
    let exponent = w.isub(w.and(w.shr(bits, 23)?, w.i(0xff)?)?, w.i(126)?)?;
    let (word, shift) = (w.shr(exponent, 5)?, w.and(exponent, w.i(31)?)?);
    let (one, two, three) = (w.int_eq(word, 1)?, w.int_eq(word, 2)?, w.int_eq(word, 3)?);
    // Word `word` + k of 2/pi; `word` is 1 to 4.
    let at = |k: i64| {
        let t = |i: i64| {
            w.i(usize::try_from(i + k).ok().and_then(|i| TWO_OVER_PI.get(i)).copied().unwrap_or(0))
        };
        w.select(one, t(1)?, w.select(two, t(2)?, w.select(three, t(3)?, t(4)?)?)?)
    };
    let words = [at(-2)?, at(-1)?, at(0)?, at(1)?, at(2)?];
    // Words of 2/pi 2^exponent, 64 bits times the 32 bits of the mantissa; bits above the quadrant
    // overflow and are dropped.
    let product = |k: usize| {
        let pair = w.or(w.shl(words[k], 32)?, words[k + 1])?;
        let shifted = arith::shrui(&w, arith::shli(&w, pair, shift)?, w.i(32)?)?;
        arith::muli(&w, mantissa, shifted)
    };
    let turns = w.iadd(
        w.iadd(w.shl(product(0)?, 62)?, w.shl(product(1)?, 30)?)?,
        w.iadd(w.shift_right(product(2)?, 2)?, w.shift_right(product(3)?, 34)?)?,
    )?;
    let n = w.shr(w.iadd(turns, w.i(1 << 61)?)?, 62)?;
    let rest = w.to_float(w.isub(turns, w.shl(n, 62)?)?)?;
    let r = w.mul(rest, w.c(FRAC_PI_2 / (1u64 << 62) as f64)?)?;
    let negative = e.lt(x, e.c(0.0)?)?;
    Ok((w.select(negative, w.neg(r)?, r)?, w.select(negative, w.isub(w.i(0)?, n)?, n)?))
}

/// sin and cos of x modulo pi/2, and the quadrant.
fn quarter(e: &Emit, x: Value) -> Result<(Value, Value, Value)> {
    let (r, bits) = reduce(e, x)?;
    let (s, c) = reduced(e, e.truncate(r, DType::F32)?)?;
    Ok((s, c, bits))
}

/// sin and cos of an r of at most pi/4.
pub fn reduced(e: &Emit, r: Value) -> Result<(Value, Value)> {
    let z = e.mul(r, r)?;
    let s = e.poly(z, &[-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1])?;
    let s = e.fma(e.mul(s, z)?, r, r)?;
    let c = e.poly(z, &[2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2])?;
    let c = e.add(e.fma(e.mul(z, z)?, c, e.mul(z, e.c(-0.5)?)?)?, e.c(1.0)?)?;
    Ok((s, c))
}

/// sin(x + turn pi/2).
fn shifted_sin(e: &Emit, x: Value, turn: i64) -> Res {
    quadrant_sin(e, &e.wide(), quarter(e, x)?, turn)
}

/// sin(r + (n + turn) pi/2), from sin r, cos r and n, an integer of `w`'s width.
pub fn quadrant_sin(e: &Emit, w: &Emit, (s, c, n): (Value, Value, Value), turn: i64) -> Res {
    let n = w.iadd(n, w.i(turn)?)?;
    let y = e.select(w.nonzero(w.and(n, w.i(1)?)?)?, c, s)?;
    e.select(w.nonzero(w.and(n, w.i(2)?)?)?, e.neg(y)?, y)
}

/// tan(r + n pi/2), from sin r, cos r and n, an integer of `w`'s width.
pub fn quadrant_tan(e: &Emit, w: &Emit, (s, c, n): (Value, Value, Value)) -> Res {
    let odd = w.nonzero(w.and(n, w.i(1)?)?)?;
    e.div(e.select(odd, e.neg(c)?, s)?, e.select(odd, s, c)?)
}

pub fn sin(e: &Emit, x: Value) -> Res {
    e.unless_tiny(x, shifted_sin(e, x, 0)?)
}

pub fn cos(e: &Emit, x: Value) -> Res {
    shifted_sin(e, x, 1)
}

pub fn tan(e: &Emit, x: Value) -> Res {
    e.unless_tiny(x, quadrant_tan(e, &e.wide(), quarter(e, x)?)?)
}

/// Polynomial in x^2 of (asin(x) - x) / x^3 for |x| <= 1/2.
const ASIN: [f64; 5] =
    [4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1];

/// asin of min(|x|, sqrt((1 - |x|) / 2)), and whether it is that of the square root. For |x| > 1
/// the root gives NaN.
fn half_asin(e: &Emit, x: Value) -> Result<(Value, Value)> {
    let a = e.abs(x)?;
    let far = e.gt(a, e.c(0.5)?)?;
    let folded = e.mul(e.sub(e.c(1.0)?, a)?, e.c(0.5)?)?;
    let z = e.select(far, folded, e.mul(a, a)?)?;
    let r = e.select(far, e.sqrt(folded)?, a)?;
    Ok((e.fma(e.mul(e.poly(z, &ASIN)?, z)?, r, r)?, far))
}

pub fn asin(e: &Emit, x: Value) -> Res {
    let (y, far) = half_asin(e, x)?;
    let y = e.select(far, e.sub(e.c(FRAC_PI_2)?, e.add(y, y)?)?, y)?;
    e.unless_tiny(x, e.copysign(y, x)?)
}

pub fn acos(e: &Emit, x: Value) -> Res {
    let (y, far) = half_asin(e, x)?;
    let twice = e.add(y, y)?;
    let left = e.lt(x, e.c(0.0)?)?;
    let ends = e.select(left, e.sub(e.c(PI)?, twice)?, twice)?;
    let middle = e.sub(e.c(FRAC_PI_2)?, e.copysign(y, x)?)?;
    e.select(far, ends, middle)
}

/// atan of an a >= 0, reduced to an argument of at most tan(pi/8).
fn positive_atan(e: &Emit, a: Value) -> Res {
    let one = e.c(1.0)?;
    let above = e.gt(a, e.c(2.414213562373095)?)?;
    let middle = e.gt(a, e.c(0.414213562373095)?)?;
    let zero = e.c(0.0)?;
    let folded = e.div(e.sub(a, one)?, e.add(a, one)?)?;
    let r = e.select(above, e.div(e.c(-1.0)?, a)?, e.select(middle, folded, a)?)?;
    let base = e.select(above, e.c(FRAC_PI_2)?, e.select(middle, e.c(FRAC_PI_4)?, zero)?)?;
    let z = e.mul(r, r)?;
    let p =
        e.poly(z, &[8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1])?;
    e.add(e.fma(e.mul(p, z)?, r, r)?, base)
}

pub fn atan(e: &Emit, x: Value) -> Res {
    e.unless_tiny(x, e.copysign(positive_atan(e, e.abs(x)?)?, x)?)
}

/// min(|x|, |y|) / max(|x|, |y|), and whether |y| is the greater.
pub fn slope(e: &Emit, y: Value, x: Value) -> Result<(Value, Value)> {
    let (ax, ay) = (e.abs(x)?, e.abs(y)?);
    let steep = e.gt(ay, ax)?;
    let (small, great) = (e.select(steep, ax, ay)?, e.select(steep, ay, ax)?);
    let quotient = e.div(small, great)?;
    // Defines 0 / 0 as 0, and infinity / infinity as 1.
    let (zero, inf) = (e.c(0.0)?, e.c(f64::INFINITY)?);
    let quotient = e.select(e.eq(great, zero)?, zero, quotient)?;
    Ok((e.select(e.eq(small, inf)?, e.c(1.0)?, quotient)?, steep))
}

/// Angle of (x, y): atan of the smaller over the greater magnitude, moved to its octant.
pub fn atan2(e: &Emit, y: Value, x: Value) -> Res {
    let (quotient, steep) = slope(e, y, x)?;
    // A tiny quotient is its own atan; it may be subnormal.
    let angle = e.unless_tiny(quotient, positive_atan(e, quotient)?)?;
    let angle = e.select(steep, e.sub(e.c(FRAC_PI_2)?, angle)?, angle)?;
    let angle = e.select(e.negative(e.bits(x)?)?, e.sub(e.c(PI)?, angle)?, angle)?;
    e.select(e.unordered(x, y)?, e.add(x, y)?, e.copysign(angle, y)?)
}
