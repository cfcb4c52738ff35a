//! `kiln-gpu-math`: what a GPU's hardware helps with: exponentials, pairs rounded to bf16, and remainders without a library.
//!
//! Why: a GPU has 2^x as one instruction, and its code generator's remainder is wrong where the rounded quotient is the next integer. What is left is
//! arithmetic of `kiln-expand-math`, which runs next and keeps `math.exp2`.
//!
//! A pair that is rounded to bf16 and widened at once stays a pair: the hardware rounds two numbers as fast as it copies them, but LLVM would take them apart,
//! and single conversions are 16 times slower.
//!
//! Numerics: approximates. exp is within 3.5 units in the last place, 2^x within 2 (NVIDIA's table of `ex2.approx.f32`). A remainder is exact while the
//! quotient is below 2^52; beyond that it is unspecified.
//!
//! ```text
//! before:  %y = math.exp %x : vector<4xf32>
//! after:   %p = x log2(e) rounded   %r = what the rounding took   %e = math.exp2 %p   %y = %e (1 + r ln 2)
//! ```
use crate::host::expand_math::emit::{Emit, Res};
use kiln_dialects::{
    ir::*,
    rules::{LEVELS, Level},
    value::DType,
};
use kiln_passes::{Failure, Numerics, Pass};
use std::f64::consts::{LN_2, LOG2_E};

kiln_passes::pass_options! {
    /// The pass.
    pub struct GpuMath {}
}

impl Pass for GpuMath {
    const FLAG: &'static str = "kiln-gpu-math";
    const SUMMARY: &'static str =
        "Writes exponentials by the hardware's 2^x, roundings of pairs as pairs, and float remainders as arithmetic";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Approximates;
    const REQUIRED: bool = true;
    const DIALECTS: &'static [&'static str] = &["arith", "math", "vector"];

    fn run(&self, root: Op) -> Result<(), Failure> {
        for op in walk(root).into_iter().filter(|o| is_rounded_pair(*o)) {
            let Some(b) = Builder::before(op) else { continue };
            op.result(0).replace_uses(halves(&b, op.operand(0)).map_err(|e| Failure::at(op, e))?);
            op.erase();
        }
        for op in walk(root).into_iter().filter(|o| o.is("math.exp") || o.is("arith.remf")) {
            let Some(b) = Builder::before(op) else { continue };
            let new = match (op.is("math.exp"), Emit::new(b, op.result(0).ty(), "f32"), Emit::new(b, op.result(0).ty(), "f64")) {
                (true, Some(e), _) => exp(&e, op.operand(0)),
                (false, Some(e), _) => narrow_remainder(&e, op.operand(0), op.operand(1)),
                (false, _, Some(e)) => remainder(&e.wide(), op.operand(0), op.operand(1)),
                _ => continue,
            };
            op.result(0).replace_uses(new.map_err(|e| Failure::at(op, e))?);
            op.erase();
        }
        Ok(())
    }
}

/// Whether an op widens two bf16 that were f32 just before.
fn is_rounded_pair(op: Op) -> bool {
    let pair =
        op.is("arith.extf") && op.result(0).ty().to_string() == "vector<2xf32>" && op.operand(0).ty().to_string() == "vector<2xbf16>";
    pair && op.operand(0).def().is_some_and(|d| d.is("arith.truncf"))
}

/// Two bf16 as f32: either half of 32 bits is the upper half of an f32.
fn halves(b: &Builder, pair: Value) -> Res {
    let c = b.ctx;
    let (i32, f32) = (Type::scalar(c, DType::I32), Type::scalar(c, DType::F32));
    let make = |name: &str, operands: &[Value], ty: Type, attrs: &[(&str, Attr)]| -> Res {
        Ok(b.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
    };
    let number = |n: i64| make("arith.constant", &[], i32, &[("value", Attr::scalar_int(c, DType::I32, n))]);
    let both = make("vector.bitcast", &[pair], Type::vector(i32, 1), &[])?;
    let both = make("vector.extract", &[both], i32, &[("static_position", Attr::i64s(c, &[0]))])?;
    let low = make("arith.shli", &[both, number(16)?], i32, &[])?;
    let high = make("arith.andi", &[both, number(-0x10000)?], i32, &[])?;
    let floats = [make("arith.bitcast", &[low], f32, &[])?, make("arith.bitcast", &[high], f32, &[])?];
    make("vector.from_elements", &floats, Type::vector(f32, 2), &[])
}

/// The product with log2(e) in two parts: the exponent, and a factor near 1 for what its rounding took.
fn exp(e: &Emit, x: Value) -> Res {
    let high = f64::from(LOG2_E as f32);
    // Keeps the second part finite; beyond these ends the result is 0 or infinity.
    let x = e.clamp(x, -104.5, 89.0)?;
    let y = e.mul(x, e.c(high)?)?;
    let rest = e.fmac(x, high, e.neg(y)?)?;
    let rest = e.fmac(x, LOG2_E - high, rest)?;
    e.mul(e.same("math.exp2", &[y])?, e.fmac(rest, LN_2, e.c(1.0)?)?)
}

/// Of f32, by way of f64, in which more quotients are exact.
fn narrow_remainder(e: &Emit, x: Value, y: Value) -> Res {
    let w = e.wide();
    let r = remainder(&w, e.extend(x, "f64")?, e.extend(y, "f64")?)?;
    e.truncate(r, "f32")
}

/// x - trunc(x / y) y, whose quotient may be the next integer when it has been rounded.
fn remainder(w: &Emit, x: Value, y: Value) -> Res {
    let size = w.abs(y)?;
    let quotient = w.same("math.trunc", &[w.div(x, y)?])?;
    let r = w.fma(w.neg(quotient)?, y, x)?;
    let step = w.copysign(size, x)?;
    let (zero, one) = (w.c(0.0)?, w.copysign(w.c(1.0)?, x)?);
    let beyond = w.lt(w.mul(r, one)?, zero)?;
    let r = w.select(beyond, w.add(r, step)?, r)?;
    let again = w.ge(w.abs(r)?, size)?;
    let r = w.select(again, w.sub(r, step)?, r)?;
    // Anything finite is its own remainder by infinity.
    let inf = w.c(f64::INFINITY)?;
    let whole = w.and(w.eq(size, inf)?, w.lt(w.abs(x)?, inf)?)?;
    w.copysign(w.select(whole, x, r)?, x)
}
