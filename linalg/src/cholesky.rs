//! Cholesky factorization of a symmetric positive-definite matrix.
use crate::matrix::{Real, rows, store};
use faer::{Side, linalg::solvers::LltError};

/// The lower factor L of A = L L', n×n, of the lower triangle of `a`; above the diagonal are zeros.
/// Returns the order of the leading minor that is not positive-definite, or 0. L is NaN then.
pub(crate) fn factor<T: Real>(a: &[T], n: usize, l: &mut [T]) -> i32 {
    if n == 0 {
        return 0;
    }
    match rows(a, n, n).llt(Side::Lower) {
        Ok(llt) => {
            store(llt.L(), l);
            (0..n).for_each(|i| l[i * n + i + 1..(i + 1) * n].fill(T::ZERO));
            0
        }
        Err(LltError::NonPositivePivot { index }) => {
            l.fill(faer::traits::math_utils::nan());
            index as i32 + 1
        }
    }
}
