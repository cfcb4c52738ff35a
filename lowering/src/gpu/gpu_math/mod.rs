//! `kiln-gpu-math`: expands what GPU hardware supports: exponentials and functions computed from
//! them, quotients, and pairs rounded to bf16.
//!
//! Why: a GPU has 2^x and 1/x as single instructions. `kiln-expand-math`, which runs next and keeps
//! `math.exp2`, expands the rest. `kiln-gpu-abi` lowers an op with fast-math flags to one
//! instruction.
//!
//! A pair that is rounded to bf16 and extended at once stays packed: the hardware rounds two
//! numbers as fast as it copies them, but LLVM would split the pair, and scalar conversions are 16
//! times slower.
//!
//! Numerics: approximates. exp is within 3.5 ulp, tanh and erf within 4, 2^x within 2 (NVIDIA's
//! table of `ex2.approx.f32`). e^x + 1 is left to `kiln-expand-math`, which approximates nothing,
//! so a sigmoid is within 4 ulp, too. A kernel whose results are all 16-bit floats and that rounds
//! nothing to integers takes cheaper forms: f32 exponentials, quotients and erf have a relative
//! error of at most 2^-16, far below the rounding of the results, and subnormal ones are flushed to
//! zero. If 1 is added to erf at once, its absolute error is at most 1.6e-7. If 1 is added to tanh x
//! at once, the sum is 2 / (1 + e^-2x), within 2^-22 |x| relative. With `fast`, every
//! kernel takes these forms, and more functions have one (`gpu_math/fast.rs` states their errors).
//!
//! ```text
//! before:  %y = math.exp %x : vector<4xf32>
//! after:   %p = x log2(e) rounded   %r = what the rounding took   %e = math.exp2 %p   %y = %e + %e r ln 2
//! or, for results of bf16:   %p = x log2(e)   %y = math.exp2 %p fastmath<afn>
//! ```
pub(crate) mod fast;

use crate::target::launch::SHARED_SPACE;
use crate::{
    math::{
        approximation::approximation,
        emit::{Emit, Res},
        exp::TANH,
    },
    strategies::{SCHEDULE, Strategy as _, gpu::wgmma_gemm::WgmmaGemm},
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
        /// Whether f32 is computed by hardware approximations too
        pub fast: bool = false,
    }
}

impl Pass for GpuMath {
    const FLAG: &'static str = "kiln-gpu-math";
    const SUMMARY: &'static str =
        "Lowers exponentials to ex2.approx and pairs of roundings to packed conversions";
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
        let funcs = functions_in(root);
        for func in funcs {
            let all = walk(func);
            let full = all.iter().any(|o| o.isa::<nvvm::WgmmaMmaAsync>());
            let narrow = self.fast || is_narrow(&all) || (full && gives_narrow(func, &all));
            // Erased at the end, since the loop comes to them.
            let mut dead: Vec<Op> = vec![];
            for op in all {
                let Some(b) = Builder::before(op) else { continue };
                let name = op.name();
                let faster = self.fast && fast::FUNCTIONS.contains(&name.as_str());
                // Ops that are hardware approximations already are kept.
                if approximation(op).is_some()
                    || !(faster || [math::Exp::NAME, math::Erf::NAME, math::Tanh::NAME, arith::DivF::NAME].contains(&name.as_str()))
                    // Next to the accumulators of a GEMM, registers suffice for erf of one element
                    // at a time. Of the two precise forms the general one needs fewest.
                    || (full && !narrow && name == math::Erf::NAME)
                    // A sigmoid's sum and quotient would add to the error of the hardware's 2^x.
                    || (!narrow && name == math::Exp::NAME && op.result(0).uses().into_iter().any(|(user, _)| adds_one(user)))
                {
                    continue;
                }
                if op.isa::<math::Tanh>() && is_added_to_one(op) {
                    dead.extend(one_plus_tanh(op).at(op)?);
                    continue;
                }
                let Some(e) = Emit::new(b, op.result(0).ty(), DType::F32) else { continue };
                let made = match name.as_str() {
                    name if faster => fast::fast(&e, name, op.operand(0)),
                    math::Erf::NAME if narrow => near_erf(&e, op).map(Some),
                    name => single(&e, name, &op.operands(), narrow),
                };
                if let Some(new) = made.at(op)? {
                    op.result(0).replace_uses(new);
                    op.erase();
                }
            }
            dead.into_iter().for_each(Op::erase);
        }
        Ok(())
    }
}

