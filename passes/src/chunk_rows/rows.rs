//! Which dimensions of a tensor are rows, and how these change from an operand to a result.
use kiln_dialects::{ir::*, rules::tensor_type};

/// The dimensions that are rows, outermost first; none has size 1.
pub(super) type Rows = Vec<usize>;

/// Static sizes; `None`: one is not.
pub(super) fn sizes(v: Value) -> Option<Vec<i64>> {
    v.ty().is_tensor().then(|| v.ty().dims().iter().map(|d| d.known()).collect())?
}

/// The number of elements, if it is static.
pub(super) fn elements(v: Value) -> Option<i64> {
    sizes(v)?.into_iter().try_fold(1i64, i64::checked_mul)
}

/// The size in bytes, if it is static.
pub(super) fn bytes(v: Value) -> Option<i64> {
    elements(v)?.checked_mul(tensor_type(v.ty()).ok()?.dtype.byte_size() as i64)
}

/// The other dimensions, in order.
pub(super) fn others(rank: usize, rows: &Rows) -> Vec<usize> {
    (0..rank).filter(|d| !rows.contains(d)).collect()
}

/// Where a dimension is in a chunk: rows are merged to dimension 0, others follow in order.
pub(super) fn place(rows: &Rows, d: usize) -> usize {
    if rows.contains(&d) { 0 } else { 1 + d - rows.iter().filter(|r| **r < d).count() }
}

/// Rows after `to[i]` has become what was dimension `from[i]`.
pub(super) fn moved(rows: &Rows, from_to: &[(usize, usize)]) -> Option<Rows> {
    let to = |r: &usize| from_to.iter().find(|(from, _)| from == r).map(|(_, to)| *to);
    rows.iter().map(to).collect()
}

/// Rows after a reshape, which has to leave them side by side and apart from other dimensions.
pub(super) fn reshaped(from: &[i64], rows: &Rows, to: &[i64]) -> Option<Rows> {
    let real = |sizes: &[i64]| -> Vec<usize> {
        (0..sizes.len()).filter(|d| sizes.get(*d) != Some(&1)).collect()
    };
    let product = |sizes: &[i64], dims: &[usize]| -> i64 {
        dims.iter().filter_map(|d| sizes.get(*d)).product()
    };
    let (old, new) = (real(from), real(to));
    let first = old.iter().position(|d| Some(d) == rows.first())?;
    if old.get(first..first + rows.len())? != &rows[..] {
        return None;
    }
    let (before, count) = (product(from, &old[..first]), product(from, rows));
    let begin = (0..=new.len()).find(|k| product(to, &new[..*k]) == before)?;
    let end = (begin + 1..=new.len()).find(|k| product(to, &new[begin..*k]) == count)?;
    Some(new[begin..end].to_vec())
}
