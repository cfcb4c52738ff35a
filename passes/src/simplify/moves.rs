//! Movement ops that are the identity, cancel, or combine.
use super::splats::*;
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, sym};

/// Patterns by root op.
pub(super) const PATTERNS: &[Pattern] = &[
    Pattern { name: "transpose", root: OpKind::Transpose, apply: transpose },
    Pattern { name: "reshape", root: OpKind::Reshape, apply: reshape },
    Pattern { name: "broadcast", root: OpKind::BroadcastInDim, apply: broadcast },
    Pattern { name: "slice", root: OpKind::Slice, apply: slice },
    Pattern { name: "pad", root: OpKind::Pad, apply: pad },
    Pattern { name: "concat", root: OpKind::Concat, apply: concat },
    Pattern { name: "reverse", root: OpKind::Reverse, apply: reverse },
    Pattern { name: "reduce-nothing", root: OpKind::Reduce, apply: reduce },
];

fn replace_by(op: Op, r: &Rewriter, v: Value) -> Result<bool> {
    r.replace(op, &[v]);
    Ok(true)
}

/// A movement op of a splat is a splat.
fn of_splat(op: Op, r: &Rewriter, sizes: Vec<Size>) -> Result<bool> {
    let Some(value) = scalar_of(op.operand(0)) else { return Ok(false) };
    let b = r.before(op)?;
    replace_by(op, r, splat(&b, value, sizes)?)
}

fn static_sizes(v: Value) -> Option<Vec<Size>> {
    v.ty().dims().iter().map(|d| d.known().map(Size::Static)).collect()
}

fn transpose(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Transpose::of(op) else { return Ok(false) };
    if o.permutation.is_sorted() {
        return replace_by(op, r, o.input);
    }
    if let Some(inner) = o.input.def().and_then(Transpose::of) {
        let permutation = o.permutation.iter().map(|p| inner.permutation[*p as usize]).collect();
        let merged = r.before(op)?.add(&Transpose { input: inner.input, permutation })?;
        return replace_by(op, r, merged);
    }
    let Some(sizes) = static_sizes(op.result(0)) else { return Ok(false) };
    if scalar_of(o.input).is_some() {
        return of_splat(op, r, sizes);
    }
    // A transpose that only permutes unit dimensions is a reshape.
    let from = o.input.ty().dims();
    let moved: Vec<i64> =
        o.permutation.iter().copied().filter(|p| from[*p as usize] != sym::Dim::Known(1)).collect();
    if moved.is_sorted() {
        let same = r.before(op)?.add(&Reshape { input: o.input, sizes })?;
        return replace_by(op, r, same);
    }
    if let Some(inner) = o.input.def().and_then(Reshape::of).filter(|_| only_here(o.input, op))
        && let Some(first) = inner.input.def().and_then(Transpose::of)
        && let Some(blocks) = moved_blocks(inner.input, o.input, &o.permutation)
    {
        let b = r.before(op)?;
        let permutation = blocks.into_iter().map(|d| first.permutation[d]).collect();
        let input = b.add(&Transpose { input: first.input, permutation })?;
        return replace_by(op, r, b.add(&Reshape { input, sizes })?);
    }
    Ok(false)
}

pub(super) fn only_here(v: Value, op: Op) -> bool {
    v.uses().iter().all(|(user, _)| *user == op)
}

/// The dimensions of a reshape's input in the order in which a transpose of its result reads them,
/// if that keeps together what the reshape merges or splits.
fn moved_blocks(from: Value, to: Value, permutation: &[i64]) -> Option<Vec<usize>> {
    let known = |v: Value| v.ty().dims().iter().map(|d| d.known()).collect::<Option<Vec<i64>>>();
    let (from, to) = (known(from)?, known(to)?);
    if from.contains(&0) {
        return None;
    }
    // Blocks of equal size: ends in the input and in the result.
    let (mut blocks, mut start) = (vec![], (0, 0));
    while start.1 < to.len() {
        let (mut a, mut b) = (start.0 + 1, start.1 + 1);
        let (mut x, mut y) = (*from.get(start.0)?, *to.get(start.1)?);
        while x != y {
            if x < y {
                x *= from.get(a)?;
                a += 1;
            } else {
                y *= to.get(b)?;
                b += 1;
            }
        }
        blocks.push((start.0..a, start.1..b));
        start = (a, b);
    }
    let mut order = vec![];
    let mut rest = permutation;
    while let Some(next) = rest.first() {
        let (own, block) = blocks.iter().find(|(_, block)| block.start as i64 == *next)?;
        let (these, others) = rest.split_at_checked(block.len())?;
        if !block.clone().eq(these.iter().map(|d| *d as usize)) {
            return None;
        }
        order.extend(own.clone());
        rest = others;
    }
    (order.len() == from.len()).then_some(order)
}

