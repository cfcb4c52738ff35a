//! QR factorization by Householder reflections, after LAPACK's geqrf, larft and orgqr.
use crate::matrix::{Real, copied, store_columns};
use faer::{Accum, Mat, MatMut, MatRef, Par, linalg::matmul::matmul};

/// Reflections that are applied together, by matrix products.
const BLOCK: usize = 32;

/// Q R = A of an m×n matrix, both stored by columns, packed in one: R on and above the diagonal; below it column i of the
/// vector of reflection H(i) = I - tau(i) v v', whose first element is 1. Q is H(1) H(2) …
pub(crate) fn factor<T: Real>(data: &[T], (m, n): (usize, usize), packed: &mut [T], tau: &mut [T]) {
    let (mut a, k) = (copied(data, m, n), m.min(n));
    for start in (0..k).step_by(BLOCK) {
        let end = (start + BLOCK).min(k);
        for j in start..end {
            tau[j] = reflector(&mut a.col_as_slice_mut(j)[j..]);
            for column in j + 1..end {
                let [v, x] = [j, column].map(|c| &a.col_as_slice(c)[j..]);
                let tail = v[1..].iter().zip(&x[1..]).fold(T::ZERO, |sum, (v, x)| sum + *v * *x);
                let by = tau[j] * (x[0] + tail);
                a[(j, column)] -= by;
                for i in j + 1..m {
                    let v = a[(i, j)];
                    a[(i, column)] -= by * v;
                }
            }
        }
        if end < n {
            let block = Block::new(a.as_ref(), start, &tau[start..end]);
            let rest = a.as_mut().split_at_row_mut(start).1.split_at_col_mut(end).1;
            block.apply(rest, true);
        }
    }
    store_columns(a.as_ref(), packed);
}

/// Turns x into beta, and the rest of the vector v with H x = (beta, 0, …); returns tau. Beta has
/// the sign that -x[0] has. A vector with zeros behind its first element stays, with tau 0.
fn reflector<T: Real>(x: &mut [T]) -> T {
    let Some((head, tail)) = x.split_first_mut() else { return T::ZERO };
    let largest = tail.iter().fold(T::ZERO, |most, x| {
        let x = x.magnitude();
        if x > most || !x.finite() { x } else { most }
    });
    if largest == T::ZERO {
        return T::ZERO;
    }
    // Scaled, so that no square overflows.
    let scale = if head.magnitude() > largest { head.magnitude() } else { largest };
    let square = |x: T| (x / scale) * (x / scale);
    let sum = tail.iter().fold(square(*head), |sum, x| sum + square(*x));
    let norm = scale * sum.root();
    let beta = if *head < T::ZERO { norm } else { -norm };
    let tau = (beta - *head) / beta;
    let divisor = *head - beta;
    tail.iter_mut().for_each(|x| *x /= divisor);
    *head = beta;
    tau
}

/// The product I - V T V' of reflections, for the rows from the first one's on.
struct Block<T> {
    v: Mat<T>,
    t: Mat<T>,
}

impl<T: Real> Block<T> {
    /// Of the columns from `start` on, one for each tau.
    fn new(a: MatRef<'_, T>, start: usize, tau: &[T]) -> Block<T> {
        let (rows, k) = (a.nrows() - start, tau.len());
        let v = Mat::from_fn(rows, k, |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Less => T::ZERO,
            std::cmp::Ordering::Equal => T::ONE,
            std::cmp::Ordering::Greater => a[(start + i, start + j)],
        });
        let mut gram = Mat::zeros(k, k);
        matmul(gram.as_mut(), Accum::Replace, v.transpose(), v.as_ref(), T::ONE, Par::Seq);
        // Column j of T is -tau(j) T V' v(j) above the diagonal.
        let mut t = Mat::zeros(k, k);
        for j in 0..k {
            for i in 0..j {
                let sum = (i..j).fold(T::ZERO, |sum, l| sum + t[(i, l)] * gram[(l, j)]);
                t[(i, j)] = -(tau[j] * sum);
            }
            t[(j, j)] = tau[j];
        }
        Block { v, t }
    }
    /// Multiplies `c` by the product from the left, or by its transpose.
    fn apply(&self, c: MatMut<'_, T>, transposed: bool) {
        let (k, n) = (self.t.nrows(), c.ncols());
        let (mut first, mut second) = (Mat::zeros(k, n), Mat::zeros(k, n));
        let (v, one, seq) = (self.v.as_ref(), T::ONE, Par::Seq);
        matmul(first.as_mut(), Accum::Replace, v.transpose(), c.as_ref(), one, seq);
        let t = self.t.as_ref();
        let t = if transposed { t.transpose() } else { t };
        matmul(second.as_mut(), Accum::Replace, t, first.as_ref(), one, seq);
        matmul(c, Accum::Add, v, second.as_ref(), -one, seq);
    }
}

/// The first n columns of H(1) H(2) … H(k), m×m, for reflections packed as by [`factor`] in an m×n
/// matrix. Both are stored by columns.
pub(crate) fn product<T: Real>(data: &[T], tau: &[T], (m, n): (usize, usize), q: &mut [T]) {
    let a = copied(data, m, n);
    let mut product = Mat::from_fn(m, n, |i, j| if i == j { T::ONE } else { T::ZERO });
    for start in (0..tau.len()).step_by(BLOCK).rev() {
        let end = (start + BLOCK).min(tau.len());
        let block = Block::new(a.as_ref(), start, &tau[start..end]);
        block.apply(product.as_mut().split_at_row_mut(start).1, false);
    }
    store_columns(product.as_ref(), q);
}
