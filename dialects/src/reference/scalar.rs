//! Scalar functions of the elementwise ops.

use crate::{
    error::Result,
    ops::{BinaryKind, UnaryKind},
    reference::element::Element,
    value::DType,
};

/// The float function of a unary kind, if defined.
pub fn unary_float(kind: UnaryKind) -> Option<fn(f64) -> f64> {
    Some(match kind {
        UnaryKind::Neg => |x| -x,
        UnaryKind::Abs => f64::abs,
        UnaryKind::Sign => |x| if x.is_nan() || x == 0.0 { x } else { 1f64.copysign(x) },
        UnaryKind::Exp => libm::exp,
        UnaryKind::Exp2 => libm::exp2,
        UnaryKind::Expm1 => libm::expm1,
        UnaryKind::Log => libm::log,
        UnaryKind::Log1p => libm::log1p,
        UnaryKind::Log2 => libm::log2,
        UnaryKind::Sqrt => f64::sqrt,
        UnaryKind::Rsqrt => |x| 1.0 / x.sqrt(),
        UnaryKind::Sin => libm::sin,
        UnaryKind::Cos => libm::cos,
        UnaryKind::Tan => libm::tan,
        UnaryKind::Asin => libm::asin,
        UnaryKind::Acos => libm::acos,
        UnaryKind::Atan => libm::atan,
        UnaryKind::Sinh => libm::sinh,
        UnaryKind::Cosh => libm::cosh,
        UnaryKind::Tanh => libm::tanh,
        UnaryKind::Erf => libm::erf,
        UnaryKind::Ceil => f64::ceil,
        UnaryKind::Floor => f64::floor,
        UnaryKind::RoundEven => f64::round_ties_even,
        UnaryKind::Trunc => f64::trunc,
        UnaryKind::Not | UnaryKind::IsFinite | UnaryKind::IsNan => return None,
    })
}

/// The integer function of a unary kind before wrap-around, if defined.
pub fn unary_int(kind: UnaryKind, dtype: DType) -> Option<fn(i64) -> i64> {
    match (kind, dtype) {
        (UnaryKind::Not, DType::I1) => Some(|x| 1 - x),
        (_, DType::I1) => None,
        (UnaryKind::Not, _) => Some(|x| !x),
        (UnaryKind::Neg, _) => Some(i64::wrapping_neg),
        (UnaryKind::Abs, _) => Some(i64::wrapping_abs),
        (UnaryKind::Sign, _) => Some(i64::signum),
        _ => None,
    }
}

/// The float function of a binary kind, if defined.
pub fn binary_float(kind: BinaryKind) -> Option<fn(f64, f64) -> f64> {
    Some(match kind {
        BinaryKind::Add => |x, y| x + y,
        BinaryKind::Sub => |x, y| x - y,
        BinaryKind::Mul => |x, y| x * y,
        BinaryKind::Div => |x, y| x / y,
        BinaryKind::Rem => |x, y| x % y,
        BinaryKind::FloorDiv => floor_div,
        BinaryKind::Pow => libm::pow,
        BinaryKind::Max => Element::maximum,
        BinaryKind::Min => Element::minimum,
        BinaryKind::Atan2 => libm::atan2,
        BinaryKind::And | BinaryKind::Or | BinaryKind::Xor | BinaryKind::Shl | BinaryKind::Shr => {
            return None;
        }
    })
}

/// Floor division, as Python's float_floor_div and PyTorch's div_floor_floating.
fn floor_div(x: f64, y: f64) -> f64 {
    if y == 0.0 {
        return x / y;
    }
    let remainder = x % y;
    let mut quotient = (x - remainder) / y;
    if remainder != 0.0 && (y < 0.0) != (remainder < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0f64.copysign(x / y);
    }
    let floor = quotient.floor();
    // The quotient is integral up to rounding; correct one that was rounded down.
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// The integer function of a binary kind before wrap-around. Err: not defined on the dtype,
/// division by 0.
pub fn binary_int(kind: BinaryKind, dtype: DType, x: i64, y: i64) -> Result<i64> {
    use BinaryKind as K;
    let divides = matches!(kind, K::Div | K::Rem | K::FloorDiv);
    let numbers_only = divides || matches!(kind, K::Sub | K::Pow | K::Shl | K::Shr);
    if kind == K::Atan2 || (numbers_only && dtype == DType::I1) {
        return Err(format!("{kind:?} is not defined on {dtype}").into());
    }
    if divides && y == 0 {
        return Err(format!("{kind:?} of {x} by 0").into());
    }
    Ok(match kind {
        K::Add => x.wrapping_add(y),
        K::Sub => x.wrapping_sub(y),
        K::Mul => x.wrapping_mul(y),
        K::Div => x.wrapping_div(y),
        K::Rem => x.wrapping_rem(y),
        K::FloorDiv => {
            let below = x.wrapping_rem(y) != 0 && (x < 0) != (y < 0);
            x.wrapping_div(y) - i64::from(below)
        }
        K::Pow => int_pow(x, y),
        K::Max => x.max(y),
        K::Min => x.min(y),
        K::And => x & y,
        K::Or => x | y,
        K::Xor => x ^ y,
        K::Shl if !(0..i64::from(dtype.bits())).contains(&y) => 0,
        K::Shl => x << y,
        K::Shr if !(0..i64::from(dtype.bits())).contains(&y) => x >> 63,
        K::Shr => x >> y,
        K::Atan2 => 0,
    })
}

/// x^y modulo 2^64; 0 for negative y unless |x| = 1.
fn int_pow(x: i64, y: i64) -> i64 {
    match (x, y) {
        (1, _) => 1,
        (-1, y) => 1 - 2 * (y & 1),
        (_, y) if y < 0 => 0,
        _ => {
            let (mut base, mut exponent, mut power) = (x, y, 1i64);
            while exponent > 0 {
                if exponent & 1 == 1 {
                    power = power.wrapping_mul(base);
                }
                base = base.wrapping_mul(base);
                exponent >>= 1;
            }
            power
        }
    }
}
