//! Trigonometric functions in f64.
use crate::math::{
    double::pair::{Pair, product, sum, times},
    emit::{Emit, Res},
    trig::{quadrant_sin, quadrant_tan},
};
use kiln_dialects::{Result, ir::*};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// pi/2 as a sum of three f64 (Cody-Waite); error 2^-161 relative to pi/2.
const PI_2: [f64; 3] = [FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];
/// Largest |x| for Cody-Waite reduction; beyond it, Payne-Hanek.
const NEAR: f64 = (1u64 << 30) as f64;
/// 64 zero bits, then the first fraction bits of 2/pi.
#[rustfmt::skip]
const TWO_OVER_PI: [u64; 21] = [
    0,
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d,
];
/// Minimax polynomial in r^2 of (sin(r) - r) / r^3 for |r| <= pi/4; error 2^-58.0 relative to the
/// result.
const SIN: [f64; 6] = [
    1.589678532497111e-10,
    -2.5050757947636985e-08,
    2.755731369093864e-06,
    -0.00019841269829805382,
    0.008333333333322411,
    -0.16666666666666632,
];
/// Minimax polynomial in r^2 of (cos(r) - 1 + r^2/2) / r^4 for |r| <= pi/4; error 2^-64.2 relative
/// to the result.
const COS: [f64; 6] = [
    -1.1359645893911254e-11,
    2.0875723239385784e-09,
    -2.7557314352107174e-07,
    2.48015872894815e-05,
    -0.0013888888888874123,
    0.0416666666666666,
];

/// Range reduction: x modulo pi/2, and the quadrant in the low bits of an integer. No f64 is closer
/// than 2^-61 to a multiple of pi/2, so the double-double has at least f64's precision.
fn reduce(e: &Emit, x: Value) -> Result<(Pair, Value)> {
    let (n, bits) = e.round(e.mul(x, e.c(FRAC_2_PI)?)?)?;
    let (first, second) = (product(e, n, e.c(PI_2[0])?)?, product(e, n, e.c(PI_2[1])?)?);
    let a = sum(e, e.sub(x, first.hi)?, e.neg(first.lo)?)?;
    let b = sum(e, a.hi, e.neg(second.hi)?)?;
    let low = e.fmac(n, -PI_2[2], e.sub(e.add(a.lo, b.lo)?, second.lo)?)?;
    let r = sum(e, b.hi, low)?;
    let ax = e.abs(x)?;
    let far = e.and(e.gt(ax, e.c(NEAR)?)?, e.lt(ax, e.c(f64::INFINITY)?)?)?;
    // A branch, since arguments this large are rare.
    let all = e.branch(e.any(far)?, &[r.hi, r.lo, bits], &mut |e| {
        let types = [r.hi.ty(), r.lo.ty(), bits.ty()];
        let all = e.rare("reduce_far", &[x], &types, &mut |e, x| {
            let (r, n) = reduce_far(e, x[0])?;
            Ok(vec![r.hi, r.lo, n])
        })?;
        [r.hi, r.lo, bits].iter().zip(all).map(|(near, all)| e.select(far, all, *near)).collect()
    })?;
    Ok((Pair { hi: all[0], lo: all[1] }, all[2]))
}

