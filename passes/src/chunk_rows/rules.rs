//! What each op makes of rows: the rows of its result, and what it needs of its operands for them.
use super::rows::{Rows, moved, others, reshaped, sizes};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type};

/// What an op makes of an operand's rows.
pub(super) enum Outcome {
    /// Rows of its result.
    Rows(Rows),
    /// A sum over rows, or another reduction of all of them.
    Sum,
    /// Something else.
    Other,
}

/// What the rows of a result need of an operand.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Need {
    /// Its rows, in these dimensions.
    Rows(Rows),
    /// All of it.
    All,
    /// The number of the row, which it is.
    RowNumber,
}

/// What an op makes of the rows of operand `i`.
pub(super) fn outcome(op: Op, i: usize, rows: &Rows) -> Outcome {
    let found = match op.kind() {
        Some(OpKind::Reduce) => match Reduce::of(op) {
            Some(o) if rows.iter().all(|r| o.dims.contains(&(*r as i64))) => {
                return Outcome::Sum;
            }
            o => o.and_then(|o| kept(o.input, &o.dims, rows)),
        },
        Some(OpKind::DotGeneral) => match DotGeneral::of(op) {
            Some(o) => {
                let contract = if i == 0 { &o.lhs_contract } else { &o.rhs_contract };
                if rows.iter().all(|r| contract.contains(&(*r as i64))) {
                    return Outcome::Sum;
                }
                moved(rows, &product_dims(&o, i))
            }
            None => None,
        },
        Some(kind) => forward(op, kind, i, rows),
        None => None,
    };
    found.map_or(Outcome::Other, Outcome::Rows)
}

fn forward(op: Op, kind: OpKind, i: usize, rows: &Rows) -> Option<Rows> {
    if kind.is_elementwise() {
        return Some(rows.clone());
    }
    match kind {
        OpKind::BroadcastInDim => {
            moved(rows, &from_to(BroadcastInDim::of(op)?.dims.iter().enumerate()))
        }
        OpKind::Transpose => {
            let to_from = from_to(Transpose::of(op)?.permutation.iter().enumerate());
            moved(rows, &to_from.into_iter().map(|(to, from)| (from, to)).collect::<Vec<_>>())
        }
        OpKind::Reshape if i == 0 => reshaped(&sizes(op.operand(0))?, rows, &sizes(op.result(0))?),
        OpKind::ArgMax => kept(op.operand(0), &[ArgMax::of(op)?.axis], rows),
        OpKind::ArgMin => kept(op.operand(0), &[ArgMin::of(op)?.axis], rows),
        OpKind::Slice | OpKind::Pad if i == 0 => Some(rows.clone()),
        OpKind::Concat => Some(rows.clone()),
        OpKind::Gather if i == 0 => {
            let o = Gather::of(op)?;
            let axis = |r: &usize| {
                let k = o.dims.iter().position(|d| *d == *r as i64)?;
                counted_axis(*o.indices.get(k)?)
            };
            rows.iter().map(axis).collect()
        }
        OpKind::Gather => Some(rows.clone()),
        OpKind::Scatter if i == 0 => Some(rows.clone()),
        OpKind::Scatter => {
            let o = Scatter::of(op)?;
            let dim = |r: &usize| {
                let k = o.indices.iter().position(|v| counted_axis(*v) == Some(*r))?;
                o.dims.get(k).map(|d| *d as usize)
            };
            rows.iter().map(dim).collect()
        }
        _ => None,
    }
}

