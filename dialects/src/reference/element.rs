//! Arithmetic shared by float and integer elements.

use crate::{ops::CumulativeKind, value::DType};
use std::cmp::Ordering;

/// f64 for every float dtype, i64 for every integer dtype and `i1`.
pub trait Element: Copy + PartialOrd + std::fmt::Debug {
    const ZERO: Self;
    const ONE: Self;
    fn is_nan(self) -> bool;
    /// Sum; integers wrap around at the dtype, which for `i1` makes it a logical or.
    fn add(self, other: Self, dtype: DType) -> Self;
    /// Product; integers wrap around at the dtype, which for `i1` makes it a logical and.
    fn mul(self, other: Self, dtype: DType) -> Self;
    /// Greater of two; NaN if either is NaN; +0 is above -0 (IEEE 754-2019 maximum).
    fn maximum(self, other: Self) -> Self;
    /// Lesser of two; NaN if either is NaN; -0 is below +0 (IEEE 754-2019 minimum).
    fn minimum(self, other: Self) -> Self;
    /// Identity of `maximum`; finite for `f8E4M3FN`, where -inf would round to NaN.
    fn lowest(dtype: DType) -> Self;
    /// Identity of `minimum`.
    fn highest(dtype: DType) -> Self;

    /// Sort order: NaN compares equal to itself and above everything, +0 equal to -0.
    fn order(self, other: Self) -> Ordering {
        self.is_nan().cmp(&other.is_nan()).then(self.partial_cmp(&other).unwrap_or(Ordering::Equal))
    }

    /// One step of a reduction.
    fn combine(self, kind: CumulativeKind, other: Self, dtype: DType) -> Self {
        match kind {
            CumulativeKind::Sum => self.add(other, dtype),
            CumulativeKind::Prod => self.mul(other, dtype),
            CumulativeKind::Max => self.maximum(other),
            CumulativeKind::Min => self.minimum(other),
        }
    }

    /// The identity of a reduction.
    fn identity(kind: CumulativeKind, dtype: DType) -> Self {
        match kind {
            CumulativeKind::Sum => Self::ZERO,
            CumulativeKind::Prod => Self::ONE,
            CumulativeKind::Max => Self::lowest(dtype),
            CumulativeKind::Min => Self::highest(dtype),
        }
    }
}

impl Element for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
    fn add(self, other: f64, _: DType) -> f64 {
        self + other
    }
    fn mul(self, other: f64, _: DType) -> f64 {
        self * other
    }
    fn maximum(self, other: f64) -> f64 {
        if self.is_nan() || other.is_nan() {
            f64::NAN
        } else if self > other || (self == other && self.is_sign_positive()) {
            self
        } else {
            other
        }
    }
    fn minimum(self, other: f64) -> f64 {
        -Element::maximum(-self, -other)
    }
    fn lowest(dtype: DType) -> f64 {
        -Self::highest(dtype)
    }
    fn highest(dtype: DType) -> f64 {
        if dtype == DType::F8E4M3FN { 448.0 } else { f64::INFINITY }
    }
}

impl Element for i64 {
    const ZERO: i64 = 0;
    const ONE: i64 = 1;
    fn is_nan(self) -> bool {
        false
    }
    fn add(self, other: i64, dtype: DType) -> i64 {
        dtype.wrap(self.wrapping_add(other))
    }
    fn mul(self, other: i64, dtype: DType) -> i64 {
        dtype.wrap(self.wrapping_mul(other))
    }
    fn maximum(self, other: i64) -> i64 {
        self.max(other)
    }
    fn minimum(self, other: i64) -> i64 {
        self.min(other)
    }
    fn lowest(dtype: DType) -> i64 {
        dtype.int_range().0
    }
    fn highest(dtype: DType) -> i64 {
        dtype.int_range().1
    }
}

/// Runs a generic body on the elements `$v` of a tensor and returns `Data` of the same kind.
macro_rules! each_data {
    ($x:expr, $v:ident => $body:expr) => {
        match $x.data() {
            $crate::value::Data::F($v) => $crate::value::Data::F($body),
            $crate::value::Data::I($v) => $crate::value::Data::I($body),
        }
    };
}

/// Runs a generic body on the elements of two tensors of one kind.
macro_rules! both_data {
    ($x:expr, $y:expr, $v:ident, $w:ident => $body:expr) => {
        match ($x.data(), $y.data()) {
            ($crate::value::Data::F($v), $crate::value::Data::F($w)) => {
                $crate::value::Data::F($body)
            }
            ($crate::value::Data::I($v), $crate::value::Data::I($w)) => {
                $crate::value::Data::I($body)
            }
            _ => {
                return Err(
                    format!("dtypes {} and {} cannot be combined", $x.dtype(), $y.dtype()).into()
                )
            }
        }
    };
}

pub(super) use {both_data, each_data};
