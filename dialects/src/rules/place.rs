//! `kiln.place`: its type, and who may read what it makes.
use super::shape::{Sizes, TensorType, want};
use crate::error::OptionExt;
use crate::error::Result;
use crate::{
    ir::{Node as _, Op, Value},
    ops::{OpKind, Place},
    sym::Dim,
};

/// The type of the result.
pub fn infer(o: &Place, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let piece = v.tensor(o.piece)?;
    let rank = piece.dims.len();
    want(o.offsets.len() == rank && o.sizes.len() == rank, || {
        format!("has {} offsets and {} sizes for rank {rank}", o.offsets.len(), o.sizes.len())
    })?;
    let dims = v.sizes(&o.sizes);
    for (i, size) in dims.iter().enumerate() {
        let offset = v.size(&o.offsets[i]);
        want(offset.known().is_none_or(|n| n >= 0), || {
            format!("starts at {offset} in dimension {i}")
        })?;
        let room = size.sub(&offset).sub(&piece.dims[i]);
        want(room.known().is_none_or(|n| n >= 0), || {
            format!("puts {} elements at {offset} of dimension {i} of size {size}", piece.dims[i])
        })?;
    }
    if let Some(whole) = o.whole {
        let whole = v.tensor(whole)?;
        want(whole.dtype == piece.dtype, || {
            format!("puts {} into {}", piece.dtype.name(), whole.dtype.name())
        })?;
        want(whole.dims.len() == rank, || {
            format!("puts rank {rank} into rank {}", whole.dims.len())
        })?;
        for (i, (have, size)) in whole.dims.iter().zip(&dims).enumerate() {
            want(have.sub(size).known().is_none_or(|n| n == 0), || {
                format!("has size {size} in dimension {i} of a tensor with {have}")
            })?;
        }
    }
    Ok(vec![TensorType { dtype: piece.dtype, dims }])
}

/// Where a piece begins along a dimension, and how long it is there, if that is known.
type Bounds = (Option<i64>, Option<i64>);

/// The box of a piece, as far as it is known: start and size of each dimension.
fn bounds(o: &Place) -> Vec<Bounds> {
    let sizes = o.piece.ty().dims();
    o.offsets.iter().map(|s| s.known()).zip(sizes.iter().map(Dim::known)).collect()
}

/// That nothing else reads the tensor that is written on, and that its earlier pieces stay.
pub fn verify(op: Op) -> Result<()> {
    let o = Place::of(op).ok_or_malformed(op)?;
    let own = bounds(&o);
    let mut at: Option<Value> = o.whole;
    while let Some(whole) = at {
        // A fact about its sizes reads nothing of it.
        let readers = whole
            .uses()
            .into_iter()
            .filter(|(user, _)| user.kind() != Some(OpKind::BindShape))
            .count();
        want(readers == 1, || "writes on a tensor that is read elsewhere".into())?;
        let Some(maker) = whole.def() else {
            // A kernel is given it: what launches the kernel hands it on.
            let kernel =
                op.parent().and_then(Op::parent).is_some_and(|m| m.attr("kiln.kernel").is_some());
            return want(kernel, || "writes on an argument".into());
        };
        let earlier = Place::of(maker).ok_or("writes on what no kiln.place has made")?;
        let apart = |((a, n), (b, m)): (&Bounds, Bounds)| {
            let before = |a: Option<i64>, n: Option<i64>, b: Option<i64>| {
                a.zip(n).zip(b).is_none_or(|((a, n), b)| a + n <= b)
            };
            before(*a, *n, b) || before(b, m, *a)
        };
        want(own.iter().zip(bounds(&earlier)).any(apart), || {
            "puts its piece over an earlier one".into()
        })?;
        at = earlier.whole;
    }
    Ok(())
}
