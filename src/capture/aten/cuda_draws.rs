//! Distributions as PyTorch's CUDA kernels draw them, in the order of `cuda_order`. Sources:
//! cuRAND's `curand_uniform.h` and `curand_normal.h`, ATen's `native/cuda/DistributionTemplates.h`,
//! `native/cuda/Dropout.cu` and `core/TransformationHelper.h`.
//!
//! Words, and uniform numbers of f32, have the bits of PyTorch. Its kernels use `__logf`, `__expf`,
//! `__sincosf`: numbers made by these differ in the last bits.
use super::{
    Cx,
    cuda_order::{Kernel, Words},
    formula::{Formula, Term, value},
    tools::*,
};
use crate::capture::unsupported;
use kiln_dialects::{ir::*, ops::*, value::DType};

/// From this range on integers take 64 bits.
const WIDE: u64 = 1 << 28;
/// 2^-32 and 2^-53.
const INV32: f64 = 1.0 / 4_294_967_296.0;
const INV53: f64 = 1.0 / 9_007_199_254_740_992.0;

/// The unsigned word of an element in i64, of those at `at` for lanes 0, 1, ….
fn word(cx: &Cx, draw: &Words, at: &[usize]) -> Result<Value> {
    let wide = |i: usize| -> Result<Value> {
        let word = cx.convert(draw.words[i], DType::I64)?;
        cx.binary(BinaryKind::And, word, cx.integer(DType::I64, 0xffff_ffff)?)
    };
    let (Some(lane), [first, rest @ ..]) = (draw.lane, at) else {
        return wide(at.first().copied().unwrap_or(0));
    };
    let mut found = wide(*first)?;
    for (i, at) in (1..).zip(rest) {
        let here = cx.compare(CompareKind::Eq, lane, cx.integer(DType::I64, i)?)?;
        found = cx.select(here, wide(*at)?, found)?;
    }
    Ok(found)
}

/// `curand_uniform4`: in (0, 1], 32 bits rounded to f32.
fn unit<'f>(f: &'f Formula, word: Value) -> Term<'f> {
    f.of(word).to(DType::F32) * INV32 + INV32 / 2.0
}

/// The 53 bits that cuRAND makes of two words, as f64.
fn wide_bits(cx: &Cx, low: Value, high: Value) -> Result<Value> {
    let high = cx.binary(BinaryKind::Shl, high, cx.integer(DType::I64, 21)?)?;
    cx.convert(cx.binary(BinaryKind::Xor, low, high)?, DType::F64)
}

/// A function of a uniform number in (0, 1], which is f64 for results of f64 and f32 else.
fn of_uniform(
    cx: &mut Cx,
    d: DType,
    sizes: &[Size],
    make: impl for<'f> FnOnce(Term<'f>) -> Term<'f>,
) -> Result<Value> {
    if d == DType::F64 {
        let draw = cx.cuda_words(sizes, Kernel::Strided(2), d.byte_size())?;
        let (low, high) = (word(cx, &draw, &[0, 2])?, word(cx, &draw, &[1, 3])?);
        let bits = wide_bits(cx, low, high)?;
        return value(cx, |f| make(f.of(bits) * INV53 + INV53 / 2.0));
    }
    let draw = cx.cuda_words(sizes, Kernel::Strided(4), d.byte_size())?;
    let word = word(cx, &draw, &[0, 1, 2, 3])?;
    value(cx, |f| make(unit(f, word)))
}

/// `uniform_`: reverses the bounds of (from, to].
pub(super) fn uniform(
    cx: &mut Cx,
    d: DType,
    sizes: &[Size],
    (from, to): (f64, f64),
) -> Result<Value> {
    let (from, to) = (d.round(from), d.round(to));
    let range = d.round(to - from);
    of_uniform(cx, d, sizes, |u| {
        // PyTorch's is one FMA; of 24 bits it is exact in f64.
        let scaled = if (from, range) == (0.0, 1.0) {
            u.to(d)
        } else {
            (u.to(DType::F64) * range + from).to(u.dtype()).to(d)
        };
        scaled.eq(to).select(from, scaled)
    })
}

/// `normal_`: Box-Muller, whose even lanes take the sine and odd ones the cosine.
pub(super) fn normal(
    cx: &mut Cx,
    d: DType,
    sizes: &[Size],
    (mean, std): (f64, f64),
) -> Result<Value> {
    normal_then(cx, d, sizes, |z| (z * std + mean).to(d))
}

