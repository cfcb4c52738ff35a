//! How far results may be apart: what `kiln::tolerance` says of a dtype, and what two exact ways
//! may differ by.
use crate::support::{greatest_error, relative_error};
use kiln::dialects::value::{DType, Tensor};

/// Two ways to compute the same in f64.
pub const EXACT: f64 = 1e-10;

/// The same where a constant of the formula is rounded to a dtype below f64.
pub const CONSTANTS: f64 = 1e-6;

/// The floor of a dtype: a result passes if err(result, exact) <= 2 * err(rounded reference, exact)
/// + floor.
pub fn floor(dtype: DType) -> f64 {
    kiln::tolerance::of(dtype)
}

/// Whether `found` is as near to `exact` as a rounded reference may be: by the norm of the
/// difference and by its greatest element.
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
