//! LU factorization with partial pivoting, after LAPACK's getrf.
use crate::matrix::{Real, copied, store_columns};
use faer::{
    Accum, Mat, MatMut, MatRef, Par,
    linalg::{matmul::matmul, triangular_solve::*},
    prelude::IntoConst,
};

/// Columns of a panel: eliminated one at a time, then applied to the rest by matrix products.
const PANEL: usize = 32;

/// P A = L U of an m×n matrix, both stored by columns, packed in one: L below the diagonal, with an implicit unit diagonal.
/// Row i is swapped with row `pivots[i]`, counted from 1. Returns the position of the first zero on
/// U's diagonal, from 1, or 0. The pivot is the first element of largest magnitude.
pub(crate) fn factor<T: Real>(
    data: &[T],
    (m, n): (usize, usize),
    packed: &mut [T],
    pivots: &mut [i32],
) -> i32 {
    let (mut a, k, mut info) = (copied(data, m, n), m.min(n), 0);
    for start in (0..k).step_by(PANEL) {
        let end = (start + PANEL).min(k);
        for j in start..end {
            let pivot = pivot_row(&a, j);
            pivots[j] = pivot as i32 + 1;
            if a[(pivot, j)] == T::ZERO {
                info = if info == 0 { j as i32 + 1 } else { info };
                continue;
            }
            if pivot != j {
                for column in 0..n {
                    let (above, below) = (a[(j, column)], a[(pivot, column)]);
                    (a[(j, column)], a[(pivot, column)]) = (below, above);
                }
            }
            let divisor = a[(j, j)];
            a.col_as_slice_mut(j)[j + 1..].iter_mut().for_each(|x| *x /= divisor);
            for column in j + 1..end {
                let by = a[(j, column)];
                for i in j + 1..m {
                    let x = a[(i, j)];
                    a[(i, column)] -= x * by;
                }
            }
        }
        let (_, _, _, rest) = a.as_mut().split_at_mut(start, start);
        let (left, right) = rest.split_at_col_mut(end - start);
        let left = left.into_const();
        let (mut upper, below) = right.split_at_row_mut(end - start);
        let (triangle, factor) = left.split_at_row(end - start);
        solve_unit_lower_triangular_in_place(triangle, upper.as_mut(), Par::Seq);
        matmul(below, Accum::Add, factor, upper.as_ref(), -T::ONE, Par::Seq);
    }
    store_columns(a.as_ref(), packed);
    info
}

/// The solution X of A X = B, or of A' X = B, for A packed as by [`factor`] and n×k right-hand sides,
/// all stored by columns. Err: the pivot that is no row.
pub(crate) fn solve<T: Real>(
    (packed, pivots): (&[T], &[i32]),
    b: &[T],
    (n, k): (usize, usize),
    adjoint: bool,
    x: &mut [T],
) -> Result<(), i32> {
    let row = |p: &i32| usize::try_from(*p - 1).ok().filter(|row| *row < n).ok_or(*p);
    let swaps = pivots.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    x.copy_from_slice(b);
    let a = MatRef::from_column_major_slice(packed, n, n);
    let columns = |x: &mut [T], swap: &dyn Fn(&mut [T])| x.chunks_mut(n.max(1)).for_each(swap);
    if adjoint {
        let mut y = MatMut::from_column_major_slice_mut(&mut *x, n, k);
        solve_lower_triangular_in_place(a.transpose(), y.as_mut(), Par::Seq);
        solve_unit_upper_triangular_in_place(a.transpose(), y.as_mut(), Par::Seq);
        columns(x, &|x| swaps.iter().enumerate().rev().for_each(|(i, p)| x.swap(i, *p)));
    } else {
        columns(x, &|x| swaps.iter().enumerate().for_each(|(i, p)| x.swap(i, *p)));
        let mut y = MatMut::from_column_major_slice_mut(x, n, k);
        solve_unit_lower_triangular_in_place(a, y.as_mut(), Par::Seq);
        solve_upper_triangular_in_place(a, y.as_mut(), Par::Seq);
    }
    Ok(())
}

/// The row of the first element of largest magnitude from the diagonal of a column on.
fn pivot_row<T: Real>(a: &Mat<T>, j: usize) -> usize {
    let column = a.col_as_slice(j);
    (j + 1..column.len())
        .fold(j, |best, i| if column[i].magnitude() > column[best].magnitude() { i } else { best })
}

/// The rows after swaps. Err: the pivot that is no row.
pub(crate) fn permutation(pivots: &[i32], rows: &[i32], order: &mut [i32]) -> Result<(), i32> {
    order.copy_from_slice(rows);
    for (i, pivot) in pivots.iter().enumerate() {
        let with = usize::try_from(*pivot - 1).ok().filter(|p| *p < order.len()).ok_or(*pivot)?;
        order.swap(i, with);
    }
    Ok(())
}
