//! x^y in f64 as 2^(y log2 |x|). The logarithm and the product are double-double: the result has as
//! many correct bits as the logarithm has beyond those of the exponent.
use crate::math::{
    double::{
        exp::small_expm1,
        pair::{Pair, fast_sum, product, small_float, sum},
    },
    emit::{Emit, Res},
    pow::special_cases,
};
use kiln_dialects::{Result, ir::Value};
use std::f64::consts::LN_2;

/// Minimax polynomial in s^2 of log2((1 + s) / (1 - s)) / s less its first two terms, over s^4;
/// error 2^-73.6 relative to the result.
const LOG2: [f64; 8] = [
    0.17297256130613703,
    0.1684311107337493,
    0.19240243502501178,
    0.22195223787715612,
    0.2623081992023952,
    0.3205988979075869,
    0.4121985831113716,
    0.5770780163555851,
];
/// The first two terms, 2 / ln 2 and 2 / (3 ln 2), and ln 2, as double-double constants.
const FIRST: (f64, f64) = (2.8853900817779268, 4.0710547481862066e-17);
const SECOND: (f64, f64) = (0.9617966939259756, 5.0577616648125907e-17);
const LN2_LO: f64 = 2.3190468138462996e-17;
/// Bit pattern of sqrt 1/2.
const SQRT_HALF: i64 = 0x3fe6a09e667f3bcd;

/// log2 of an x > 0, to about 2^-65.
fn log2(e: &Emit, x: Value) -> Result<Pair> {
    let subnormal = e.lt(x, e.c(f64::MIN_POSITIVE)?)?;
    let x = e.select(subnormal, e.mul(x, e.c(f64::powi(2.0, 54))?)?, x)?;
    let bits = e.bits(x)?;
    let n = e.shr(e.isub(bits, e.i(SQRT_HALF)?)?, 52)?;
    let m = e.float(e.isub(bits, e.shl(n, 52)?)?)?;
    let n = small_float(e, n)?;
    let n = e.select(subnormal, e.sub(n, e.c(54.0)?)?, n)?;
    // s = (m - 1) / (m + 1), with the rounding error of the division.
    let one = e.c(1.0)?;
    let (above, below) = (e.sub(m, one)?, sum(e, m, one)?);
    let s = e.div(above, below.hi)?;
    let left = e.sub(e.fma(e.neg(s)?, below.hi, above)?, e.mul(s, below.lo)?)?;
    let s = Pair { hi: s, lo: e.div(left, below.hi)? };
    let z = product(e, s.hi, s.hi)?;
    let z = Pair { hi: z.hi, lo: e.fma(e.add(s.hi, s.hi)?, s.lo, z.lo)? };
    // FIRST + SECOND z + z^2 ….
    let more = e.mul(e.mul(z.hi, z.hi)?, e.poly(z.hi, &LOG2)?)?;
    let second = product(e, z.hi, e.c(SECOND.0)?)?;
    let second_lo = e.fmac(z.lo, SECOND.0, e.fmac(z.hi, SECOND.1, second.lo)?)?;
    let factor = fast_sum(e, e.c(FIRST.0)?, second.hi)?;
    let low = e.add(e.add(factor.lo, e.c(FIRST.1)?)?, e.add(second_lo, more)?)?;
    let factor = fast_sum(e, factor.hi, low)?;
    let y = product(e, s.hi, factor.hi)?;
    let low = e.fma(s.lo, factor.hi, e.fma(s.hi, factor.lo, y.lo)?)?;
    let total = fast_sum(e, n, y.hi)?;
    fast_sum(e, total.hi, e.add(total.lo, low)?)
}

/// 2^(t.hi + t.lo).
fn exp2(e: &Emit, t: Pair) -> Res {
    let (n, bits) = e.round(t.hi)?;
    let fraction = e.sub(t.hi, n)?;
    let r = product(e, fraction, e.c(LN_2)?)?;
    let low = e.fmac(t.lo, LN_2, e.fmac(fraction, LN2_LO, r.lo)?)?;
    let y = small_expm1(e, r.hi)?;
    let y = e.add(y, e.fma(low, y, low)?)?;
    e.scale(e.add(y, e.c(1.0)?)?, (n, bits), 0)
}

pub fn powf(e: &Emit, x: Value, y: Value) -> Res {
    let (zero, one, inf) = (e.c(0.0)?, e.c(1.0)?, e.c(f64::INFINITY)?);
    let ax = e.abs(x)?;
    let l = log2(e, ax)?;
    let is_inf = e.eq(ax, inf)?;
    let edge = e.or(is_inf, e.eq(ax, zero)?)?;
    let high = e.select(edge, e.select(is_inf, inf, e.neg(inf)?)?, l.hi)?;
    let t = e.mul(high, y)?;
    // 0 times infinity: 1 to any power is 1.
    let t = e.select(e.eq(ax, one)?, zero, t)?;
    let low = e.fma(high, y, e.neg(t)?)?;
    let low = e.fma(l.lo, y, low)?;
    // Beyond |t| = 1100 every result is 0 or infinity.
    let near = e.and(e.lt(e.abs(t)?, e.c(1100.0)?)?, e.ne(ax, one)?)?;
    let power = exp2(e, Pair { hi: e.clamp(t, -1100.0, 1100.0)?, lo: e.select(near, low, zero)? })?;
    special_cases(e, x, y, ax, power)
}
