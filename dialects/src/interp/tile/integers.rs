//! Integer functions of `arith`, by the name of the op.
use crate::{
    ir::{CmpIPredicate, OpType as _, arith},
    value::DType,
};

/// An integer as an unsigned one of its dtype.
pub(super) fn unsigned(dtype: DType, x: i64) -> u64 {
    match dtype.bits() {
        64 => x as u64,
        bits => x as u64 & ((1 << bits) - 1),
    }
}

/// An integer as a signed one of its dtype, where i1 has -1.
fn signed(dtype: DType, x: i64) -> i64 {
    if dtype == DType::I1 { -(x & 1) } else { x }
}

/// A function of two integers of a dtype. None: its value is undefined.
pub(super) type Binary = fn(DType, i64, i64) -> Option<i64>;

fn shift(dtype: DType, by: i64) -> Option<u32> {
    u32::try_from(by).ok().filter(|n| *n < dtype.bits())
}

/// A function of two integers, by the op's full name.
pub(super) fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        arith::AddI::NAME => |_, a, b| Some(a.wrapping_add(b)),
        arith::SubI::NAME => |_, a, b| Some(a.wrapping_sub(b)),
        arith::MulI::NAME => |_, a, b| Some(a.wrapping_mul(b)),
        arith::DivSI::NAME => |_, a, b| a.checked_div(b),
        arith::RemSI::NAME => |_, a, b| a.checked_rem(b),
        arith::FloorDivSI::NAME => |_, a, b| {
            let q = a.checked_div(b)?;
            Some(q - i64::from(a % b != 0 && (a < 0) != (b < 0)))
        },
        arith::CeilDivSI::NAME => |_, a, b| {
            let q = a.checked_div(b)?;
            Some(q + i64::from(a % b != 0 && (a < 0) == (b < 0)))
        },
        arith::DivUI::NAME => |d, a, b| Some(unsigned(d, a).checked_div(unsigned(d, b))? as i64),
        arith::RemUI::NAME => |d, a, b| Some(unsigned(d, a).checked_rem(unsigned(d, b))? as i64),
        arith::CeilDivUI::NAME => |d, a, b| {
            let (a, b) = (unsigned(d, a), unsigned(d, b));
            (b != 0).then(|| a.div_ceil(b) as i64)
        },
        arith::MinSI::NAME => |d, a, b| Some(if signed(d, a) < signed(d, b) { a } else { b }),
        arith::MaxSI::NAME => |d, a, b| Some(if signed(d, a) > signed(d, b) { a } else { b }),
        arith::MinUI::NAME => |d, a, b| Some(if unsigned(d, a) < unsigned(d, b) { a } else { b }),
        arith::MaxUI::NAME => |d, a, b| Some(if unsigned(d, a) > unsigned(d, b) { a } else { b }),
        arith::AndI::NAME => |_, a, b| Some(a & b),
        arith::OrI::NAME => |_, a, b| Some(a | b),
        arith::XOrI::NAME => |_, a, b| Some(a ^ b),
        arith::ShLI::NAME => |d, a, b| Some(a << shift(d, b)?),
        arith::ShRSI::NAME => |d, a, b| Some(a >> shift(d, b)?),
        arith::ShRUI::NAME => |d, a, b| Some((unsigned(d, a) >> shift(d, b)?) as i64),
        _ => return None,
    })
}

/// Whether `arith.cmpi` holds.
pub(super) fn compare(predicate: CmpIPredicate, dtype: DType, a: i64, b: i64) -> bool {
    use CmpIPredicate as P;
    let (s, t) = (signed(dtype, a), signed(dtype, b));
    let (u, v) = (unsigned(dtype, a), unsigned(dtype, b));
    match predicate {
        P::Eq => a == b,
        P::Ne => a != b,
        P::Slt => s < t,
        P::Sle => s <= t,
        P::Sgt => s > t,
        P::Sge => s >= t,
        P::Ult => u < v,
        P::Ule => u <= v,
        P::Ugt => u > v,
        P::Uge => u >= v,
    }
}

/// An integer as one of another dtype, by the op's full name.
pub(super) fn cast(name: &str) -> Option<fn(DType, i64) -> i64> {
    Some(match name {
        arith::IndexCast::NAME | arith::ExtSI::NAME => signed,
        arith::TruncI::NAME => |_, x| x,
        arith::IndexCastUI::NAME | arith::ExtUI::NAME => |dtype, x| unsigned(dtype, x) as i64,
        _ => return None,
    })
}
