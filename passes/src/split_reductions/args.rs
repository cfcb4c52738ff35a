//! Positions of extremes: each part has one, and of the parts' values the extreme says whose it is.
use super::{Moved, Parts, chain};
use crate::{decompose::tools::Math, hoist_gathers::pick};
use kiln_dialects::{ir::*, ops::*};
use std::collections::HashMap;

/// The tensor and the axis of a position, and whether the greatest is meant.
pub fn of(op: Op) -> Option<(Value, i64, bool)> {
    let max = ArgMax::of(op).map(|o| (o.input, o.axis, true));
    max.or_else(|| ArgMin::of(op).map(|o| (o.input, o.axis, false)))
}

/// The position in parts: the first among equals is in the first part that has it, and the first of
/// that part.
pub fn split(
    b: Builder,
    op: Op,
    (input, axis, max): (Value, i64, bool),
    parts: &Parts,
) -> Result<Value> {
    let m = Math { b: &b };
    let inner = chain(input, op);
    let covered = parts.count * parts.size;
    let moved = |end: Option<(i64, i64)>, split: bool| {
        Moved { b, inner: &inner, parts, end, split }.of(input, &mut HashMap::new())
    };
    let main = moved((parts.rest > 0).then_some((0, covered)), true)?;
    let place = arg(&m, main, axis + 1, max)?;
    let values = at(&m, main, axis as usize + 1, place)?;
    let part = arg(&m, values, axis, max)?;
    let place = at(&m, place, axis as usize, part)?;
    let size = m.full_like(part, parts.size as f64)?;
    let position = m.add(m.mul(part, size)?, place)?;
    if parts.rest == 0 {
        return Ok(position);
    }
    let rest = moved(Some((covered, parts.rest)), false)?;
    let place = arg(&m, rest, axis, max)?;
    let (best, last) = (at(&m, values, axis as usize, part)?, at(&m, rest, axis as usize, place)?);
    let mut take = m.compare(if max { CompareKind::Gt } else { CompareKind::Lt }, last, best)?;
    if super::element(rest)?.is_float() {
        // A NaN is not equal to itself.
        let (nan, number) =
            (m.compare(CompareKind::Ne, last, last)?, m.compare(CompareKind::Eq, best, best)?);
        let first = m.binary(BinaryKind::And, nan, number)?;
        take = m.binary(BinaryKind::Or, take, first)?;
    }
    m.select(take, m.add(place, m.full_like(place, covered as f64)?)?, position)
}

fn arg(m: &Math<'_>, input: Value, axis: i64, max: bool) -> Result<Value> {
    if max { m.b.add(&ArgMax { input, axis }) } else { m.b.add(&ArgMin { input, axis }) }
}

/// The elements of a value at these positions along an axis, of which it has one for each other
/// place.
fn at(m: &Math<'_>, v: Value, axis: usize, position: Value) -> Result<Value> {
    let sizes = m.b.sizes_of(position)?;
    let index = |d: usize| match d.cmp(&axis) {
        std::cmp::Ordering::Equal => Ok(position),
        std::cmp::Ordering::Less => m.iota(&sizes, d),
        std::cmp::Ordering::Greater => m.iota(&sizes, d - 1),
    };
    let indices = (0..=sizes.len()).map(index).collect::<Result<Vec<_>, _>>()?;
    pick(m.b, v, &indices, &mut { super::REACH })
}
