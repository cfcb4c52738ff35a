//! How far results may be apart: the only place with such numbers.
use kiln::dialects::value::DType;

/// Two ways to compute the same in f64.
pub const EXACT: f64 = 1e-10;

/// The floor of a dtype: a result passes if err(result, exact) <= 2 * err(rounded reference, exact) + floor.
pub fn floor(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F8E4M3FN | DType::F8E5M2 => 0.13,
        _ => 0.0,
    }
}
