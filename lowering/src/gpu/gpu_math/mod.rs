//! `kiln-gpu-math`: what a GPU's hardware helps with: exponentials and what is made of them,
//! quotients and pairs rounded to bf16.
//!
//! Why: a GPU has 2^x and 1/x as one instruction each. What is left is arithmetic of
//! `kiln-expand-math`, which runs next and keeps `math.exp2`. An op with fast-math flags is one
//! instruction from `kiln-gpu-abi` on.
//!
//! A pair that is rounded to bf16 and widened at once stays a pair: the hardware rounds two numbers
//! as fast as it copies them, but LLVM would take them apart, and single conversions are 16 times
//! slower.
//!
//! Numerics: approximates. exp is within 3.5 units in the last place, tanh and erf within 4, 2^x
//! within 2 (NVIDIA's table of `ex2.approx.f32`). Where 1 is added to e^x it is left to
//! `kiln-expand-math`, which uses nothing that approximates, so that a sigmoid is within 4, too. In
//! a kernel all of whose results are floats of 16 bits, and that rounds nothing to integers,
//! exponentials, quotients and erf of f32 have relative errors of at most 2^-16, and subnormal ones
//! count as zero: that is far below what the results are rounded by. Where 1 is added to erf at
//! once, its absolute error is at most 1.6e-7. With `fast` every kernel takes these forms, and more
//! functions have one (`gpu_math/fast.rs` states their errors).
//!
//! ```text
//! before:  %y = math.exp %x : vector<4xf32>
//! after:   %p = x log2(e) rounded   %r = what the rounding took   %e = math.exp2 %p   %y = %e + %e r ln 2
//! or, for results of bf16:   %p = x log2(e)   %y = math.exp2 %p fastmath<afn>
//! ```
pub(crate) mod fast;

use crate::strategies::{SCHEDULE, Strategy as _, gpu::wgmma_gemm::WgmmaGemm};
use crate::{
    math::approximation::approximation,
    math::{
        emit::{Emit, Res},
        exp::TANH,
    },
    target::kernel_attrs::NOALIAS,
};
use kiln_dialects::{
    ir::*,
    rules::{LEVELS, Level},
    value::DType,
};
use kiln_passes::{Numerics, Pass};
use std::f64::consts::{LN_2, LOG2_E};

kiln_passes::pass_options! {
    /// The pass.
    pub struct GpuMath {
        /// Whether f32 too is computed by the hardware's approximations
        pub fast: bool = false,
    }
}

impl Pass for GpuMath {
    const FLAG: &'static str = "kiln-gpu-math";
    const SUMMARY: &'static str =
        "Writes exponentials by the hardware's 2^x and roundings of pairs as pairs";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Approximates;
    const REQUIRED: bool = true;
    const DIALECTS: &'static [&'static str] = &["arith", "math", "vector"];

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root).into_iter().filter(|o| is_rounded_pair(*o)) {
            let Some(b) = Builder::before(op) else { continue };
            op.result(0).replace_uses(halves(&b, op.operand(0)).at(op)?);
            op.erase();
        }
        // Collected first: what is asked of an op must be asked before another function's turn
        // erases it.
        let funcs: Vec<Op> = walk(root).into_iter().filter(|o| o.is("func.func")).collect();
        for func in funcs {
            let all = walk(func);
            let full = all.iter().any(|o| o.is("nvvm.wgmma.mma_async"));
            let narrow = self.fast || is_narrow(&all) || (full && gives_narrow(func, &all));
            for op in all {
                let Some(b) = Builder::before(op) else { continue };
                let name = op.name();
                let faster = self.fast && fast::FUNCTIONS.contains(&name.as_str());
                // What is an approximation already stays as it is.
                if approximation(op).is_some()
                    || !(faster || ["math.exp", "math.erf", "math.tanh", "arith.divf"].contains(&name.as_str()))
                    // Beside the sums of a product no register is left for more than one element's
                    // erf at a time; of the two precise forms the general one needs fewest.
                    || (full && !narrow && name == "math.erf")
                    // A sigmoid's sum and quotient add to what the hardware's power is off by.
                    || (!narrow && name == "math.exp" && op.result(0).uses().into_iter().any(|(user, _)| adds_one(user)))
                {
                    continue;
                }
                let Some(e) = Emit::new(b, op.result(0).ty(), "f32") else { continue };
                let made = match name.as_str() {
                    name if faster => fast::fast(&e, name, op.operand(0)),
                    "math.erf" if narrow => near_erf(&e, op).map(Some),
                    name => single(&e, name, &op.operands(), narrow),
                };
                if let Some(new) = made.at(op)? {
                    op.result(0).replace_uses(new);
                    op.erase();
                }
            }
        }
        Ok(())
    }
}

/// The greatest error in f32, in units in the last place of the exact result, of what this pass
/// writes otherwise than `kiln-expand-math`.
pub const ACCURACY: &[(&str, f64)] =
    &[("math.erf", 4.0), ("math.exp", 3.5), ("math.exp2", 2.0), ("math.tanh", 4.0)];

