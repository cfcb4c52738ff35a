//! Tolerances: `kiln::tolerance` of a dtype, and that between two exact computations.
use crate::support::{greatest_error, relative_error};
use kiln::dialects::value::{DType, Tensor};

/// Tolerance between two f64 computations.
pub const EXACT: f64 = 1e-10;

/// The same if a constant of the formula is rounded to a narrower dtype.
pub const CONSTANTS: f64 = 1e-6;

/// The absolute term of a dtype: err(result, exact) <= 2 * err(rounded reference, exact) + floor.
pub fn floor(dtype: DType) -> f64 {
    kiln::tolerance::of(dtype)
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