fn reshape(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Reshape::of(op) else { return Ok(false) };
    let is_static = static_sizes(o.input).is_some();
    if o.input.ty() == op.result(0).ty() && (is_static || one_unknown(o.input)) {
        return replace_by(op, r, o.input);
    }
    if scalar_of(o.input).is_some() {
        return of_splat(op, r, o.sizes);
    }
    if let Some(inner) = o.input.def().and_then(Reshape::of) {
        let merged = r.before(op)?.add(&Reshape { input: inner.input, sizes: o.sizes })?;
        return replace_by(op, r, merged);
    }
    Ok(false)
}

/// With one dynamic dimension and equal element counts, equal types mean equal sizes, unless
/// another dimension is 0.
fn one_unknown(v: Value) -> bool {
    let dims = v.ty().dims();
    dims.iter().filter(|d| d.known().is_none()).count() == 1
        && dims.iter().all(|d| d.known() != Some(0))
}

fn broadcast(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = BroadcastInDim::of(op) else { return Ok(false) };
    if o.input.ty() == op.result(0).ty() && static_sizes(o.input).is_some() {
        return replace_by(op, r, o.input);
    }
    if scalar_of(o.input).is_some() {
        return of_splat(op, r, o.sizes);
    }
    if let Some(inner) = o.input.def().and_then(BroadcastInDim::of) {
        let dims = inner.dims.iter().map(|d| o.dims[*d as usize]).collect();
        let merged =
            r.before(op)?.add(&BroadcastInDim { input: inner.input, dims, sizes: o.sizes })?;
        return replace_by(op, r, merged);
    }
    Ok(false)
}

fn slice(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Slice::of(op) else { return Ok(false) };
    let zero = |s: &Size| s.known() == Some(0);
    let whole = o.offsets.iter().all(zero) && o.strides.iter().all(|s| *s == 1);
    if whole && o.input.ty() == op.result(0).ty() && static_sizes(o.input).is_some() {
        return replace_by(op, r, o.input);
    }
    if scalar_of(o.input).is_some() {
        return of_splat(op, r, o.sizes);
    }
    let Some(inner) = o.input.def().and_then(Slice::of) else { return Ok(false) };
    let mut offsets = vec![];
    for i in 0..o.offsets.len() {
        let (Some(a), Some(b)) = (inner.offsets[i].known(), o.offsets[i].known()) else {
            return Ok(false);
        };
        let Some(at) = b.checked_mul(inner.strides[i]).and_then(|x| x.checked_add(a)) else {
            return Ok(false);
        };
        offsets.push(Size::Static(at));
    }
    let strides: Option<Vec<i64>> =
        o.strides.iter().zip(&inner.strides).map(|(a, b)| a.checked_mul(*b)).collect();
    let Some(strides) = strides else { return Ok(false) };
    let merged =
        r.before(op)?.add(&Slice { input: inner.input, offsets, sizes: o.sizes, strides })?;
    replace_by(op, r, merged)
}

fn pad(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Pad::of(op) else { return Ok(false) };
    let known = |s: &[Size]| s.iter().map(|s| s.known()).collect::<Option<Vec<i64>>>();
    let (Some(low), Some(high)) = (known(&o.low), known(&o.high)) else { return Ok(false) };
    if low.iter().chain(&high).all(|n| *n == 0) {
        return replace_by(op, r, o.input);
    }
    let Some(inner) = o.input.def().and_then(Pad::of) else { return Ok(false) };
    let (Some(inner_low), Some(inner_high)) = (known(&inner.low), known(&inner.high)) else {
        return Ok(false);
    };
    // Two paddings combine if neither crops: a crop in between would lose elements.
    let grows = [&low, &high, &inner_low, &inner_high].into_iter().flatten().all(|n| *n >= 0);
    let (a, b) = (scalar_of(o.value), scalar_of(inner.value));
    let same = o.value == inner.value || (a.is_some() && a == b);
    if !grows || !same {
        return Ok(false);
    }
    let sum = |x: &[i64], y: &[i64]| x.iter().zip(y).map(|(a, b)| Size::Static(a + b)).collect();
    let merged = Pad {
        input: inner.input,
        value: o.value,
        low: sum(&low, &inner_low),
        high: sum(&high, &inner_high),
    };
    let merged = r.before(op)?.add(&merged)?;
    replace_by(op, r, merged)
}

