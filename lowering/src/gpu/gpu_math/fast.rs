//! `fast-math`: f32 functions as one approximate instruction, or a few around one.
//!
//! Errors, from NVIDIA's tables (PTX ISA, "Floating Point Instructions") and the roundings around
//! the instructions: logarithms 2^-22 absolute for arguments from 0.5 to 2 and relative beyond,
//! square roots 2^-23 and their reciprocals 2^-22 relative, tanh 2.5e-7 absolute, sine and cosine
//! 1e-6 absolute for arguments up to 1000, and |x| 2^-24 more for larger ones.
use crate::math::emit::{Emit, Res};
use kiln_dialects::ir::*;
use std::f64::consts::{LN_2, LOG2_E, LOG10_2, TAU};

/// Ops with a `fast-math` form, besides those with a form for 16-bit results.
pub const FUNCTIONS: &[&str] = &[
    math::Cos::NAME,
    math::Log::NAME,
    math::Log10::NAME,
    math::Log2::NAME,
    math::Rsqrt::NAME,
    math::Sin::NAME,
    math::Sqrt::NAME,
    math::Tanh::NAME,
];

/// Emits the approximation of one of [`FUNCTIONS`]; `None` for any other op.
pub fn fast(e: &Emit, name: &str, x: Value) -> Result<Option<Value>> {
    let log2 = || math::Log2::new(e, x).fastmath(FastMathFlags::AFN).result();
    match name {
        math::Log2::NAME => log2(),
        math::Log::NAME => e.mul(log2()?, e.c(LN_2)?),
        math::Log10::NAME => e.mul(log2()?, e.c(LOG10_2)?),
        math::Sqrt::NAME => math::Sqrt::new(e, x).fastmath(FastMathFlags::AFN).result(),
        math::Rsqrt::NAME => math::Rsqrt::new(e, x).fastmath(FastMathFlags::AFN).result(),
        math::Sin::NAME => {
            math::Sin::new(e, reduced_angle(e, x)?).fastmath(FastMathFlags::AFN).result()
        }
        math::Cos::NAME => {
            math::Cos::new(e, reduced_angle(e, x)?).fastmath(FastMathFlags::AFN).result()
        }
        math::Tanh::NAME => tanh(e, x),
        _ => return Ok(None),
    }
    .map(Some)
}

/// An angle modulo 2 pi, with 2 pi as a Cody-Waite pair; an FMA computes the high part's product
/// exactly.
fn reduced_angle(e: &Emit, x: Value) -> Res {
    let turns = e.floor(e.fmac(x, 1.0 / TAU, e.c(0.5)?)?)?;
    let high = f64::from(TAU as f32);
    let rest = e.fmac(turns, -high, x)?;
    e.fmac(turns, high - TAU, rest)
}

/// 1 - 2 / (e^2|x| + 1), with the sign of x.
fn tanh(e: &Emit, x: Value) -> Res {
    let power = super::near_exp2(e, e.mul(e.abs(x)?, e.c(2.0 * LOG2_E)?)?)?;
    let reciprocal = super::reciprocal(e, e.c(1.0)?, e.add(power, e.c(1.0)?)?)?;
    e.copysign(e.fmac(reciprocal, -2.0, e.c(1.0)?)?, x)
}