/// Whether an op adds 1.
fn adds_one(op: Op) -> bool {
    op.is("arith.addf") && op.operands().into_iter().any(is_one)
}

/// Ops that make a small error of their operand a large one.
const ROUNDS: &[&str] = &[
    "math.floor",
    "math.ceil",
    "math.trunc",
    "math.round",
    "math.roundeven",
    "arith.fptosi",
    "arith.fptoui",
    "arith.remf",
];

/// Whether everything that a kernel writes to its results is a float of 16 bits, and nothing is
/// rounded to an integer on the way.
fn is_narrow(all: &[Op]) -> bool {
    let target = |o: &&Op| match o.name().as_str() {
        "memref.store" => Some(o.operand(1).ty()),
        "vector.store" => Some(o.operand(1).ty()),
        "vector.scatter" | "vector.maskedstore" => Some(o.operand(0).ty()),
        _ => None,
    };
    let mut results = all
        .iter()
        .filter_map(|o| target(&o))
        .filter(|t| !t.to_string().ends_with(", 3>"))
        .peekable();
    // Products write theirs through shared memory: by this op those of 16 bits, by stores of the
    // llvm dialect others.
    let narrow = all.iter().any(|o| o.is("nvvm.stmatrix"));
    let known = (narrow || results.peek().is_some())
        && !all.iter().any(|o| ROUNDS.iter().any(|r| o.is(r)) || o.is("llvm.store"));
    known
        && results
            .all(|t| t.element().is_some_and(|e| ["bf16", "f16"].contains(&e.to_string().as_str())))
}

/// The same for products on tensor cores, whose results go through shared memory: by their
/// arguments.
fn gives_narrow(func: Op, all: &[Op]) -> bool {
    let name = func.attr(SCHEDULE).and_then(Attr::as_schedule).map(|(name, _)| name);
    let product = name.as_deref() == Some(WgmmaGemm::NAME);
    let args = func.regions().first().and_then(|r| r.first()).map(Block::args).unwrap_or_default();
    let said = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let mut results =
        args.iter().zip(&said).filter(|(_, about)| about.entry(NOALIAS).is_some()).peekable();
    let known =
        product && results.peek().is_some() && !all.iter().any(|o| ROUNDS.iter().any(|r| o.is(r)));
    known
        && results.all(|(v, _)| {
            v.ty().element().is_some_and(|e| ["bf16", "f16"].contains(&e.to_string().as_str()))
        })
}

/// What takes the place of an op of f32, if there is something better.
fn single(e: &Emit, name: &str, x: &[Value], narrow: bool) -> Result<Option<Value>> {
    match (name, x) {
        ("math.exp", [x]) if narrow => near_exp(e, *x),
        ("math.exp", [x]) => exp(e, *x),
        ("math.erf", [x]) => erf(e, *x),
        ("math.tanh", [x]) => tanh(e, *x),
        ("arith.divf", [x, y]) if narrow => quotient(e, *x, *y),
        _ => return Ok(None),
    }
    .map(Some)
}

/// 2^(x log2 e), whose exponent is rounded: a relative error of |x| 2^-24.
fn near_exp(e: &Emit, x: Value) -> Res {
    e.approximate("math.exp2", &[e.mul(x, e.c(LOG2_E)?)?], "afn")
}

/// The reciprocal as one instruction; other quotients by an approximation that scales its operands.
fn quotient(e: &Emit, x: Value, y: Value) -> Res {
    e.approximate("arith.divf", &[x, y], if is_one(x) { "arcp,afn" } else { "afn" })
}

fn is_one(x: Value) -> bool {
    let source = x.def().filter(|d| d.is("vector.broadcast")).map_or(x, |d| d.operand(0));
    let value = source.def().filter(|d| d.is("arith.constant")).and_then(|d| d.attr("value"));
    value.is_some_and(|a| a.splat_value().unwrap_or(a).as_f64() == Some(1.0))
}

/// ln erfc(t) on 1 <= t <= 4 as a polynomial in (2 t - 5) / 3: a least-squares fit on 120 Chebyshev
/// nodes with weight erfc(t), reweighted after Lawson to the minimax one; 1e-9 of 1.
const LN_ERFC: [f64; 7] = [
    0.002113857317,
    -0.001184409801,
    0.01244283847,
    -0.03617226386,
    -2.123742031,
    -8.029040948,
    -7.806817803,
];
/// erf(x) / x in x^2 below 1, from Cephes' `erff`.
const ERF: [f64; 7] = [
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.7612625824233e-1,
    1.12837916572671,
];

/// Below 1 a polynomial, from there on 1 - erfc(x), where an error of the exponential is small
/// beside the 1 that it is taken from.
fn erf(e: &Emit, x: Value) -> Res {
    let a = e.abs(x)?;
    let small = e.mul(x, e.poly(e.mul(x, x)?, &ERF)?)?;
    let u = e.fmac(e.between(a, 1.0, 4.0)?, 2.0 / 3.0, e.c(-5.0 / 3.0)?)?;
    let large = e.sub(
        e.c(1.0)?,
        e.approximate("math.exp2", &[e.poly(u, &LN_ERFC.map(|c| c * LOG2_E))?], "afn")?,
    )?;
    e.select(e.lt(a, e.c(1.0)?)?, small, e.copysign(large, x)?)
}

