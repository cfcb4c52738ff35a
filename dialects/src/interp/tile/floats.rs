//! Float functions of `arith` and `math`, by the name of the op.
use crate::{
    ir::{CmpFPredicate, OpType as _, arith, math},
    ops::{BinaryKind, UnaryKind},
    reference,
};

/// A function of a float, by the op's full name.
pub(super) fn unary(name: &str) -> Option<fn(f64) -> f64> {
    use UnaryKind as K;
    let kind = match name {
        arith::NegF::NAME => K::Neg,
        arith::ExtF::NAME | arith::TruncF::NAME => return Some(|x| x),
        math::AbsF::NAME => K::Abs,
        math::Exp::NAME => K::Exp,
        math::Exp2::NAME => K::Exp2,
        math::ExpM1::NAME => K::Expm1,
        math::Log::NAME => K::Log,
        math::Log1p::NAME => K::Log1p,
        math::Log2::NAME => K::Log2,
        math::Sqrt::NAME => K::Sqrt,
        math::Rsqrt::NAME => K::Rsqrt,
        math::Sin::NAME => K::Sin,
        math::Cos::NAME => K::Cos,
        math::Tan::NAME => K::Tan,
        math::Asin::NAME => K::Asin,
        math::Acos::NAME => K::Acos,
        math::Atan::NAME => K::Atan,
        math::Sinh::NAME => K::Sinh,
        math::Cosh::NAME => K::Cosh,
        math::Tanh::NAME => K::Tanh,
        math::Erf::NAME => K::Erf,
        math::Ceil::NAME => K::Ceil,
        math::Floor::NAME => K::Floor,
        math::RoundEven::NAME => K::RoundEven,
        math::Trunc::NAME => K::Trunc,
        math::Round::NAME => return Some(f64::round),
        _ => return None,
    };
    reference::unary_float(kind)
}

/// A function of two floats, by the op's full name.
pub(super) fn binary(name: &str) -> Option<fn(f64, f64) -> f64> {
    use BinaryKind as K;
    let kind = match name {
        arith::AddF::NAME => K::Add,
        arith::SubF::NAME => K::Sub,
        arith::MulF::NAME => K::Mul,
        arith::DivF::NAME => K::Div,
        arith::RemF::NAME => K::Rem,
        arith::MaximumF::NAME => K::Max,
        arith::MinimumF::NAME => K::Min,
        // These take NaN for no number.
        arith::MaxNumF::NAME => return Some(f64::max),
        arith::MinNumF::NAME => return Some(f64::min),
        math::PowF::NAME => K::Pow,
        math::Atan2::NAME => K::Atan2,
        math::CopySign::NAME => return Some(f64::copysign),
        _ => return None,
    };
    reference::binary_float(kind)
}

/// Whether `arith.cmpf` holds.
pub(super) fn compare(predicate: CmpFPredicate, a: f64, b: f64) -> bool {
    use CmpFPredicate as P;
    let unordered = a.is_nan() || b.is_nan();
    match predicate {
        P::AlwaysFalse => false,
        P::Oeq => a == b,
        P::Ogt => a > b,
        P::Oge => a >= b,
        P::Olt => a < b,
        P::Ole => a <= b,
        P::One => !unordered && a != b,
        P::Ord => !unordered,
        P::Ueq => unordered || a == b,
        P::Ugt => unordered || a > b,
        P::Uge => unordered || a >= b,
        P::Ult => unordered || a < b,
        P::Ule => unordered || a <= b,
        P::Une => unordered || a != b,
        P::Uno => unordered,
        P::AlwaysTrue => true,
    }
}
