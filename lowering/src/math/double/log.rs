//! Logarithms in f64, as in Sun's fdlibm: x = 2^n (1 + f) with 1 + f between sqrt 1/2 and sqrt 2.
//! ln(1 + f) is the series of atanh in s = f / (2 + f). Its larger part, f - f^2 / 2, is kept
//! separate.
use crate::math::{
    double::pair::{Pair, fast_sum, small_float, sum, times},
    emit::{Emit, Res},
};
use kiln_dialects::{Result, ir::Value};

/// Minimax polynomial in s^2 of (ln((1 + s) / (1 - s)) - 2 s) / s^3; error 2^-59.5 relative to the
/// result.
const LOG: [f64; 7] = [
    0.14796681192713318,
    0.1531398143564077,
    0.18183566859384417,
    0.22222198527999665,
    0.2857142874278849,
    0.39999999999413094,
    0.6666666666666735,
];
/// Bit pattern of sqrt 1/2.
const SQRT_HALF: i64 = 0x3fe6a09e667f3bcd;
/// ln 2 and log10 2 as Cody-Waite pairs; products of the high part with an 11-bit n are exact.
const LN2: (f64, f64) = (0.6931471803691238, 1.9082149292705877e-10);
const LOG10_2: (f64, f64) = (0.3010299955494702, 1.1451100898021838e-10);
/// 1 / ln 2 and 1 / ln 10 in double-double precision.
const LOG2E: (f64, f64) = (std::f64::consts::LOG2_E, 2.0355273740931033e-17);
const LOG10E: (f64, f64) = (std::f64::consts::LOG10_E, 1.098319650216765e-17);

/// Parts of a logarithm: n, f, f^2 / 2, and ln(1 + f) - f + f^2 / 2.
struct Parts {
    n: Value,
    f: Value,
    half: Value,
    rest: Value,
}

/// Splits x > 0; for any other x the parts are arbitrary and [`special`] replaces the result.
fn parts(e: &Emit, x: Value) -> Result<Parts> {
    let subnormal = e.lt(x, e.c(f64::MIN_POSITIVE)?)?;
    let x = e.select(subnormal, e.mul(x, e.c(f64::powi(2.0, 54))?)?, x)?;
    let bits = e.bits(x)?;
    let n = e.shr(e.isub(bits, e.i(SQRT_HALF)?)?, 52)?;
    let f = e.sub(e.float(e.isub(bits, e.shl(n, 52)?)?)?, e.c(1.0)?)?;
    let n = small_float(e, n)?;
    let n = e.select(subnormal, e.sub(n, e.c(54.0)?)?, n)?;
    let s = e.div(f, e.add(f, e.c(2.0)?)?)?;
    let z = e.mul(s, s)?;
    let half = e.mul(e.mul(f, e.c(0.5)?)?, f)?;
    let rest = e.mul(s, e.fma(z, e.poly(z, &LOG)?, half)?)?;
    Ok(Parts { n, f, half, rest })
}

/// Special cases: -infinity at 0, NaN for negative x and NaN, infinity at infinity.
fn special(e: &Emit, x: Value, y: Value) -> Res {
    let (zero, inf) = (e.c(0.0)?, e.c(f64::INFINITY)?);
    let not_above = e.select(e.eq(x, zero)?, e.c(f64::NEG_INFINITY)?, e.c(f64::NAN)?)?;
    let y = e.select(e.gt(x, zero)?, y, not_above)?;
    e.select(e.eq(x, inf)?, inf, y)
}

/// ln x + more, for x > 0 and a small `more`.
fn positive_log(e: &Emit, x: Value, more: Option<Value>) -> Res {
    let Parts { n, f, half, rest } = parts(e, x)?;
    let low = e.fmac(n, LN2.1, rest)?;
    let low = more.map_or(Ok(low), |m| e.add(low, m))?;
    e.fmac(n, LN2.0, e.sub(f, e.sub(half, low)?)?)
}

pub fn log(e: &Emit, x: Value) -> Res {
    special(e, x, positive_log(e, x, None)?)
}

/// n `unit` + ln(1 + f) `factor`.
fn other_base(e: &Emit, x: Value, unit: (f64, f64), factor: (f64, f64)) -> Res {
    let Parts { n, f, half, rest } = parts(e, x)?;
    let main = e.sub(f, half)?;
    let low = e.add(e.sub(e.sub(f, main)?, half)?, rest)?;
    let part = times(e, Pair { hi: main, lo: low }, factor)?;
    let total = fast_sum(e, e.mul(n, e.c(unit.0)?)?, part.hi)?;
    special(e, x, e.add(total.hi, e.fmac(n, unit.1, e.add(total.lo, part.lo)?)?)?)
}

pub fn log2(e: &Emit, x: Value) -> Res {
    other_base(e, x, (1.0, 0.0), LOG2E)
}

pub fn log10(e: &Emit, x: Value) -> Res {
    other_base(e, x, LOG10_2, LOG10E)
}

/// ln(1 + x) = ln(u) + d / u, where u is 1 + x rounded and d the rounding error.
pub fn log1p(e: &Emit, x: Value) -> Res {
    let u = sum(e, e.c(1.0)?, x)?;
    let y = positive_log(e, u.hi, Some(e.div(u.lo, u.hi)?))?;
    let tiny = e.lt(e.abs(x)?, e.c(f64::powi(2.0, -54))?)?;
    e.select(tiny, x, special(e, u.hi, y)?)
}
