//! Numbers and matrices: row-major slices of callers, column-major copies to work on.
use faer::{Mat, MatMut, MatRef, traits::RealField};
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, Neg, Sub, SubAssign};

/// f32 or f64.
pub(crate) trait Real:
    RealField
    + Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + DivAssign
    + SubAssign
{
    const ZERO: Self;
    const ONE: Self;
    fn magnitude(self) -> Self;
    fn root(self) -> Self;
    fn finite(self) -> bool;
    fn undefined(self) -> bool;
}

macro_rules! real {
    ($($t:ty),*) => { $(
        impl Real for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            fn magnitude(self) -> $t {
                self.abs()
            }
            fn root(self) -> $t {
                self.sqrt()
            }
            fn finite(self) -> bool {
                self.is_finite()
            }
            fn undefined(self) -> bool {
                self.is_nan()
            }
        }
    )* };
}
real!(f32, f64);

/// A row-major matrix of a caller.
pub(crate) fn rows<T: Real>(data: &[T], m: usize, n: usize) -> MatRef<'_, T> {
    MatRef::from_row_major_slice(data, m, n)
}

/// A row-major matrix of a caller, to write.
pub(crate) fn rows_mut<T: Real>(data: &mut [T], m: usize, n: usize) -> MatMut<'_, T> {
    MatMut::from_row_major_slice_mut(data, m, n)
}

/// A copy of an m×n matrix that a caller stores by columns.
pub(crate) fn copied<T: Real>(data: &[T], m: usize, n: usize) -> Mat<T> {
    MatRef::from_column_major_slice(data, m, n).to_owned()
}

/// Stores a matrix by columns.
pub(crate) fn store_columns<T: Real>(from: MatRef<'_, T>, to: &mut [T]) {
    MatMut::from_column_major_slice_mut(to, from.nrows(), from.ncols()).copy_from(from);
}

/// Stores a matrix row-major.
pub(crate) fn store<T: Real>(from: MatRef<'_, T>, to: &mut [T]) {
    rows_mut(to, from.nrows(), from.ncols()).copy_from(from);
}
