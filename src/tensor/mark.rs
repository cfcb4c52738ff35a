//! Marks of dimensions, for the first compilation.
use super::{Array, Tensor, TraceError, array::Mark};
use std::ops::RangeInclusive;

/// Marks a dimension as dynamic with a range of sizes, so that the first compilation makes it
/// symbolic (as `torch._dynamo.mark_dynamic`). Sizes 0 and 1 are still specialised. Err: no such
/// dimension, the current size is out of range, or a traced tensor.
pub fn mark_dynamic(t: &Tensor, dim: i64, range: RangeInclusive<i64>) -> Result<(), TraceError> {
    let max = Some(*range.end()).filter(|m| *m < i64::MAX);
    let array = t.array()?;
    let at = position(&array, dim)?;
    let n = array.shape()[at] as i64;
    if !range.contains(&n) {
        return Err(TraceError::User(
            format!("dimension {dim} has size {n}, which is not in {range:?}").into(),
        ));
    }
    array.add_mark(at, Mark::Dynamic(*range.start(), max));
    Ok(())
}

/// Marks a dimension as static: each size is specialised. Err: no such dimension, or a traced
/// tensor.
pub fn mark_static(t: &Tensor, dim: i64) -> Result<(), TraceError> {
    let array = t.array()?;
    let at = position(&array, dim)?;
    array.add_mark(at, Mark::Static);
    Ok(())
}

/// Normalises a dimension; negative ones count from the end.
fn position(array: &Array, dim: i64) -> Result<usize, TraceError> {
    let rank = array.shape().len();
    let at =
        usize::try_from(if dim < 0 { dim + rank as i64 } else { dim }).ok().filter(|d| *d < rank);
    at.ok_or_else(|| TraceError::User(format!("dimension {dim} is outside of rank {rank}").into()))
}