/// A function of a standard normal number.
fn normal_then(
    cx: &mut Cx,
    d: DType,
    sizes: &[Size],
    make: impl for<'f> FnOnce(Term<'f>) -> Term<'f>,
) -> Result<Value> {
    use std::f64::consts::PI;
    let wide = d == DType::F64;
    let draw = cx.cuda_words(sizes, Kernel::Strided(if wide { 2 } else { 4 }), d.byte_size())?;
    let one = cx.integer(DType::I64, 1)?;
    let odd = match draw.lane {
        Some(lane) => {
            let bit = cx.binary(BinaryKind::And, lane, one)?;
            Some(cx.compare(CompareKind::Eq, bit, one)?)
        }
        None => None,
    };
    let (first, second) = if wide {
        let words = [0, 1, 2, 3].map(|i| word(cx, &Words { lane: None, ..draw }, &[i]));
        let [a, b, c, e] = words;
        (wide_bits(cx, a?, b?)?, wide_bits(cx, c?, e?)?)
    } else {
        (word(cx, &draw, &[0, 0, 2, 2])?, word(cx, &draw, &[1, 1, 3, 3])?)
    };
    value(cx, |f| {
        let (u, turn) = if wide {
            (f.of(first) * INV53 + INV53 / 2.0, (f.of(second) * (2.0 * INV53) + INV53) * PI)
        } else {
            // 2^-32 * 2 pi, a product of f32.
            let scale = DType::F32.round(INV32 * DType::F32.round(2.0 * PI));
            (unit(f, first), f.of(second).to(DType::F32) * scale + scale / 2.0)
        };
        let side = match odd {
            Some(odd) => f.of(odd).select(turn.cos(), turn.sin()),
            None => turn.sin(),
        };
        make(side * (u.ln() * -2.0).sqrt())
    })
}

/// `log_normal_`.
pub(super) fn log_normal(
    cx: &mut Cx,
    d: DType,
    sizes: &[Size],
    (mean, std): (f64, f64),
) -> Result<Value> {
    normal_then(cx, d, sizes, |z| (z * std + mean).exp().to(d))
}

/// `exponential_`: a logarithm of (almost) 1 is replaced, so that none is 0.
pub(super) fn exponential(cx: &mut Cx, d: DType, sizes: &[Size], rate: f64) -> Result<Value> {
    of_uniform(cx, d, sizes, |u| {
        let least = epsilon(u.dtype()) / 2.0;
        let log = u.ge(1.0 - least).select(-least, u.ln());
        (log * (-1.0 / u.dtype().round(rate))).to(d)
    })
}

/// `cauchy_`: of f32 without the ends, where PyTorch's tangent has no value.
pub(super) fn cauchy(
    cx: &mut Cx,
    d: DType,
    sizes: &[Size],
    (median, sigma): (f64, f64),
) -> Result<Value> {
    of_uniform(cx, d, sizes, |u| {
        let least = epsilon(DType::F32);
        let u = if d == DType::F64 { u } else { u.max(least).min(1.0 - least) };
        let turn = (u - 0.5) * std::f64::consts::PI;
        (turn.sin() / turn.cos() * sigma + median).to(d)
    })
}

/// `geometric_`.
pub(super) fn geometric(cx: &mut Cx, d: DType, sizes: &[Size], p: f64) -> Result<Value> {
    of_uniform(cx, d, sizes, |u| {
        let p = u.dtype().round(p);
        (u.ln() / u.dtype().round((-p).ln_1p())).ceil().to(d)
    })
}

