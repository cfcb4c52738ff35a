//! Element types in memory, and the types that they are computed in.
use super::{dtype_code::DtypeCode, float8::Float8};
use half::{bf16, f16};
use std::cmp::Ordering;

/// A compute type: f64 for floats, i64 for integers and `i1`.
pub trait Number: Copy + PartialOrd {
    /// Sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// Product; integers wrap.
    fn mul(self, other: Self) -> Self;
    /// Maximum; NaN if either is NaN, and +0 is above -0.
    fn maximum(self, other: Self) -> Self;
    /// Minimum; NaN if either is NaN, and -0 is below +0.
    fn minimum(self, other: Self) -> Self;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
    /// The constants 0 and 1.
    const ZERO_ONE: (Self, Self);
    /// Sort order: NaN is above everything and equal to itself; -0 and +0 are equal.
    fn order(self, other: Self) -> Ordering {
        self.is_nan().cmp(&other.is_nan()).then(self.partial_cmp(&other).unwrap_or(Ordering::Equal))
    }
}

impl Number for f64 {
    const ZERO_ONE: (f64, f64) = (0.0, 1.0);
    fn add(self, other: f64) -> f64 {
        self + other
    }
    fn mul(self, other: f64) -> f64 {
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
        -Number::maximum(-self, -other)
    }
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
}

impl Number for i64 {
    const ZERO_ONE: (i64, i64) = (0, 1);
    fn add(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
    fn mul(self, other: i64) -> i64 {
        self.wrapping_mul(other)
    }
    fn maximum(self, other: i64) -> i64 {
        self.max(other)
    }
    fn minimum(self, other: i64) -> i64 {
        self.min(other)
    }
    fn is_nan(self) -> bool {
        false
    }
}

/// An element type in memory.
pub trait Element: Copy + 'static {
    /// Its compute type.
    type Wide: Number;
    /// The dtypes that it stores.
    const CODES: &'static [DtypeCode];
    /// Whether long sums need a wider accumulator than the element type.
    const NARROW: bool = false;
    /// Identities of maximum and minimum.
    const RANGE: (Self::Wide, Self::Wide);
    /// Converts to the compute type.
    fn widen(self) -> Self::Wide;
    /// Converts from the compute type: floats round once, integers wrap.
    fn narrow(wide: Self::Wide) -> Self;
}

/// An `i1` in memory: one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bit(u8);

/// f64 to f32, rounded to odd unless exact, so that rounding again equals rounding `x` once.
fn round_to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || x.is_nan() {
        return near;
    }
    let toward_zero = if back.abs() > x.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(toward_zero | 1)
}

macro_rules! element {
    ($($t:ty, $wide:ty, $codes:expr, $narrow:expr, $range:expr, |$x:ident| $widen:expr, |$w:ident| $shrink:expr;)*) => {
        $(impl Element for $t {
            type Wide = $wide;
            const CODES: &'static [DtypeCode] = $codes;
            const NARROW: bool = $narrow;
            const RANGE: ($wide, $wide) = $range;
            fn widen(self) -> $wide {
                let $x = self;
                $widen
            }
            fn narrow($w: $wide) -> $t {
                $shrink
            }
        })*
    };
}

const INFINITE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

element! {
    f64, f64, &[DtypeCode::F64], false, INFINITE, |x| x, |w| w;
    f32, f64, &[DtypeCode::F32], false, INFINITE, |x| f64::from(x), |w| w as f32;
    f16, f64, &[DtypeCode::F16], true, INFINITE, |x| x.to_f64(), |w| f16::from_f32(round_to_odd(w));
    bf16, f64, &[DtypeCode::Bf16], true, INFINITE, |x| x.to_f64(), |w| bf16::from_f32(round_to_odd(w));
    Float8<3>, f64, &[DtypeCode::F8E4M3Fn], true, (-448.0, 448.0), |x| x.to_f64(), |w| Float8::from_f32(round_to_odd(w));
    Float8<2>, f64, &[DtypeCode::F8E5M2], true, INFINITE, |x| x.to_f64(), |w| Float8::from_f32(round_to_odd(w));
    i64, i64, &[DtypeCode::I64], false, (i64::MIN, i64::MAX), |x| x, |w| w;
    i32, i64, &[DtypeCode::I32], false, (i32::MIN as i64, i32::MAX as i64), |x| i64::from(x), |w| w as i32;
    i16, i64, &[DtypeCode::I16], false, (i16::MIN as i64, i16::MAX as i64), |x| i64::from(x), |w| w as i16;
    i8, i64, &[DtypeCode::I8], false, (i8::MIN as i64, i8::MAX as i64), |x| i64::from(x), |w| w as i8;
    u8, i64, &[DtypeCode::Ui8], false, (0, u8::MAX as i64), |x| i64::from(x), |w| w as u8;
    Bit, i64, &[DtypeCode::I1], false, (0, 1), |x| i64::from(x.0 != 0), |w| Bit(u8::from(w != 0));
}

/// A combining operation; discriminants are those of the op's `kind` attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Maximum.
    Max,
    /// Minimum.
    Min,
}

impl Combine {
    /// From the op's `kind` attribute.
    pub fn of(kind: i64) -> Option<Combine> {
        Some(match kind {
            0 => Combine::Sum,
            1 => Combine::Prod,
            2 => Combine::Max,
            3 => Combine::Min,
            _ => return None,
        })
    }
    /// Combines two values.
    pub fn apply<N: Number>(self, x: N, y: N) -> N {
        match self {
            Combine::Sum => x.add(y),
            Combine::Prod => x.mul(y),
            Combine::Max => x.maximum(y),
            Combine::Min => x.minimum(y),
        }
    }
    /// The identity element.
    pub fn identity<E: Element>(self) -> E::Wide {
        match self {
            Combine::Sum => E::Wide::ZERO_ONE.0,
            Combine::Prod => E::Wide::ZERO_ONE.1,
            Combine::Max => E::RANGE.0,
            Combine::Min => E::RANGE.1,
        }
    }
}

/// Instantiates a body for the element type of a dtype.
macro_rules! each_dtype {
    ($code:expr, $e:ident => $body:expr) => {
        match $code {
            $crate::library::DtypeCode::F64 => {
                type $e = f64;
                $body
            }
            $crate::library::DtypeCode::F32 => {
                type $e = f32;
                $body
            }
            $crate::library::DtypeCode::F16 => {
                type $e = half::f16;
                $body
            }
            $crate::library::DtypeCode::Bf16 => {
                type $e = half::bf16;
                $body
            }
            $crate::library::DtypeCode::F8E4M3Fn => {
                type $e = $crate::library::float8::Float8<3>;
                $body
            }
            $crate::library::DtypeCode::F8E5M2 => {
                type $e = $crate::library::float8::Float8<2>;
                $body
            }
            $crate::library::DtypeCode::I64 => {
                type $e = i64;
                $body
            }
            $crate::library::DtypeCode::I32 => {
                type $e = i32;
                $body
            }
            $crate::library::DtypeCode::I16 => {
                type $e = i16;
                $body
            }
            $crate::library::DtypeCode::I8 => {
                type $e = i8;
                $body
            }
            $crate::library::DtypeCode::Ui8 => {
                type $e = u8;
                $body
            }
            $crate::library::DtypeCode::I1 => {
                type $e = $crate::library::element::Bit;
                $body
            }
        }
    };
}
pub(super) use each_dtype;
