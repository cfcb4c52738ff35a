//! What a reduction reads, with the reduced dimensions merged and split into parts: broadcasts and
//! slices of what has them whole are broadcasts and slices of the reshaped.
use super::parts::{PartialSplit, fused_producers};
use crate::readers::widens;
use kiln_dialects::{ir::*, ops::*, sym::Dim};
use std::cell::RefCell;

/// The reshapes that this run has made: reductions of one tensor read one, so that they fuse.
#[derive(Default)]
pub(super) struct Reshapes(RefCell<Vec<Op>>);

impl Reshapes {
    /// The tensor with these sizes.
    pub(super) fn of(&self, b: Builder, input: Value, sizes: Vec<Size>) -> Result<Value> {
        let known = |n: &Size| n.known().map_or(Dim::Unknown, Dim::Known);
        let dims: Vec<Dim> = sizes.iter().map(known).collect();
        // Reductions are split in the order of their block.
        let same = |op: &Op| {
            op.operand(0) == input
                && op.block() == Some(b.block())
                && op.result(0).ty().dims() == dims
        };
        if let Some(op) = self.0.borrow().iter().find(|op| same(op)) {
            return Ok(op.result(0));
        }
        let op = b.create_node(&Reshape { input, sizes })?;
        self.0.borrow_mut().push(op);
        Ok(op.result(0))
    }
}

/// Whether the stored values that an operand is computed from can be seen with some dimensions
/// merged: those that are moved cannot, but for transposes of products, which the product's kernel
/// applies.
pub(super) fn can_merge(input: Value, reduction: Op, first: usize, count: usize) -> bool {
    let inner = fused_producers(input, reduction);
    let operands = inner.iter().filter_map(|v| v.def()).flat_map(Op::operands);
    let mut read = std::iter::once(input).chain(operands).filter(|v| !inner.contains(v));
    read.all(|v| is_contiguous(v, first, count))
}

/// Whether a value that is not fused lies in memory as if these dimensions were one.
fn is_contiguous(v: Value, first: usize, count: usize) -> bool {
    let Some(op) = v.def() else { return true };
    if let Some(o) = BroadcastInDim::of(op) {
        let merged = first..first + count;
        let sizes = o.input.ty().dims();
        let along = |(d, n): (&i64, &Dim)| !merged.contains(&(*d as usize)) || n.known() == Some(1);
        return o.dims.iter().zip(&sizes).all(along)
            || whole(&o, first, count).is_some() && is_stored(o.input);
    }
    match Slice::of(op) {
        Some(o) => is_uncut(&o, first, count) && is_stored(o.input),
        None => is_stored(v),
    }
}

/// Whether a value is not a view that a reshape would have to copy.
fn is_stored(v: Value) -> bool {
    let Some(op) = v.def() else { return true };
    let product = |o: Op| matches!(o.kind(), Some(OpKind::DotGeneral | OpKind::Convolution));
    match op.kind() {
        Some(OpKind::Transpose) => op.operand(0).def().is_some_and(product),
        Some(OpKind::BroadcastInDim | OpKind::Reverse | OpKind::Slice) => false,
        _ => true,
    }
}

/// Where the input of a broadcast has these dimensions, all of them and as long as the result's.
fn whole(o: &BroadcastInDim, first: usize, count: usize) -> Option<usize> {
    let at = o.dims.iter().position(|d| *d == first as i64)?;
    let (dims, input) = (o.dims.get(at..at + count)?, o.input.ty().dims());
    let same = |i: usize| {
        dims[i] == (first + i) as i64
            && input[at + i].known().is_some()
            && input[at + i].known() == o.sizes[first + i].known()
    };
    (0..count).all(same).then_some(at)
}

/// Whether a slice has these dimensions whole.
fn is_uncut(o: &Slice, first: usize, count: usize) -> bool {
    let input = o.input.ty().dims();
    (first..first + count).all(|d| {
        o.offsets[d].known() == Some(0)
            && o.strides[d] == 1
            && input[d].known().is_some()
            && input[d].known() == o.sizes[d].known()
    })
}

/// A broadcast or a slice with the dimensions merged and split; `sizes`: its own then.
pub(super) fn rebuilt(
    b: Builder,
    v: Value,
    (parts, reshapes): (&PartialSplit, &Reshapes),
    sizes: &[Size],
) -> Option<Result<Value>> {
    let (first, count) = (parts.dim, parts.merged);
    let halves = [Size::Static(parts.count), Size::Static(parts.size)];
    let reshaped = |input: Value, at: usize| -> Result<Value> {
        let mut sizes = b.sizes_of(input)?;
        sizes.splice(at..at + count, halves);
        // What is widened is read narrow.
        match input.def().filter(|op| widens(*op)).and_then(Convert::of) {
            Some(o) => b.add(&Convert { input: reshapes.of(b, o.input, sizes)?, dtype: o.dtype }),
            None => reshapes.of(b, input, sizes),
        }
    };
    let op = v.def()?;
    if let Some(o) = Slice::of(op) {
        let split = || {
            let (mut offsets, mut strides) = (o.offsets.clone(), o.strides.clone());
            offsets.splice(first..first + count, [Size::Static(0), Size::Static(0)]);
            strides.splice(first..first + count, [1, 1]);
            let input = reshaped(o.input, first)?;
            b.add(&Slice { input, offsets, strides, sizes: sizes.to_vec() })
        };
        return is_uncut(&o, first, count).then(split);
    }
    let o = BroadcastInDim::of(op)?;
    let split = || {
        let shift = 2 - count as i64;
        let moved = |d: i64| if d < first as i64 { d } else { d + shift };
        let kept = |d: &i64| !(first..first + count).contains(&(*d as usize));
        let mut dims: Vec<i64> = o.dims.iter().filter(|d| kept(d)).map(|d| moved(*d)).collect();
        let input = match whole(&o, first, count) {
            Some(at) => {
                dims.splice(at..at, [first as i64, first as i64 + 1]);
                reshaped(o.input, at)?
            }
            None if o.dims.iter().all(kept) => o.input,
            // What lies in the merged dimensions is broadcast along them: of size 1.
            None => {
                let all = b.sizes_of(o.input)?.into_iter().zip(&o.dims);
                let sizes = all.filter(|(_, d)| kept(d)).map(|(n, _)| n).collect();
                b.add(&Reshape { input: o.input, sizes })?
            }
        };
        b.add(&BroadcastInDim { input, dims, sizes: sizes.to_vec() })
    };
    Some(split())
}
