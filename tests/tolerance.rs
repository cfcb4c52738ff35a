//! Tolerances: `kiln::tolerance` of a dtype, and that between two exact computations.
use crate::support::{greatest_error, relative_error};
use kiln::dialects::{
    ir::{Op, walk},
    value::{DType, Tensor},
};

/// Tolerance between two f64 computations.
pub const EXACT: f64 = 1e-10;

/// The same if a constant of the formula is rounded to a narrower dtype.
pub const CONSTANTS: f64 = 1e-6;

/// The absolute term of a dtype: err(result, exact) <= 2 * err(rounded reference, exact) + floor.
pub fn floor(dtype: DType) -> f64 {
    kiln::tolerance::for_dtype(dtype)
}

/// For each result of a function, whether it is of f64 and computed from narrower floats. Their sums
/// are off by f32's rounding in an order that depends on the vector width, so f64's floor does not
/// bound such a result.
pub fn from_narrower(func: Op) -> Vec<bool> {
    let end = func.regions().first().and_then(|r| r.first()?.terminator()).expect("a return");
    let float = |v: &kiln::dialects::ir::Value| {
        let element = v.ty().element().unwrap_or(v.ty());
        element.dtype().ok().filter(|d| d.is_float())
    };
    let narrow = |op: Op| {
        let values = walk(op).into_iter().flat_map(|o| [o.operands(), o.results()].concat());
        values.into_iter().any(|v| float(&v).is_some_and(|d| d != DType::F64))
    };
    let depends = |v: kiln::dialects::ir::Value| {
        let (mut next, mut seen) = (vec![v], vec![]);
        while let Some(v) = next.pop() {
            if let Some(op) = v.def().filter(|op| !seen.contains(op)) {
                seen.push(op);
                next.extend(walk(op).into_iter().flat_map(|o| o.operands()));
            }
        }
        seen.into_iter().any(narrow)
    };
    end.operands().into_iter().map(|v| float(&v) == Some(DType::F64) && depends(v)).collect()
}

/// Whether `found` is as close to `exact` as a rounded reference may be, by norm and by largest
/// error.
pub fn compare(found: &Tensor, reference: &Tensor, exact: &Tensor) -> Result<(), String> {
    for (what, error) in [
        ("by norm", relative_error as fn(&Tensor, &Tensor) -> f64),
        ("elementwise", greatest_error),
    ] {
        let (own, allowed) =
            (error(found, exact), 2.0 * error(reference, exact) + floor(exact.dtype()));
        if own.is_nan() || own > allowed {
            return Err(format!(
                "is {own:e} off {what}, where {allowed:e} is allowed\n{found:?}\nexact {exact:?}"
            ));
        }
    }
    Ok(())
}
