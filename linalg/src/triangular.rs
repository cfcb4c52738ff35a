//! Triangular systems.
use crate::matrix::{Real, rows, rows_mut};
use faer::{Par, linalg::triangular_solve::*};

/// The solution X of A X = B for a triangular n×n matrix and n×k right-hand sides. The other
/// triangle is not read, nor is a unit diagonal.
pub(crate) fn solve<T: Real>(
    a: &[T],
    b: &[T],
    (n, k): (usize, usize),
    (upper, unit): (bool, bool),
    x: &mut [T],
) {
    x.copy_from_slice(b);
    let (a, x) = (rows(a, n, n), rows_mut(x, n, k));
    match (upper, unit) {
        (false, false) => solve_lower_triangular_in_place(a, x, Par::Seq),
        (false, true) => solve_unit_lower_triangular_in_place(a, x, Par::Seq),
        (true, false) => solve_upper_triangular_in_place(a, x, Par::Seq),
        (true, true) => solve_unit_upper_triangular_in_place(a, x, Par::Seq),
    }
}
