//! argmax and argmin: partial indices and values, then the index of the part with the extreme
//! value.
use super::{
    Rebuild,
    merged::Reshapes,
    parts::{PartialSplit, fused_producers},
};
use crate::{decompose::tools::Math, hoist_gathers::gather_elements};
use kiln_dialects::{ir::*, ops::*};
use std::collections::HashMap;

/// The input and the axis of an argmax or argmin, and whether it is an argmax.
pub fn of(op: Op) -> Option<(Value, i64, bool)> {
    let max = ArgMax::of(op).map(|o| (o.input, o.axis, true));
    max.or_else(|| ArgMin::of(op).map(|o| (o.input, o.axis, false)))
}

/// The index in parts. Ties keep the first index: the first part that has the value, and its first.
pub fn split(
    b: Builder,
    op: Op,
    (input, axis, max): (Value, i64, bool),
    (parts, reshapes): (&PartialSplit, &Reshapes),
) -> Result<Value> {
    let m = Math { b: &b };
    let inner = fused_producers(input, op);
    let covered = parts.count * parts.size;
    let rebuilt = |end: Option<(i64, i64)>, split: bool| {
        Rebuild { b, inner: &inner, parts, reshapes, end, split }.of(input, &mut HashMap::new())
    };
    let main = rebuilt((parts.remainder > 0).then_some((0, covered)), true)?;
    let index = arg(&m, main, axis + 1, max)?;
    let values = at(&m, main, axis as usize + 1, index)?;
    let part = arg(&m, values, axis, max)?;
    let index = at(&m, index, axis as usize, part)?;
    let size = m.full_like(part, parts.size as f64)?;
    let position = m.add(m.mul(part, size)?, index)?;
    if parts.remainder == 0 {
        return Ok(position);
    }
    let remainder_x = rebuilt(Some((covered, parts.remainder)), false)?;
    let index = arg(&m, remainder_x, axis, max)?;
    let (best, last) =
        (at(&m, values, axis as usize, part)?, at(&m, remainder_x, axis as usize, index)?);
    let mut take = m.compare(if max { CompareKind::Gt } else { CompareKind::Lt }, last, best)?;
    if super::element(remainder_x)?.is_float() {
        // A NaN is not equal to itself.
        let (nan, number) =
            (m.compare(CompareKind::Ne, last, last)?, m.compare(CompareKind::Eq, best, best)?);
        let first = m.binary(BinaryKind::And, nan, number)?;
        take = m.binary(BinaryKind::Or, take, first)?;
    }
    m.select(take, m.add(index, m.full_like(index, covered as f64)?)?, position)
}

fn arg(m: &Math<'_>, input: Value, axis: i64, max: bool) -> Result<Value> {
    if max { m.b.add(&ArgMax { input, axis }) } else { m.b.add(&ArgMin { input, axis }) }
}

/// Gathers the elements of `v` at `position` along the axis; `position` has the shape of `v`
/// without it.
fn at(m: &Math<'_>, v: Value, axis: usize, position: Value) -> Result<Value> {
    let sizes = m.b.sizes_of(position)?;
    let index = |d: usize| match d.cmp(&axis) {
        std::cmp::Ordering::Equal => Ok(position),
        std::cmp::Ordering::Less => m.iota(&sizes, d),
        std::cmp::Ordering::Greater => m.iota(&sizes, d - 1),
    };
    let indices = (0..=sizes.len()).map(index).collect::<Result<Vec<_>, _>>()?;
    gather_elements(m.b, v, &indices, super::MAX_DEPTH)
}
