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
    "math.cos",
    "math.log",
    "math.log10",
    "math.log2",
    "math.rsqrt",
    "math.sin",
    "math.sqrt",
    "math.tanh",
];

/// Emits the approximation of one of [`FUNCTIONS`]; `None` for any other op.
pub fn fast(e: &Emit, name: &str, x: Value) -> Result<Option<Value>> {
    let log2 = || e.approximate("math.log2", &[x], "afn");
    match name {
        "math.log2" => log2(),
        "math.log" => e.mul(log2()?, e.c(LN_2)?),
        "math.log10" => e.mul(log2()?, e.c(LOG10_2)?),
        "math.sqrt" | "math.rsqrt" => e.approximate(name, &[x], "afn"),
        "math.sin" | "math.cos" => e.approximate(name, &[turned(e, x)?], "afn"),
        "math.tanh" => tanh(e, x),
        _ => return Ok(None),
    }
    .map(Some)
}

/// An angle modulo 2 pi, with 2 pi as a Cody-Waite pair; an FMA computes the high part's product
/// exactly.
fn turned(e: &Emit, x: Value) -> Res {
    let turns = e.floor(e.fmac(x, 1.0 / TAU, e.c(0.5)?)?)?;
    let high = f64::from(TAU as f32);
    let rest = e.fmac(turns, -high, x)?;
    e.fmac(turns, high - TAU, rest)
}

/// 1 - 2 / (e^2|x| + 1), with the sign of x.
fn tanh(e: &Emit, x: Value) -> Res {
    let power = e.approximate("math.exp2", &[e.mul(e.abs(x)?, e.c(2.0 * LOG2_E)?)?], "afn")?;
    let reciprocal =
        e.approximate("arith.divf", &[e.c(1.0)?, e.add(power, e.c(1.0)?)?], "arcp,afn")?;
    e.copysign(e.fmac(reciprocal, -2.0, e.c(1.0)?)?, x)
}
