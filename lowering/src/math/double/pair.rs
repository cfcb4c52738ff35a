//! Double-double arithmetic: an unevaluated sum of two f64, the second below one ulp of the first.
//! After T. J. Dekker, "A Floating-Point Technique for Extending the Available Precision" (1971),
//! with products by fused multiply-add.
use crate::math::emit::{Emit, Res};
use kiln_dialects::{Result, ir::Value};

/// A double-double number, hi + lo.
#[derive(Clone, Copy)]
pub struct Pair {
    pub hi: Value,
    pub lo: Value,
}

/// a + b without error.
pub fn sum(e: &Emit, a: Value, b: Value) -> Result<Pair> {
    let hi = e.add(a, b)?;
    let of_b = e.sub(hi, a)?;
    let lo = e.add(e.sub(a, e.sub(hi, of_b)?)?, e.sub(b, of_b)?)?;
    Ok(Pair { hi, lo })
}

/// a + b without error, for |a| >= |b| or a = 0.
pub fn fast_sum(e: &Emit, a: Value, b: Value) -> Result<Pair> {
    let hi = e.add(a, b)?;
    Ok(Pair { hi, lo: e.sub(b, e.sub(hi, a)?)? })
}

/// a b without error, unless it underflows.
pub fn product(e: &Emit, a: Value, b: Value) -> Result<Pair> {
    let hi = e.mul(a, b)?;
    Ok(Pair { hi, lo: e.fma(a, b, e.neg(hi)?)? })
}

/// A double-double times a double-double constant.
pub fn times(e: &Emit, a: Pair, (hi, lo): (f64, f64)) -> Result<Pair> {
    let p = product(e, a.hi, e.c(hi)?)?;
    fast_sum(e, p.hi, e.fmac(a.lo, hi, e.fmac(a.hi, lo, p.lo)?)?)
}

/// A small integer as f64, by adding a magic number: AVX2 has no conversion of 64-bit integers.
pub fn small_float(e: &Emit, n: Value) -> Res {
    let magic = 6755399441055744.0f64;
    e.sub(e.float(e.iadd(n, e.i(magic.to_bits() as i64)?)?)?, e.c(magic)?)
}