/// What rows of an op's result need of its operands, one after another. `None`: it is not row-wise.
pub(super) fn needs(op: Op, rows: &Rows) -> Option<Vec<Need>> {
    let kind = op.kind()?;
    let result = sizes(op.result(0)).filter(|_| op.result_count() == 1)?;
    if kind.is_elementwise() {
        return Some(vec![Need::Rows(rows.clone()); op.operand_count()]);
    }
    let whole = |d: &usize, offset: Size, size: Option<i64>| {
        offset.known() == Some(0) && size == result.get(*d).copied()
    };
    match kind {
        OpKind::Splat | OpKind::Iota => Some(vec![]),
        OpKind::BroadcastInDim => {
            let o = BroadcastInDim::of(op)?;
            let from = sizes(o.input)?;
            let real = o.dims.iter().enumerate().filter(|(k, _)| from.get(*k) != Some(&1));
            let back: Vec<_> = from_to(real).into_iter().map(|(from, to)| (to, from)).collect();
            match rows.iter().filter(|r| back.iter().any(|(to, _)| to == *r)).count() {
                0 => Some(vec![Need::All]),
                _ => Some(vec![Need::Rows(moved(rows, &back)?)]),
            }
        }
        OpKind::Transpose => {
            let to_from = from_to(Transpose::of(op)?.permutation.iter().enumerate());
            Some(vec![Need::Rows(moved(rows, &to_from)?)])
        }
        OpKind::Reshape => {
            let from = sizes(op.operand(0)).filter(|_| op.operand_count() == 1)?;
            Some(vec![Need::Rows(reshaped(&result, rows, &from)?)])
        }
        OpKind::Reduce => Some(vec![Need::Rows(unreduced(op, &Reduce::of(op)?.dims, rows)?)]),
        OpKind::ArgMax => Some(vec![Need::Rows(unreduced(op, &[ArgMax::of(op)?.axis], rows)?)]),
        OpKind::ArgMin => Some(vec![Need::Rows(unreduced(op, &[ArgMin::of(op)?.axis], rows)?)]),
        OpKind::Slice => {
            let o = Slice::of(op)?;
            let from = sizes(o.input).filter(|_| op.operand_count() == 1)?;
            let all = rows.iter().all(|d| {
                o.strides.get(*d) == Some(&1)
                    && o.offsets.get(*d).is_some_and(|n| whole(d, *n, from.get(*d).copied()))
            });
            all.then(|| vec![Need::Rows(rows.clone())])
        }
        OpKind::Pad => {
            let o = Pad::of(op).filter(|_| op.operand_count() == 2)?;
            let none = |n: Option<&Size>| n.and_then(|n| n.known()) == Some(0);
            let all = rows.iter().all(|d| none(o.low.get(*d)) && none(o.high.get(*d)));
            all.then(|| vec![Need::Rows(rows.clone()), Need::All])
        }
        OpKind::Concat => (!rows.contains(&(Concat::of(op)?.axis as usize)))
            .then(|| vec![Need::Rows(rows.clone()); op.operand_count()]),
        OpKind::Gather => {
            let o = Gather::of(op)?;
            let from = sizes(o.input)?;
            let index_rank = sizes(*o.indices.first()?)?.len();
            if rows.iter().any(|r| *r >= index_rank) {
                return None;
            }
            let mut all = vec![Need::Rows(rows.clone()); 1 + o.indices.len()];
            let same = |k: &usize, r: &usize| {
                let d = o.dims.get(*k).map(|d| *d as usize);
                d.and_then(|d| from.get(d)) == result.get(*r)
            };
            let number = |r: &usize| {
                (0..o.indices.len()).find(|k| counted_axis(o.indices[*k]) == Some(*r) && same(k, r))
            };
            match rows.iter().map(number).collect::<Option<Vec<usize>>>() {
                Some(numbers) => {
                    all[0] = Need::Rows(numbers.iter().map(|k| o.dims[*k] as usize).collect());
                    numbers.iter().for_each(|k| all[1 + k] = Need::RowNumber);
                }
                None => all[0] = Need::All,
            }
            Some(all)
        }
        OpKind::Scatter => {
            let o = Scatter::of(op)?;
            let index = |r: &usize| {
                let k = o.dims.iter().position(|d| *d == *r as i64)?;
                let axis = counted_axis(*o.indices.get(k)?)?;
                (sizes(o.indices[k])?.get(axis) == result.get(*r)).then_some((k, axis))
            };
            let found = rows.iter().map(index).collect::<Option<Vec<(usize, usize)>>>()?;
            let of_index = Need::Rows(found.iter().map(|(_, axis)| *axis).collect());
            let mut all = vec![of_index; 2 + o.indices.len()];
            all[0] = Need::Rows(rows.clone());
            found.iter().for_each(|(k, _)| all[2 + k] = Need::RowNumber);
            Some(all)
        }
        OpKind::DotGeneral => {
            let o = DotGeneral::of(op).filter(|o| o.lhs_batch.is_empty())?;
            let back = |i: usize| -> Option<Rows> {
                let dims = product_dims(&o, i);
                moved(rows, &dims.into_iter().map(|(from, to)| (to, from)).collect::<Vec<_>>())
            };
            match (back(0), back(1)) {
                (Some(r), None) => Some(vec![Need::Rows(r), Need::All]),
                (None, Some(r)) => Some(vec![Need::All, Need::Rows(r)]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// As [`needs`], of an op that reduces the rows of operand `i`.
pub(super) fn sum_needs(op: Op, i: usize, rows: &Rows) -> Option<Vec<Need>> {
    let Some(o) = DotGeneral::of(op) else {
        let o = Reduce::of(op)?;
        let empty = o.maybe_empty && matches!(o.kind, ReduceKind::Max | ReduceKind::Min);
        return (!empty).then(|| vec![Need::Rows(rows.clone())]);
    };
    o.lhs_batch.is_empty().then_some(())?;
    let (own, other) = match i {
        0 => (&o.lhs_contract, &o.rhs_contract),
        _ => (&o.rhs_contract, &o.lhs_contract),
    };
    let pairs: Vec<(usize, usize)> =
        own.iter().zip(other).map(|(a, b)| (*a as usize, *b as usize)).collect();
    let there = Need::Rows(moved(rows, &pairs)?);
    let here = Need::Rows(rows.clone());
    Some(if i == 0 { vec![here, there] } else { vec![there, here] })
}

fn from_to<'a>(all: impl Iterator<Item = (usize, &'a i64)>) -> Vec<(usize, usize)> {
    all.map(|(from, to)| (from, *to as usize)).collect()
}

/// Rows of what is left of a tensor that is reduced along `dims`.
fn kept(input: Value, dims: &[i64], rows: &Rows) -> Option<Rows> {
    let dims: Rows = dims.iter().map(|d| *d as usize).collect();
    let left = others(input.ty().dims().len(), &dims);
    rows.iter().map(|r| left.iter().position(|d| d == r)).collect()
}

/// Rows of a reduction's input.
fn unreduced(op: Op, dims: &[i64], rows: &Rows) -> Option<Rows> {
    let dims: Rows = dims.iter().map(|d| *d as usize).collect();
    let left = others(op.operand(0).ty().dims().len(), &dims);
    rows.iter().map(|r| left.get(*r).copied()).collect()
}

/// The dimensions of operand `i` of a product without batches that its result has, and where.
fn product_dims(o: &DotGeneral, i: usize) -> Vec<(usize, usize)> {
    let free = |v: Value, contract: &[i64]| {
        let contract: Rows = contract.iter().map(|d| *d as usize).collect();
        others(v.ty().dims().len(), &contract)
    };
    let lhs = free(o.lhs, &o.lhs_contract);
    match i {
        0 => lhs.into_iter().enumerate().map(|(to, from)| (from, to)).collect(),
        _ => {
            let rhs = free(o.rhs, &o.rhs_contract).into_iter().enumerate();
            rhs.map(|(to, from)| (from, lhs.len() + to)).collect()
        }
    }
}

/// The axis along which an index tensor counts from 0.
fn counted_axis(v: Value) -> Option<usize> {
    let op = v.def()?;
    if let Some(o) = Iota::of(op) {
        return Some(o.axis as usize);
    }
    if let Some(o) = Constant::of(op) {
        return folded_axis(o.value, &sizes(v)?);
    }
    let (axis, from) = (counted_axis(op.operands().first().copied()?)?, sizes(op.operand(0))?);
    match op.kind()? {
        OpKind::BroadcastInDim => {
            let to = *BroadcastInDim::of(op)?.dims.get(axis)? as usize;
            (sizes(v)?.get(to) == from.get(axis)).then_some(to)
        }
        OpKind::Reshape => match reshaped(&from, &vec![axis], &sizes(v)?)?[..] {
            [axis] => Some(axis),
            _ => None,
        },
        OpKind::Convert => {
            let to = tensor_type(v.ty()).ok()?.dtype;
            (to.is_int() && to.bits() >= 32).then_some(axis)
        }
        _ => None,
    }
}

/// The axis along which a constant counts: small index tensors are folded.
fn folded_axis(value: Attr, sizes: &[i64]) -> Option<usize> {
    let tensor = value.as_tensor().ok()?;
    let all = tensor.as_i().ok()?;
    let counts = |axis: &usize| {
        let (inner, size): (i64, i64) = (sizes[axis + 1..].iter().product(), sizes[*axis]);
        (0..).zip(all).all(|(i, n)| i / inner.max(1) % size.max(1) == *n)
    };
    (0..sizes.len()).find(counts)
}
