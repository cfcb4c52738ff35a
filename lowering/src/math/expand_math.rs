//! `kiln-expand-math`: expands math functions and fp8 conversions into arithmetic.
//!
//! Why: upstream lowers each vector lane to a call of the C library, and its polynomial
//! approximations are not in its public libraries. Results depend neither on the vector length nor
//! on `scalef`. f32 is computed in f32 (range reduction of trigonometric functions and powf: f64),
//! bf16 and f16 via f32, and f64 in f64 with its own polynomials (`double/`).
//!
//! Numerics: approximates, within [`ACCURACY`]; remainders and conversions are exact. NaN,
//! infinities, signed zeros, subnormals and arguments outside of the domain give what C's functions
//! give.
//!
//! ```text
//! before:  %y = math.exp %x : vector<16xf32>
//! after:   %n = … x / ln 2 rounded; %p = math.fma …; %y = arith.mulf %p, 2^n
//! ```
use crate::{
    math::approximation::approximation,
    math::{
        double,
        emit::{Emit, Res},
        exp, fp8, log, pow,
        rare::module_within,
        remainder, trig,
    },
};
use kiln_dialects::{
    ir::*,
    rules::{LEVELS, Level},
    value::DType,
};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct ExpandMath {
        /// Names of math ops that are not expanded; f64 ops always are
        pub keep: Vec<String> = vec![],
        /// Whether the target has AVX-512's vscalef, which scales vectors by powers of two
        pub scalef: bool = false,
        /// Whether the code for rare arguments, such as those that need Payne-Hanek reduction, goes
        /// into functions that a module's expansions share
        pub rare_functions: bool = false,
        /// Whether ops with a GPU instruction are kept where their fast-math flags allow an
        /// approximation
        pub approximations: bool = false,
    }
}

/// Largest error of each expansion in f32 and in f64, in ulps of the exact result, rounded up. f32:
/// measured by a sweep over all exponents with 4000 mantissas each. f64: measured on 245,000
/// numbers, with references of 400 to 2400 bits (`tests/host/gen_f64_math.py numbers`).
pub const ACCURACY: &[(&str, f64, f64)] = &[
    (math::Acos::NAME, 1.5, 1.0),
    (math::Asin::NAME, 2.5, 1.0),
    (math::Atan::NAME, 3.0, 2.0),
    (math::Atan2::NAME, 3.5, 2.5),
    (math::Cos::NAME, 2.0, 1.0),
    (math::Cosh::NAME, 1.5, 1.5),
    (math::Erf::NAME, 2.5, 1.0),
    (math::Exp::NAME, 1.5, 1.0),
    (math::Exp2::NAME, 1.5, 1.0),
    (math::ExpM1::NAME, 1.5, 2.0),
    (math::Log::NAME, 1.0, 1.0),
    (math::Log10::NAME, 1.0, 1.0),
    (math::Log1p::NAME, 1.5, 1.0),
    (math::Log2::NAME, 1.5, 1.0),
    (math::PowF::NAME, 0.6, 1.5),
    (math::Sin::NAME, 2.0, 1.0),
    (math::Sinh::NAME, 2.0, 1.5),
    (math::Tan::NAME, 3.5, 2.5),
    (math::Tanh::NAME, 1.5, 1.5),
];

impl Pass for ExpandMath {
    const FLAG: &'static str = "kiln-expand-math";
    const SUMMARY: &'static str =
        "Expands math functions into polynomials, and fp8 conversions into integer arithmetic";
    const ANCHOR: &'static str = "";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Approximates;
    // LLVM cannot lower some of the ops that this pass would leave.
    const REQUIRED: bool = true;
    const DIALECTS: &'static [&'static str] = &["func", "llvm", "math", "scf", "vector"];

    fn run(&self, root: Op) -> Result<()> {
        let function =
            |o: &Op| o.isa::<arith::RemF>() || ACCURACY.iter().any(|(name, ..)| o.is(name));
        let instruction = |o: &Op| self.approximations && approximation(*o).is_some();
        let expandable = |o: &Op| {
            function(o)
                && !instruction(o)
                && (!self.keep.contains(&o.name()) || Emit::of_f64(o.result(0).ty()))
        };
        for op in walk(root).into_iter().filter(|o| expandable(o) || fp8::is_conversion(o)) {
            let Some(b) = Builder::before(op) else { continue };
            let ty = op.result(0).ty();
            let functions = self.rare_functions.then(|| module_within(root, op)).flatten();
            let emit = |element: DType| {
                let e = Emit::new(b, ty, element)?.with_scalef(self.scalef);
                Some(e.with_rare_functions(functions))
            };
            let new = if fp8::is_conversion(&op) {
                fp8::expand(b, op)
            } else if let Some(e) = emit(DType::F32) {
                expand(&e, op, &op.operands())
            } else if let Some(e) = emit(DType::F64) {
                match op.operands().as_slice() {
                    [x, y] if op.isa::<arith::RemF>() => remainder::remainder(&e, *x, *y),
                    x => double::expand(&e, op.name().strip_prefix("math.").unwrap_or_default(), x),
                }
            } else if let Some((e, narrow)) =
                [DType::BF16, DType::F16].into_iter().find_map(|n| Some((emit(n)?, n)))
            {
                let wide: Result<Vec<Value>> =
                    op.operands().into_iter().map(|v| e.extend(v, DType::F32)).collect();
                wide.and_then(|wide| expand(&e, op, &wide)).and_then(|y| e.truncate(y, narrow))
            } else {
                continue;
            };
            op.result(0).replace_uses(new.at(op)?);
            op.erase();
        }
        Ok(())
    }
}

fn expand(e: &Emit, op: Op, x: &[Value]) -> Res {
    let name = op.name();
    match (name.strip_prefix("math.").unwrap_or(&name), x) {
        (arith::RemF::NAME, [x, y]) => remainder::remainder(e, *x, *y),
        ("acos", [x]) => trig::acos(e, *x),
        ("asin", [x]) => trig::asin(e, *x),
        ("atan", [x]) => trig::atan(e, *x),
        ("atan2", [y, x]) => trig::atan2(e, *y, *x),
        ("cos", [x]) => trig::cos(e, *x),
        ("cosh", [x]) => exp::cosh(e, *x),
        ("erf", [x]) => exp::erf(e, *x),
        ("exp", [x]) => exp::exp(e, *x),
        ("exp2", [x]) => exp::exp2(e, *x),
        ("expm1", [x]) => exp::expm1(e, *x),
        ("log", [x]) => log::log(e, *x),
        ("log10", [x]) => log::log10(e, *x),
        ("log1p", [x]) => log::log1p(e, *x),
        ("log2", [x]) => log::log2(e, *x),
        ("powf", [x, y]) => pow::powf(e, *x, *y),
        ("sin", [x]) => trig::sin(e, *x),
        ("sinh", [x]) => exp::sinh(e, *x),
        ("tan", [x]) => trig::tan(e, *x),
        ("tanh", [x]) => exp::tanh(e, *x),
        _ => Err("has no expansion".into()),
    }
}
