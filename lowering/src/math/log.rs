//! Logarithms in f32, after Cephes' `logf`, `log2f` and `log10f` (S. Moshier): x = 2^n (1 + f) with
//! 1 + f between sqrt 1/2 and sqrt 2.
use crate::math::emit::{Emit, Res};
use kiln_dialects::{Result, ir::Value};

/// Polynomial of (ln(1 + f) - f + f^2 / 2) / f^3.
const LOG: [f64; 9] = [
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
];
/// Bit pattern of sqrt 1/2.
const SQRT_HALF: i64 = 0x3f3504f3;

/// Parts of a logarithm: n, f, and ln(1 + f) - f.
struct Parts {
    n: Value,
    f: Value,
    rest: Value,
}

/// Splits x > 0; for any other x the parts are arbitrary and [`special`] replaces the result.
fn parts(e: &Emit, x: Value) -> Result<Parts> {
    let subnormal = e.lt(x, e.c(f32::MIN_POSITIVE as f64)?)?;
    let x = e.select(subnormal, e.mul(x, e.c(f64::powi(2.0, 23))?)?, x)?;
    let bits = e.bits(x)?;
    let n = e.shr(e.isub(bits, e.i(SQRT_HALF)?)?, 23)?;
    let f = e.sub(e.float(e.isub(bits, e.shl(n, 23)?)?)?, e.c(1.0)?)?;
    let n = e.to_float(n)?;
    let n = e.select(subnormal, e.sub(n, e.c(23.0)?)?, n)?;
    let z = e.mul(f, f)?;
    let cubic = e.mul(e.mul(e.poly(f, &LOG)?, f)?, z)?;
    Ok(Parts { n, f, rest: e.fmac(z, -0.5, cubic)? })
}

/// Special cases: -infinity at 0, NaN for negative x and NaN, infinity at infinity.
fn special(e: &Emit, x: Value, y: Value) -> Res {
    let (zero, inf) = (e.c(0.0)?, e.c(f64::INFINITY)?);
    let not_above = e.select(e.eq(x, zero)?, e.c(f64::NEG_INFINITY)?, e.c(f64::NAN)?)?;
    let y = e.select(e.gt(x, zero)?, y, not_above)?;
    e.select(e.eq(x, inf)?, inf, y)
}

fn positive_log(e: &Emit, x: Value) -> Res {
    let Parts { n, f, rest } = parts(e, x)?;
    let y = e.add(f, e.fmac(n, -2.12194440e-4, rest)?)?;
    e.fmac(n, 0.693359375, y)
}

pub fn log(e: &Emit, x: Value) -> Res {
    special(e, x, positive_log(e, x)?)
}

pub fn log2(e: &Emit, x: Value) -> Res {
    let Parts { n, f, rest } = parts(e, x)?;
    // 1 / ln 2 = 1 + more: the rounding errors of the products stay below one ulp of f.
    let more = std::f64::consts::LOG2_E - 1.0;
    let y = e.fmac(f, more, e.fmac(rest, more, rest)?)?;
    special(e, x, e.add(e.add(y, f)?, n)?)
}

pub fn log10(e: &Emit, x: Value) -> Res {
    let Parts { n, f, rest } = parts(e, x)?;
    // 1 / ln 10 and log10 2 as Cody-Waite pairs, the high part with few bits.
    let y = e.mul(e.add(f, rest)?, e.c(7.007319032518276e-4)?)?;
    let y = e.fmac(f, 4.3359375e-1, e.fmac(rest, 4.3359375e-1, y)?)?;
    special(e, x, e.fmac(n, 3.0078125e-1, e.fmac(n, 2.487456639811952e-4, y)?)?)
}

/// ln(1 + x) = ln(u) + d / u, where u is 1 + x rounded and d the rounding error.
pub fn log1p(e: &Emit, x: Value) -> Res {
    let one = e.c(1.0)?;
    let u = e.add(x, one)?;
    let lost = e.sub(x, e.sub(u, one)?)?;
    let y = e.add(positive_log(e, u)?, e.div(lost, u)?)?;
    let tiny = e.lt(e.abs(x)?, e.c(f64::powi(2.0, -25))?)?;
    e.select(tiny, x, special(e, u, y)?)
}
