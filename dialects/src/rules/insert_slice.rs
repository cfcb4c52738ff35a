//! `kiln.insert_slice`: its type rule, and the single-use rule of its destination.
use super::{
    level::{STATE, param_attrs},
    types::{Sizes, TensorType, ensure},
};
use crate::{
    error::{OptionExt, Result},
    ir::{Node as _, Op, Value},
    ops::{InsertSlice, OpKind},
    sym::Dim,
};

/// The result type.
pub fn infer(o: &InsertSlice, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let source = v.tensor(o.source)?;
    let rank = source.dims.len();
    ensure(o.offsets.len() == rank && o.sizes.len() == rank, || {
        format!("has {} offsets and {} sizes for rank {rank}", o.offsets.len(), o.sizes.len())
    })?;
    let dims = v.sizes(&o.sizes);
    for (i, size) in dims.iter().enumerate() {
        let offset = v.size(&o.offsets[i]);
        ensure(offset.known().is_none_or(|n| n >= 0), || {
            format!("starts at {offset} in dimension {i}")
        })?;
        let room = size.sub(&offset).sub(&source.dims[i]);
        ensure(room.known().is_none_or(|n| n >= 0), || {
            format!(
                "inserts {} elements at {offset} of dimension {i} of size {size}",
                source.dims[i]
            )
        })?;
    }
    ensure(o.start.is_some() == o.axis.is_some(), || {
        "has a start without an axis, or an axis without a start".into()
    })?;
    if let Some((start, axis)) = o.start.zip(o.axis) {
        let start = v.tensor(start)?;
        ensure(start.dims.is_empty() && start.dtype.is_int(), || {
            "starts at what is no 0-d integer".into()
        })?;
        ensure(usize::try_from(axis).is_ok_and(|k| k < rank), || {
            format!("moves along dimension {axis} of rank {rank}")
        })?;
    }
    if let Some(dest) = o.dest {
        let dest = v.tensor(dest)?;
        ensure(dest.dtype == source.dtype, || {
            format!("inserts {} into {}", source.dtype.name(), dest.dtype.name())
        })?;
        ensure(dest.dims.len() == rank, || {
            format!("inserts rank {rank} into rank {}", dest.dims.len())
        })?;
        for (i, (have, size)) in dest.dims.iter().zip(&dims).enumerate() {
            ensure(have.sub(size).known().is_none_or(|n| n == 0), || {
                format!("has size {size} in dimension {i} of a tensor with {have}")
            })?;
        }
    }
    Ok(vec![TensorType { dtype: source.dtype, dims }])
}

/// Start and size of a slice along a dimension, where static.
type Bounds = (Option<i64>, Option<i64>);

/// The static bounds of a slice, per dimension.
fn bounds(o: &InsertSlice) -> Vec<Bounds> {
    let sizes = o.source.ty().dims();
    let moved = |k: usize| o.axis == i64::try_from(k).ok();
    let starts = o.offsets.iter().enumerate().map(|(k, s)| s.known().filter(|_| !moved(k)));
    starts.zip(sizes.iter().map(Dim::known)).collect()
}

/// Whether a function states that an argument is a state, which calls update in place.
fn is_state(argument: Value) -> bool {
    param_attrs(argument).is_some_and(|about| about.entry(STATE).is_some())
}

/// The destination has no other use, and earlier slices are not overwritten.
pub fn verify(op: Op) -> Result<()> {
    let o = InsertSlice::of(op).ok_or_malformed(op)?;
    let own = bounds(&o);
    let mut at: Option<Value> = o.dest;
    while let Some(dest) = at {
        // A shape binding is not a read.
        let readers = dest
            .uses()
            .into_iter()
            .filter(|(user, _)| user.kind() != Some(OpKind::BindShape))
            .count();
        ensure(readers == 1, || "overwrites a tensor that has other uses".into())?;
        let Some(maker) = dest.def() else {
            // In a kernel the destination is an argument, which the launch passes.
            let kernel =
                op.parent().and_then(Op::parent).is_some_and(|m| m.attr("kiln.kernel").is_some());
            return ensure(kernel || is_state(dest), || "overwrites an argument".into());
        };
        let earlier =
            InsertSlice::of(maker).ok_or("overwrites a value that no kiln.insert_slice defines")?;
        let apart = |((a, n), (b, m)): (&Bounds, Bounds)| {
            let before = |a: Option<i64>, n: Option<i64>, b: Option<i64>| {
                a.zip(n).zip(b).is_none_or(|((a, n), b)| a + n <= b)
            };
            before(*a, *n, b) || before(b, m, *a)
        };
        ensure(own.iter().zip(bounds(&earlier)).any(apart), || "overlaps an earlier slice".into())?;
        at = earlier.dest;
    }
    Ok(())
}