/// Largest f32 error, in ulps of the exact result, of each function that this pass expands
/// differently from `kiln-expand-math`.
pub const ACCURACY: &[(&str, f64)] = &[
    (math::Erf::NAME, 4.0),
    (math::Exp::NAME, 3.5),
    (math::Exp2::NAME, 2.0),
    (math::Tanh::NAME, 4.0),
];

/// Whether an op adds 1.
fn adds_one(op: Op) -> bool {
    op.isa::<arith::AddF>() && op.operands().into_iter().any(is_one)
}

/// Ops that amplify a small error of their operand.
const ROUNDS: &[&str] = &[
    math::Floor::NAME,
    math::Ceil::NAME,
    math::Trunc::NAME,
    math::Round::NAME,
    math::RoundEven::NAME,
    arith::FPToSI::NAME,
    arith::FPToUI::NAME,
    arith::RemF::NAME,
];

/// Whether a kernel stores only 16-bit floats to its results and rounds nothing to an integer on
/// the way.
fn is_narrow(all: &[Op]) -> bool {
    let target = |o: &&Op| match o.name().as_str() {
        memref::Store::NAME => Some(o.operand(1).ty()),
        vector::Store::NAME => Some(o.operand(1).ty()),
        vector::Scatter::NAME | vector::MaskedStore::NAME => Some(o.operand(0).ty()),
        _ => None,
    };
    let mut results = all
        .iter()
        .filter_map(|o| target(&o))
        .filter(|t| t.memory_space() != Some(SHARED_SPACE))
        .peekable();
    // GEMMs store results through shared memory: 16-bit ones by this op, others by stores of the
    // llvm dialect.
    let narrow = all.iter().any(|o| o.isa::<nvvm::StMatrix>());
    let known = (narrow || results.peek().is_some())
        && !all.iter().any(|o| ROUNDS.iter().any(|r| o.is(r)) || o.isa::<llvm::Store>());
    known && results.all(is_short)
}

/// Whether it is memory of 16-bit floats.
fn is_short(ty: Type) -> bool {
    ty.element().is_some_and(|e| matches!(e.dtype(), Ok(DType::BF16 | DType::F16)))
}

/// The same for tensor-core GEMMs, whose results go through shared memory: decided by their
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
    known && results.all(|(v, _)| is_short(v.ty()))
}

/// Emits a cheaper form of an f32 op; `None` if it has none.
fn single(e: &Emit, name: &str, x: &[Value], narrow: bool) -> Result<Option<Value>> {
    match (name, x) {
        (math::Exp::NAME, [x]) if narrow => near_exp(e, *x),
        (math::Exp::NAME, [x]) => exp(e, *x),
        (math::Erf::NAME, [x]) => erf(e, *x),
        (math::Tanh::NAME, [x]) => tanh(e, *x),
        (arith::DivF::NAME, [x, y]) if narrow => quotient(e, *x, *y),
        _ => return Ok(None),
    }
    .map(Some)
}

/// 2^(x log2 e) with a rounded exponent: relative error |x| 2^-24.
fn near_exp(e: &Emit, x: Value) -> Res {
    near_exp2(e, e.mul(x, e.c(LOG2_E)?)?)
}

/// A reciprocal as one instruction; other quotients by an approximation that scales its operands.
fn quotient(e: &Emit, x: Value, y: Value) -> Res {
    let flags = if is_one(x) { RECIPROCAL } else { FastMathFlags::AFN };
    arith::DivF::new(e, x, y).fastmath(flags).result()
}

