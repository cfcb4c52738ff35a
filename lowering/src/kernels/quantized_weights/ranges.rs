//! Which integers a tensor holds, as far as its ops say.
use crate::kernels::prologues::operands::dtype;
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Most ops from a value down to what bounds it.
const MAX_DEPTH: usize = 32;

/// The least and the greatest element of an integer tensor.
pub fn range(v: Value) -> Option<(i64, i64)> {
    bounded(v, MAX_DEPTH)
}

/// The number that all elements of a tensor are.
pub fn number(v: Value) -> Option<f64> {
    let op = v.def()?;
    let value = match op.kind()? {
        OpKind::Splat => op.attr("value")?,
        OpKind::Constant => op.attr("value")?.splat_value()?,
        OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Transpose => {
            return number(op.operand(0));
        }
        _ => return None,
    };
    value.as_f64().or_else(|| value.as_i64().map(|n| n as f64))
}

fn bounded(v: Value, depth: usize) -> Option<(i64, i64)> {
    let depth = depth.checked_sub(1)?;
    let dtype = dtype(v).filter(|d| !d.is_float())?;
    if let Some(n) = number(v) {
        return Some((n as i64, n as i64));
    }
    let op = v.def()?;
    let of = |i: usize| bounded(op.operand(i), depth);
    let integer = |i: usize| number(op.operand(i)).map(|n| n as i64);
    match op.kind()? {
        OpKind::And => {
            let mask = [0, 1].into_iter().filter_map(integer).find(|n| *n >= 0)?;
            Some((0, mask))
        }
        OpKind::Shr => {
            let bytes = (dtype == DType::UI8).then_some((0, 255));
            let (low, high) = of(0).or(bytes).filter(|(low, _)| *low >= 0)?;
            let by = integer(1).filter(|n| (0..63).contains(n))?;
            Some((low >> by, high >> by))
        }
        OpKind::Add => small(of(0)?, of(1)?, |a, b| (a.0 + b.0, a.1 + b.1)),
        OpKind::Sub => small(of(0)?, of(1)?, |a, b| (a.0 - b.1, a.1 - b.0)),
        // Up to 127 every integer type has the same values.
        OpKind::Convert => of(0).filter(|(low, high)| *low >= 0 && *high <= 127),
        OpKind::Reshape | OpKind::Transpose | OpKind::Slice | OpKind::BroadcastInDim => of(0),
        OpKind::Concat => {
            let all: Option<Vec<_>> = (0..op.operand_count()).map(of).collect();
            all?.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        }
        _ => None,
    }
}

/// The range of a sum or a difference that no integer type wraps.
fn small(
    a: (i64, i64),
    b: (i64, i64),
    of: impl Fn((i64, i64), (i64, i64)) -> (i64, i64),
) -> Option<(i64, i64)> {
    let fits = |(low, high): &(i64, i64)| *low >= -128 && *high <= 127;
    Some(of(a, b)).filter(|r| fits(&a) && fits(&b) && fits(r))
}