/// Payne-Hanek reduction beyond [`NEAR`]: computes only the two quadrant bits of x 2/pi and its
/// fraction.
fn reduce_far(e: &Emit, x: Value) -> Result<(Pair, Value)> {
    let bits = e.bits(e.abs(x)?)?;
    // |x| is m 2^exponent with m in [1, 2) and an exponent from 30 to 1023.
    let exponent = e.isub(e.shr(bits, 52)?, e.i(1023)?)?;
    let m = e.float(e.or(e.and(bits, e.i((1 << 52) - 1)?)?, e.i(1023 << 52)?)?)?;
    // m has 52 fraction bits, so bits of 2/pi 2^exponent from 2^54 on give whole turns. The window
    // starts at 2^53.
    let start = e.iadd(exponent, e.i(10)?)?;
    let (word, shift) = (e.shr(start, 6)?, e.and(start, e.i(63)?)?);
    let index_bits =
        (0..5).map(|k| e.nonzero(e.and(word, e.i(1 << k)?)?)).collect::<Result<Vec<_>, _>>()?;
    // Word `word` + k by a binary tree of selects; `word` is 0 to 16.
    let at = |k: usize| -> Res {
        let mut all =
            (0..17).map(|i| e.i(TWO_OVER_PI[i + k] as i64)).collect::<Result<Vec<_>, _>>()?;
        for bit in &index_bits {
            let halved = all.chunks(2).map(|pair| match pair {
                [even, odd] => e.select(*bit, *odd, *even),
                rest => Ok(rest[0]),
            });
            all = halved.collect::<Result<Vec<_>, _>>()?;
        }
        Ok(all[0])
    };
    let words = [at(0)?, at(1)?, at(2)?, at(3)?];
    let back = e.isub(e.i(63)?, shift)?;
    let mut parts = vec![];
    for k in 0..3 {
        let upper = arith::shli(e, words[k], shift)?;
        let lower = arith::shrui(e, e.shift_right(words[k + 1], 1)?, back)?;
        let whole = e.or(upper, lower)?;
        // 32 bits each, converted to float by or-ing them into the mantissa of 2^52.
        for (i, half) in
            [e.shift_right(whole, 32)?, e.and(whole, e.i(0xffff_ffff)?)?].into_iter().enumerate()
        {
            let tick = f64::powi(2.0, 52);
            let number = e.sub(e.float(e.or(half, e.i(tick.to_bits() as i64)?)?)?, e.c(tick)?)?;
            parts.push(product(
                e,
                m,
                e.mul(number, e.c(f64::powi(2.0, 22 - 32 * (2 * k + i) as i32))?)?,
            )?);
        }
    }
    let turns = |a: Value| e.sub(a, e.mul(e.floor(e.mul(a, e.c(0.25)?)?)?, e.c(4.0)?)?);
    // The first sum is exact: all terms are multiples of 2^-30.
    let whole = e.add(turns(parts[0].hi)?, parts[0].lo)?;
    let total = sum(e, whole, turns(parts[1].hi)?)?;
    let (n, n_bits) = e.round(total.hi)?;
    let mut r = sum(e, e.sub(total.hi, n)?, total.lo)?;
    for part in [parts[2].hi, parts[1].lo, parts[3].hi] {
        let next = sum(e, r.hi, part)?;
        r = Pair { hi: next.hi, lo: e.add(r.lo, next.lo)? };
    }
    for part in [parts[2].lo, parts[4].hi, parts[3].lo, parts[5].hi] {
        r.lo = e.add(r.lo, part)?;
    }
    let r = times(e, sum(e, r.hi, r.lo)?, (PI_2[0], PI_2[1]))?;
    let negative = e.lt(x, e.c(0.0)?)?;
    let flip = |v: Value| e.select(negative, e.neg(v)?, v);
    Ok((
        Pair { hi: flip(r.hi)?, lo: flip(r.lo)? },
        e.select(negative, e.isub(e.i(0)?, n_bits)?, n_bits)?,
    ))
}

/// sin and cos of x modulo pi/2, and the quadrant.
fn quarter(e: &Emit, x: Value) -> Result<(Value, Value, Value)> {
    let (r, bits) = reduce(e, x)?;
    let (s, c) = reduced(e, r)?;
    Ok((s, c, bits))
}

/// sin and cos of an r of at most pi/4.
pub fn reduced(e: &Emit, r: Pair) -> Result<(Value, Value)> {
    let z = e.mul(r.hi, r.hi)?;
    let half = e.mul(z, e.c(0.5)?)?;
    let one = e.c(1.0)?;
    let low = e.mul(r.lo, e.sub(one, half)?)?;
    let s = e.add(r.hi, e.fma(e.mul(r.hi, z)?, e.poly(z, &SIN)?, low)?)?;
    let most = e.sub(one, half)?;
    let lost = e.sub(e.sub(one, most)?, half)?;
    let rest = e.sub(e.mul(e.mul(z, z)?, e.poly(z, &COS)?)?, e.mul(r.hi, r.lo)?)?;
    Ok((s, e.add(most, e.add(lost, rest)?)?))
}

pub fn sin(e: &Emit, x: Value) -> Res {
    e.unless_tiny(x, quadrant_sin(e, e, quarter(e, x)?, 0)?)
}

pub fn cos(e: &Emit, x: Value) -> Res {
    quadrant_sin(e, e, quarter(e, x)?, 1)
}

pub fn tan(e: &Emit, x: Value) -> Res {
    e.unless_tiny(x, quadrant_tan(e, e, quarter(e, x)?)?)
}