/// Flags of a quotient that is one `rcp.approx`.
const RECIPROCAL: FastMathFlags = FastMathFlags::ARCP.or(FastMathFlags::AFN);

/// `one` / x as one instruction.
fn reciprocal(e: &Emit, one: Value, x: Value) -> Res {
    arith::DivF::new(e, one, x).fastmath(RECIPROCAL).result()
}

/// 2^x as one instruction.
fn near_exp2(e: &Emit, x: Value) -> Res {
    math::Exp2::new(e, x).fastmath(FastMathFlags::AFN).result()
}

fn is_one(x: Value) -> bool {
    let source = x.def_as::<vector::Broadcast>().map_or(x, |d| d.operand(0));
    let value = source.def_as::<arith::Constant>().and_then(|d| d.value());
    value.is_some_and(|a| a.splat_value().unwrap_or(a).as_f64() == Some(1.0))
}

/// Polynomial in (2 t - 5) / 3 of ln erfc(t) on 1 <= t <= 4. A least-squares fit on 120 Chebyshev
/// nodes with weight erfc(t), reweighted by Lawson's algorithm to the minimax polynomial; error
/// 1e-9 relative to 1.
const LN_ERFC: [f64; 7] = [
    0.002113857317,
    -0.001184409801,
    0.01244283847,
    -0.03617226386,
    -2.123742031,
    -8.029040948,
    -7.806817803,
];
/// Polynomial in x^2 of erf(x) / x below 1, from Cephes' `erff`.
const ERF: [f64; 7] = [
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.7612625824233e-1,
    1.12837916572671,
];

/// A polynomial below 1, else 1 - erfc(x), where the error of the exponential is small relative to
/// 1.
fn erf(e: &Emit, x: Value) -> Res {
    let a = e.abs(x)?;
    let small = e.mul(x, e.poly(e.mul(x, x)?, &ERF)?)?;
    let u = e.fmac(e.between(a, 1.0, 4.0)?, 2.0 / 3.0, e.c(-5.0 / 3.0)?)?;
    let large = e.sub(e.c(1.0)?, near_exp2(e, e.poly(u, &LN_ERFC.map(|c| c * LOG2_E))?)?)?;
    e.select(e.lt(a, e.c(1.0)?)?, small, e.copysign(large, x)?)
}

/// Polynomial of log2 erfc(a) / a on 0 <= a <= 4. A least-squares fit on 600 Chebyshev nodes with
/// weight a erfc(a), reweighted by Lawson's algorithm to the minimax polynomial. It gives erf
/// within 8e-8, 1.6e-7 with the roundings.
const LOG2_ERFC: [f64; 7] = [
    0.000100221494,
    -0.000461576858,
    -0.002302225819,
    0.02945249763,
    -0.1489636577,
    -0.9183286474,
    -1.627913732,
];

/// 1 - erfc(|x|), within 1.6e-7. Near 0, where a 16-bit result is more precise than that, the first
/// terms of a series, unless 1 is added at once.
fn near_erf(e: &Emit, op: Op) -> Res {
    let x = op.operand(0);
    let a = arith::minimumf(e, e.abs(x)?, e.c(4.0)?)?;
    let large = e.sub(e.c(1.0)?, near_exp2(e, e.mul(e.poly(a, &LOG2_ERFC)?, a)?)?)?;
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
    let power = near_exp2(e, e.mul(a, e.c(2.0 * LOG2_E)?)?)?;
    let reciprocal = reciprocal(e, e.c(1.0)?, e.add(power, e.c(1.0)?)?)?;
    let large = e.fmac(reciprocal, -2.0, e.c(1.0)?)?;
    e.unless_tiny(x, e.select(e.lt(a, e.c(0.625)?)?, small, e.copysign(large, x)?)?)
}