/// log2 erfc(a) / a on 0 <= a <= 4: a least-squares fit on 600 Chebyshev nodes with weight a
/// erfc(a), reweighted after Lawson to the minimax one; erf is within 8e-8 by it, 1.6e-7 with its
/// roundings.
const LOG2_ERFC: [f64; 7] = [
    0.000100221494,
    -0.000461576858,
    -0.002302225819,
    0.02945249763,
    -0.1489636577,
    -0.9183286474,
    -1.627913732,
];

/// 1 - erfc(|x|), within 1.6e-7; near 0, where a result of 16 bits has more digits than that, the
/// first terms of a series, unless 1 is added at once.
fn near_erf(e: &Emit, op: Op) -> Res {
    let x = op.operand(0);
    let a = e.same("arith.minimumf", &[e.abs(x)?, e.c(4.0)?])?;
    let large =
        e.sub(e.c(1.0)?, e.approximate("math.exp2", &[e.mul(e.poly(a, &LOG2_ERFC)?, a)?], "afn")?)?;
    let large = e.copysign(large, x)?;
    if op.result(0).uses().into_iter().all(|(user, _)| adds_one(user)) {
        return Ok(large);
    }
    let z = e.mul(x, x)?;
    let two = 2.0 / std::f64::consts::PI.sqrt();
    e.select(
        e.lt(a, e.c(f64::powi(2.0, -6))?)?,
        e.mul(x, e.fmac(z, -two / 3.0, e.c(two)?)?)?,
        large,
    )
}

/// As in `kiln-expand-math`: 1 - 2 / (e^2x + 1) from 0.625 on.
fn tanh(e: &Emit, x: Value) -> Res {
    let (a, z) = (e.abs(x)?, e.mul(x, x)?);
    let small = e.fma(e.mul(e.poly(z, &TANH)?, z)?, x, x)?;
    let power = e.approximate("math.exp2", &[e.mul(a, e.c(2.0 * LOG2_E)?)?], "afn")?;
    let reciprocal =
        e.approximate("arith.divf", &[e.c(1.0)?, e.add(power, e.c(1.0)?)?], "arcp,afn")?;
    let large = e.fmac(reciprocal, -2.0, e.c(1.0)?)?;
    e.unless_tiny(x, e.select(e.lt(a, e.c(0.625)?)?, small, e.copysign(large, x)?)?)
}

/// Whether an op widens two bf16 that were f32 just before.
fn is_rounded_pair(op: Op) -> bool {
    let pair = op.is("arith.extf")
        && op.result(0).ty().to_string() == "vector<2xf32>"
        && op.operand(0).ty().to_string() == "vector<2xbf16>";
    pair && op.operand(0).def().is_some_and(|d| d.is("arith.truncf"))
}

/// Two bf16 as f32: either half of 32 bits is the upper half of an f32.
fn halves(b: &Builder, pair: Value) -> Res {
    let c = b.ctx;
    let (i32, f32) = (Type::scalar(c, DType::I32), Type::scalar(c, DType::F32));
    let make = |name: &str, operands: &[Value], ty: Type, attrs: &[(&str, Attr)]| -> Res {
        Ok(b.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
    };
    let number =
        |n: i64| make("arith.constant", &[], i32, &[("value", Attr::scalar_int(c, DType::I32, n))]);
    let both = make("vector.bitcast", &[pair], Type::vector(i32, 1), &[])?;
    let both = make("vector.extract", &[both], i32, &[("static_position", Attr::i64s(c, &[0]))])?;
    let low = make("arith.shli", &[both, number(16)?], i32, &[])?;
    let high = make("arith.andi", &[both, number(-0x10000)?], i32, &[])?;
    let floats =
        [make("arith.bitcast", &[low], f32, &[])?, make("arith.bitcast", &[high], f32, &[])?];
    make("vector.from_elements", &floats, Type::vector(f32, 2), &[])
}

/// The largest exponent of which the power is finite.
const LAST: f64 = 128.0 - 1.0 / (1 << 17) as f64;

/// The product with log2(e) in two parts: the exponent, and what its rounding took, by which the
/// power changes so little that one FMA adds it.
fn exp(e: &Emit, x: Value) -> Res {
    let high = f64::from(LOG2_E as f32);
    // Keeps the second part finite; below, the result is 0. Above, a finite power times a second
    // part that is large overflows.
    let x = e.same("arith.maximumf", &[x, e.c(-104.5)?])?;
    let y = e.same("arith.minimumf", &[e.mul(x, e.c(high)?)?, e.c(LAST)?])?;
    let rest = e.fmac(x, high, e.neg(y)?)?;
    let rest = e.fmac(x, LOG2_E - high, rest)?;
    let power = e.same("math.exp2", &[y])?;
    e.fma(power, e.mul(rest, e.c(LN_2)?)?, power)
}