fn concat(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Concat::of(op) else { return Ok(false) };
    let axis = o.axis as usize;
    let empty = |v: &Value| v.ty().dims().get(axis).and_then(|d| d.known()) == Some(0);
    let mut inputs = vec![];
    for v in &o.inputs {
        match v.def().and_then(Concat::of).filter(|inner| inner.axis == o.axis) {
            Some(inner) => inputs.extend(inner.inputs),
            None => inputs.push(*v),
        }
    }
    if inputs.len() > 1 {
        let keep: Vec<Value> = inputs.iter().copied().filter(|v| !empty(v)).collect();
        inputs = if keep.is_empty() { inputs[..1].to_vec() } else { keep };
    }
    if inputs.len() == 1 && inputs[0].ty() == op.result(0).ty() {
        return replace_by(op, r, inputs[0]);
    }
    if inputs == o.inputs {
        return Ok(false);
    }
    let merged = r.before(op)?.add(&Concat { inputs, axis: o.axis })?;
    // Dropping an input may drop the only static size of another dimension.
    if merged.ty() != op.result(0).ty() {
        merged.def().into_iter().for_each(Op::erase);
        return Ok(false);
    }
    replace_by(op, r, merged)
}

fn reverse(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Reverse::of(op) else { return Ok(false) };
    let sizes = o.input.ty().dims();
    let moves = |d: &i64| sizes.get(*d as usize).and_then(|d| d.known()).is_none_or(|n| n > 1);
    let mut input = o.input;
    let mut dims: Vec<i64> = o.dims.iter().copied().filter(moves).collect();
    if let Some(inner) = o.input.def().and_then(Reverse::of) {
        let (a, b) = (dims.clone(), inner.dims.clone());
        dims = a
            .iter()
            .filter(|d| !b.contains(d))
            .chain(b.iter().filter(|d| !a.contains(d)))
            .copied()
            .collect();
        dims.sort();
        input = inner.input;
    }
    if dims.is_empty() || scalar_of(input).is_some() {
        return replace_by(op, r, input);
    }
    if input == o.input && dims == o.dims {
        return Ok(false);
    }
    let merged = r.before(op)?.add(&Reverse { input, dims })?;
    replace_by(op, r, merged)
}

/// A reduction over no dimension, or over unit dimensions. A float sum starts at +0.0, so that the
/// sum of -0.0 is +0.0, as in PyTorch: an addition keeps that unless no operand can be -0.0.
fn reduce(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Reduce::of(op) else { return Ok(false) };
    if o.dims.is_empty() {
        return replace_by(op, r, o.input);
    }
    let t = tensor_type(o.input.ty())?;
    if o.dims.iter().any(|d| t.dims[*d as usize] != sym::Dim::Known(1)) {
        return reduce_reshaped(op, &o, r);
    }
    let b = r.before(op)?;
    let kept = (0..t.dims.len()).filter(|i| !o.dims.contains(&(*i as i64)));
    let sizes: Vec<Size> = kept.map(|i| b.size_of(o.input, i)).collect::<Result<_, _>>()?;
    let same = b.add(&Reshape { input: o.input, sizes: sizes.clone() })?;
    if o.kind != ReduceKind::Sum || !t.dtype.is_float() || never_minus_zero(o.input) {
        return replace_by(op, r, same);
    }
    let zero = splat(&b, Attr::scalar(op.ctx(), t.dtype, 0.0), sizes)?;
    let sum = b.add(&Add { lhs: same, rhs: zero })?;
    replace_by(op, r, sum)
}

/// A reduction of all elements, in whatever shape: in that of the ops that compute them, so that
/// they have its loops.
fn reduce_reshaped(op: Op, o: &Reduce, r: &Rewriter) -> Result<bool> {
    let all = |v: Value| v.ty().dims().len();
    let Some(inner) = o.input.def().and_then(Reshape::of).filter(|_| o.dims.len() == all(o.input))
    else {
        return Ok(false);
    };
    let dims: Vec<i64> = (0..all(inner.input) as i64).collect();
    if dims.is_empty() {
        return Ok(false);
    }
    let same = r.before(op)?.add(&Reduce { input: inner.input, dims, ..o.clone() })?;
    replace_by(op, r, same)
}

/// Whether no element of a float tensor can be -0.0.
fn never_minus_zero(v: Value) -> bool {
    let Some(op) = v.def() else { return false };
    let Some(kind) = op.kind() else { return false };
    match kind {
        OpKind::Abs | OpKind::Exp | OpKind::Exp2 => true,
        OpKind::Convert => tensor_type(op.operand(0).ty()).is_ok_and(|t| !t.dtype.is_float()),
        OpKind::Reshape | OpKind::Transpose | OpKind::BroadcastInDim | OpKind::Slice => {
            never_minus_zero(op.operand(0))
        }
        _ => false,
    }
}
