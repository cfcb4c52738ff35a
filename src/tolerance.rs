//! Numerical tolerances between a result and its reference, all in one place.
use crate::dialects::value::{DType, Data, Tensor};

/// Why a result is not its reference.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Mismatch {
    /// Another dtype or shape.
    #[error("is {have}, but {want} is expected")]
    Type {
        /// The result's type, such as `f32 [2, 3]`.
        have: String,
        /// The reference's type.
        want: String,
    },
    /// The error is larger than allowed.
    #[error("is off by {error:.3e} {what}, where {allowed:.3e} is allowed")]
    Error {
        /// How the error is measured: `by the norm` or `at the greatest`.
        what: &'static str,
        /// The relative error.
        error: f64,
        /// The bound.
        allowed: f64,
    },
}

/// Err: the dtypes or shapes differ.
fn same_type(have: &Tensor, want: &Tensor) -> Result<(), Mismatch> {
    if have.dtype() == want.dtype() && have.shape() == want.shape() {
        return Ok(());
    }
    let text = |t: &Tensor| format!("{} {:?}", t.dtype(), t.shape());
    Err(Mismatch::Type { have: text(have), want: text(want) })
}

/// Relative tolerance of a dtype; 0 means bitwise equality.
pub const fn for_dtype(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F8E4M3FN | DType::F8E5M2 => 0.13,
        DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::UI8 | DType::I1 => 0.0,
    }
}

/// Relative tolerance where the operands of f32 products are first rounded to tf32.
///
/// tf32 has 11 significant bits, so rounding is off by at most 2^-11 and by 0.41 of that in RMS. A
/// product of two rounded factors, and the norm of a long sum of them, is off by 1.41 times as
/// much: 2.8e-4. The remaining margin covers short sums.
pub const fn for_dtype_tf32(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 5e-4,
        _ => for_dtype(dtype),
    }
}

/// Law 5 of the design: the error against the exact result is at most twice the error of eager
/// execution with one rounding per op, plus the dtype's tolerance. It holds for the relative norm
/// and for the maximum element. Results that overflow, or integers that change, by rounding alone
/// are not bounded.
pub fn check_error_bound(found: &Tensor, rounded: &Tensor, exact: &Tensor) -> Result<(), Mismatch> {
    same_type(found, exact)?;
    let floor = for_dtype(exact.dtype());
    for (what, error) in [
        ("by the norm", (|a, b| errors(a, b).0) as fn(&Tensor, &Tensor) -> f64),
        ("at the greatest", |a, b| errors(a, b).1),
    ] {
        let (own, allowed) = (error(found, exact), 2.0 * error(rounded, exact) + floor);
        if allowed.is_finite() && (own.is_nan() || own > allowed) {
            return Err(Mismatch::Error { what, error: own, allowed });
        }
    }
    Ok(())
}

/// Relative L2 norm ‖a − b‖ / ‖b‖ and max |a − b| / max |b| over finite elements. Infinite if
/// integers, NaNs or infinities differ.
fn errors(a: &Tensor, b: &Tensor) -> (f64, f64) {
    let (Data::F(x), Data::F(y)) = (a.data(), b.data()) else {
        let same = a.data() == b.data();
        return if same { (0.0, 0.0) } else { (f64::INFINITY, f64::INFINITY) };
    };
    let (mut off, mut size, mut max, mut greatest) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for (x, y) in x.iter().zip(y) {
        if x.is_finite() && y.is_finite() {
            off += (x - y) * (x - y);
            size += y * y;
            max = max.max((x - y).abs());
            greatest = greatest.max(y.abs());
        } else if !(x == y || (x.is_nan() && y.is_nan())) {
            return (f64::INFINITY, f64::INFINITY);
        }
    }
    if off == 0.0 {
        (0.0, 0.0)
    } else {
        ((off / size.max(1e-60)).sqrt(), max / greatest.max(1e-30))
    }
}

/// Errors between two tensors of one dtype and shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Relative L2 error, ‖have − want‖ / ‖want‖.
    pub relative: f64,
    /// Maximum absolute error, max |have − want|.
    pub max_abs: f64,
    /// Bound on `relative`, and on `max_abs` in units of 1 + max |want|.
    pub tolerance: f64,
    /// Whether both errors are within the tolerance.
    pub ok: bool,
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.ok { "ok" } else { "MISMATCH" };
        write!(
            f,
            "{word}: relative L2 error {:.3e}, max abs error {:.3e}, tolerance {:e}",
            self.relative, self.max_abs, self.tolerance
        )
    }
}

/// Compares two tensors. Err: their dtypes or shapes differ.
pub fn compare(have: &Tensor, want: &Tensor) -> Result<Comparison, Mismatch> {
    same_type(have, want)?;
    let numbers = |t: &Tensor| match t.data() {
        Data::F(v) => v.clone(),
        Data::I(v) => v.iter().map(|i| *i as f64).collect(),
    };
    let tolerance = for_dtype(want.dtype());
    let (mut off, mut size, mut max_abs, mut greatest) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for (a, b) in numbers(have).into_iter().zip(numbers(want)) {
        // Equal infinities agree, and so do two NaNs; a lone one is an infinite error.
        let d = if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() };
        let d = if d.is_nan() { f64::INFINITY } else { d };
        max_abs = max_abs.max(d);
        off += d * d;
        if b.is_finite() {
            size += b * b;
            greatest = greatest.max(b.abs());
        }
    }
    let relative = if off == 0.0 { 0.0 } else { off.sqrt() / size.sqrt() };
    // f64 cannot hold every i64, so integers are compared exactly.
    let ok = if tolerance == 0.0 {
        have.data() == want.data()
    } else {
        relative <= tolerance && max_abs <= tolerance * (1.0 + greatest)
    };
    Ok(Comparison { relative, max_abs, tolerance, ok })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(v: &[f64]) -> Tensor {
        Tensor::floats(DType::F32, vec![v.len()], v.to_vec()).expect("a tensor")
    }

    #[test]
    fn near_far_and_not_finite() {
        let ok = |a: &[f64], b: &[f64]| compare(&f32s(a), &f32s(b)).expect("comparable").ok;
        assert!(ok(&[1.0, 2.0], &[1.000001, 2.0]));
        assert!(!ok(&[1.0, 2.0], &[1.01, 2.0]));
        assert!(ok(&[f64::INFINITY, f64::NAN], &[f64::INFINITY, f64::NAN]));
        assert!(!ok(&[1.0, f64::NAN], &[1.0, 2.0]));
        assert!(!ok(&[1.0], &[f64::INFINITY]));
        assert!(compare(&f32s(&[1.0]), &f32s(&[1.0, 2.0])).is_err());
    }
}
