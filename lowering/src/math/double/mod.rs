//! Math expansions in f64. The polynomials are minimax fits by the Remez exchange algorithm, with a
//! relative error of at most 2^-56 (`tests/host/gen_f64_math.py` prints them). Range reduction and
//! reconstruction use double-double arithmetic where one f64 would lose bits.
pub(crate) mod exp;
pub(crate) mod inverse;
pub(crate) mod log;
pub(crate) mod pair;
pub(crate) mod pow;
pub(crate) mod trig;

use crate::math::emit::{Emit, Res};
use kiln_dialects::ir::Value;

/// Expands the math op of this name.
pub fn expand(e: &Emit, name: &str, x: &[Value]) -> Res {
    match (name, x) {
        ("acos", [x]) => inverse::acos(e, *x),
        ("asin", [x]) => inverse::asin(e, *x),
        ("atan", [x]) => inverse::atan(e, *x),
        ("atan2", [y, x]) => inverse::atan2(e, *y, *x),
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
        _ => Err("has no expansion in f64".into()),
    }
}