/// Whether 1 is added to a result of f32 wherever it is used, as in gelu's approximation.
fn is_added_to_one(op: Op) -> bool {
    let ty = op.result(0).ty();
    let uses = op.result(0).uses();
    let f32 = ty.element().unwrap_or(ty).dtype() == Ok(DType::F32);
    f32 && !uses.is_empty() && uses.into_iter().all(|(user, _)| adds_one(user))
}

/// Replaces the sums of 1 and tanh x by 2 / (1 + e^-2x), in which nothing cancels. Returns the ops
/// without uses.
fn one_plus_tanh(op: Op) -> Result<Vec<Op>> {
    let sums: Vec<Op> = op.result(0).uses().into_iter().map(|(user, _)| user).collect();
    for user in &sums {
        let user = *user;
        let b = Builder::before(user).ok_or("is in no block")?;
        let e = Emit::new(b, op.result(0).ty(), DType::F32).ok_or("has no f32 elements")?;
        let power = near_exp2(&e, e.mul(op.operand(0), e.c(-2.0 * LOG2_E)?)?)?;
        let reciprocal = reciprocal(&e, e.c(1.0)?, e.add(power, e.c(1.0)?)?)?;
        user.result(0).replace_uses(e.mul(reciprocal, e.c(2.0)?)?);
    }
    Ok(sums.into_iter().chain([op]).collect())
}

/// Whether an op extends two bf16 that were truncated from f32 just before.
fn is_rounded_pair(op: Op) -> bool {
    let two = |element| Type::vector(Type::scalar(op.ctx(), element), 2);
    let pair = op.isa::<arith::ExtF>()
        && op.result(0).ty() == two(DType::F32)
        && op.operand(0).ty() == two(DType::BF16);
    pair && op.operand(0).def().is_some_and(|d| d.isa::<arith::TruncF>())
}

/// Extends two packed bf16 to f32: each 16-bit half is the upper half of an f32.
fn halves(b: &Builder, pair: Value) -> Res {
    let c = b.ctx;
    let (i32, f32) = (Type::scalar(c, DType::I32), Type::scalar(c, DType::F32));
    let make = |name: &str, operands: &[Value], ty: Type, attrs: &[(&str, Attr)]| -> Res {
        Ok(b.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
    };
    let number = |n: i64| {
        make(arith::Constant::NAME, &[], i32, &[("value", Attr::scalar_int(c, DType::I32, n))])
    };
    let both = make(vector::BitCast::NAME, &[pair], Type::vector(i32, 1), &[])?;
    let both =
        make(vector::Extract::NAME, &[both], i32, &[("static_position", Attr::i64s(c, &[0]))])?;
    let low = make(arith::ShLI::NAME, &[both, number(16)?], i32, &[])?;
    let high = make(arith::AndI::NAME, &[both, number(-0x10000)?], i32, &[])?;
    let floats = [
        make(arith::Bitcast::NAME, &[low], f32, &[])?,
        make(arith::Bitcast::NAME, &[high], f32, &[])?,
    ];
    make(vector::FromElements::NAME, &floats, Type::vector(f32, 2), &[])
}

/// The largest exponent with a finite power of two.
const LAST: f64 = 128.0 - 1.0 / (1 << 17) as f64;

/// e^x with the product x log2(e) as a double-float: the rounded exponent and its rounding error,
/// which changes the power so little that one FMA adds it.
fn exp(e: &Emit, x: Value) -> Res {
    let high = f64::from(LOG2_E as f32);
    // Keeps the low part finite; below, the result is 0. Above, a finite power times a large low
    // part overflows.
    let x = arith::maximumf(e, x, e.c(-104.5)?)?;
    let y = arith::minimumf(e, e.mul(x, e.c(high)?)?, e.c(LAST)?)?;
    let rest = e.fmac(x, high, e.neg(y)?)?;
    let rest = e.fmac(x, LOG2_E - high, rest)?;
    let power = math::exp2(e, y)?;
    e.fma(power, e.mul(rest, e.c(LN_2)?)?, power)
}