fn epsilon(d: DType) -> f64 {
    if d == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

/// `bernoulli_` of a number, as i1.
pub(super) fn bernoulli(cx: &mut Cx, d: DType, sizes: &[Size], p: f64) -> Result<Value> {
    of_uniform(cx, d, sizes, |u| u.lt(u.dtype().round(p)))
}

/// `bernoulli_` of a tensor of probabilities, as i1.
pub(super) fn bernoulli_of(cx: &mut Cx, d: DType, sizes: &[Size], p: Value) -> Result<Value> {
    let draw = cx.cuda_words(sizes, Kernel::Quads, d.byte_size())?;
    let word = word(cx, &draw, &[0, 1, 2, 3])?;
    let p = cx.broadcast_to(p, sizes)?;
    let wide = statistics_dtype(d);
    value(cx, |f| unit(f, word).to(wide).le(f.of(p).to(wide)))
}

/// `native_dropout`: the result, and what is kept.
pub(super) fn dropout(cx: &mut Cx, x: Value, p: f64) -> Result<(Value, Value)> {
    let (d, sizes) = (dtype_of(x)?, cx.b.sizes_of(x)?);
    if p == 1.0 {
        return Ok((cx.full_like(x, 0.0)?, cx.b.splat(DType::I1, &sizes, 0.0)?));
    }
    let widest = 16 / d.byte_size() as i64;
    let draw = cx.cuda_words(&sizes, Kernel::Contiguous(widest), d.byte_size())?;
    let word = word(cx, &draw, &[0, 1, 2, 3])?;
    let wide = statistics_dtype(d);
    let keep = wide.round(1.0 - p);
    let mask = value(cx, |f| unit(f, word).to(wide).lt(keep))?;
    let made = value(cx, |f| (f.of(x).to(wide) * f.of(mask).to(wide) * (1.0 / keep)).to(d))?;
    Ok((made, mask))
}

/// `random_(from, to)`: words modulo the range. Err: a range that no i64 holds.
pub(super) fn integers(cx: &mut Cx, d: DType, sizes: &[Size], from: i64, to: i64) -> Result<Value> {
    let (from, to) = if d.is_float() { (least_of(d, from), most_of(d, to)) } else { (from, to) };
    let range = (to as u64).wrapping_sub(from as u64);
    let drawn = if range < WIDE {
        narrow_modulo(cx, sizes, range as i64, d)?
    } else {
        wide_modulo(cx, sizes, range, d)?
    };
    let moved = cx.binary(BinaryKind::Add, drawn, cx.integer(DType::I64, from)?)?;
    cx.convert(moved, d)
}

/// `random_()`: all integers of the dtype from 0 on, of floats up to 2^(bits of the mantissa).
pub(super) fn random(cx: &mut Cx, d: DType, sizes: &[Size]) -> Result<Value> {
    let drawn = match d {
        DType::I1 => narrow_modulo(cx, sizes, 2, d)?,
        DType::I64 => wide_modulo(cx, sizes, 1 << 63, d)?,
        DType::F64 => wide_modulo(cx, sizes, (1 << 53) + 1, d)?,
        DType::F32 => narrow_modulo(cx, sizes, (1 << 24) + 1, d)?,
        DType::F16 => narrow_modulo(cx, sizes, (1 << 11) + 1, d)?,
        DType::BF16 => narrow_modulo(cx, sizes, (1 << 8) + 1, d)?,
        DType::UI8 => narrow_modulo(cx, sizes, 1 << 8, d)?,
        other if other.is_float() => return Err(unsupported(format!("random_ of {other}"))),
        other => narrow_modulo(cx, sizes, 1 << (other.bits() - 1), d)?,
    };
    cx.convert(drawn, d)
}

/// 32 bits modulo a range.
fn narrow_modulo(cx: &mut Cx, sizes: &[Size], range: i64, d: DType) -> Result<Value> {
    let draw = cx.cuda_words(sizes, Kernel::Strided(4), d.byte_size())?;
    let word = word(cx, &draw, &[0, 1, 2, 3])?;
    cx.binary(BinaryKind::Rem, word, cx.integer(DType::I64, range)?)
}

/// 64 unsigned bits modulo a range of at most 2^63, in signed arithmetic: for `v = 2 h + b` and
/// `t = h mod r` it is `2 t + b`, less `r` unless that is below it.
fn wide_modulo(cx: &mut Cx, sizes: &[Size], range: u64, d: DType) -> Result<Value> {
    if range > 1 << 63 {
        return Err(unsupported("draws integers of a range beyond 2^63"));
    }
    let draw = cx.cuda_words(sizes, Kernel::Strided(2), d.byte_size())?;
    let (high, low) = (word(cx, &draw, &[0, 2])?, word(cx, &draw, &[1, 3])?);
    let number = |n: i64| cx.integer(DType::I64, n);
    let of = |kind, x, y| cx.binary(kind, x, y);
    if range == 1 << 63 {
        let bits = of(BinaryKind::Or, of(BinaryKind::Shl, high, number(32)?)?, low)?;
        return of(BinaryKind::And, bits, number(i64::MAX)?);
    }
    let half = of(
        BinaryKind::Or,
        of(BinaryKind::Shl, high, number(31)?)?,
        of(BinaryKind::Shr, low, number(1)?)?,
    )?;
    let (bit, range) = (of(BinaryKind::And, low, number(1)?)?, number(range as i64)?);
    let t = of(BinaryKind::Rem, half, range)?;
    let rest = of(BinaryKind::Sub, t, of(BinaryKind::Sub, range, t)?)?;
    let rest = of(BinaryKind::Add, rest, bit)?;
    let below = cx.compare(CompareKind::Lt, rest, number(0)?)?;
    cx.select(below, of(BinaryKind::Add, rest, range)?, rest)
}

/// The spacing of a float's numbers at an integer, which has at least its mantissa's bits.
fn spacing(d: DType, at: i64) -> i64 {
    let mantissa = match d {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        _ => 8,
    };
    1 << (63 - i64::from(at.unsigned_abs().leading_zeros()) - mantissa + 1).max(0)
}

/// The bound that no number of the dtype falls below by rounding: ATen's `update_from`.
fn least_of(d: DType, from: i64) -> i64 {
    let next = d.round((from + 1) as f64) as i64;
    if next < from { next + spacing(d, from + 1) } else { from }
}

/// The bound that no number of the dtype reaches by rounding: ATen's `update_to`.
fn most_of(d: DType, to: i64) -> i64 {
    let last = d.round((to - 1) as f64) as i64;
    if last >= to { last - spacing(d, to - 1) } else { to }
}
