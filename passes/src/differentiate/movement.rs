//! Movement prims, which are linear: the rules are their transposes.
use super::rule::Rule;
use crate::decompose::tools::*;
use crate::permutation::inverse;
use kiln_dialects::{ir::*, ops::*, sym::Dim};

/// The size of a dimension of a split cotangent.
enum Axis {
    /// That of a value.
    Of(Value, usize),
    /// How often a dimension of the input is repeated along one of the result.
    Copies(usize, usize),
}

/// Sums over the dimensions that were broadcast. Where a dynamic size may be 1 or not, the
/// dimension is split into (copies, own size), one of which is 1, and summed over the copies.
pub(super) fn broadcast_in_dim(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<BroadcastInDim>()?, r.cotangent()?);
    if !r.wants(o.input) {
        return Ok(());
    }
    let (mut sizes, mut summed, mut is_split) = (vec![], vec![], false);
    for axis in 0..rank(g) {
        let Some(i) = o.dims.iter().position(|d| *d == axis as i64) else {
            summed.push(sizes.len() as i64);
            sizes.push(Axis::Of(g, axis));
            continue;
        };
        let (from, to) = (r.dim(o.input, i), r.dim(r.op.result(0), axis));
        if from != to || from == Dim::Unknown {
            summed.push(sizes.len() as i64);
            is_split = true;
            sizes.push(Axis::Copies(axis, i));
        }
        sizes.push(Axis::Of(o.input, i));
    }
    let split = if is_split {
        let size = |axis: &Axis| match *axis {
            Axis::Of(v, axis) => r.m.size_of(v, axis),
            Axis::Copies(axis, i) => {
                let own = r.m.size(SymKind::Max, r.m.size_of(o.input, i)?, Size::Static(1))?;
                r.m.size(SymKind::Floordiv, r.m.size_of(g, axis)?, own)
            }
        };
        r.m.reshape(g, &sizes.iter().map(size).collect::<Result<Vec<_>>>()?)?
    } else {
        g
    };
    let sum = if summed.is_empty() { split } else { r.m.reduce(ReduceKind::Sum, split, &summed)? };
    r.give(o.input, sum)
}

pub(super) fn reshape(r: &mut Rule<'_>) -> Result<()> {
    let (x, g) = (r.op.operand(0), r.cotangent()?);
    let sizes = r.m.sizes_of(x)?;
    let v = r.m.reshape(g, &sizes)?;
    r.give(x, v)
}

pub(super) fn transpose(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Transpose>()?, r.cotangent()?);
    let v = r.m.transpose(g, &inverse(&o.permutation))?;
    r.give(o.input, v)
}

/// Puts zeros between the elements that strides skip, and pads.
pub(super) fn slice(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Slice>()?, r.cotangent()?);
    if !r.wants(o.input) {
        return Ok(());
    }
    let spread = dilated(r, g, &o.strides)?;
    let (own, sizes) = (r.m.sizes_of(o.input)?, r.m.sizes_of(spread)?);
    let mut high = vec![];
    for (axis, size) in own.into_iter().enumerate() {
        let end = r.m.size(SymKind::Add, o.offsets[axis], sizes[axis])?;
        let end = r.negative(end)?;
        high.push(r.m.size(SymKind::Add, size, end)?);
    }
    let v = padded(r, spread, o.offsets, high)?;
    r.give(o.input, v)
}

/// Zeros after each element, `strides - 1` along each dimension.
pub(super) fn dilated(r: &Rule<'_>, x: Value, strides: &[i64]) -> Result<Value> {
    let apart: Vec<usize> = (0..strides.len()).filter(|d| strides[*d] > 1).collect();
    if apart.is_empty() {
        return Ok(x);
    }
    let (mut split, mut high, mut merged) = (vec![], vec![], vec![]);
    for (axis, stride) in strides.iter().enumerate() {
        let n = r.m.size_of(x, axis)?;
        split.push(n);
        high.push(Size::Static(0));
        merged.push(r.m.size(SymKind::Mul, n, Size::Static(*stride))?);
        if *stride > 1 {
            split.push(Size::Static(1));
            high.push(Size::Static(stride - 1));
        }
    }
    let low = Size::all(&vec![0; split.len()]);
    let x = padded(r, r.m.reshape(x, &split)?, low, high)?;
    r.m.reshape(x, &merged)
}

/// Pads with zeros; negative counts crop.
pub(super) fn padded(r: &Rule<'_>, x: Value, low: Vec<Size>, high: Vec<Size>) -> Result<Value> {
    if low.iter().chain(&high).all(|s| s.known() == Some(0)) {
        return Ok(x);
    }
    let value = r.zero(dtype(x)?)?;
    r.m.b.add(&Pad { input: x, value, low, high })
}

/// The input's cotangent is cropped where that was padded, and the reverse; the value's is the sum
/// of what was padded.
pub(super) fn pad(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Pad>()?, r.cotangent()?);
    if r.wants(o.input) {
        let counts = |all: &[Size]| all.iter().map(|s| r.negative(*s)).collect::<Result<Vec<_>>>();
        let v = padded(r, g, counts(&o.low)?, counts(&o.high)?)?;
        r.give(o.input, v)?;
    }
    if r.wants(o.value) {
        let (input, value) = (r.zeros_like(o.input)?, r.m.b.splat(dtype(g)?, &[], 1.0)?);
        let outside = r.m.b.add(&Pad { input, value, low: o.low, high: o.high })?;
        let all: Vec<i64> = (0..rank(g) as i64).collect();
        let sum = r.m.reduce(ReduceKind::Sum, r.m.mul(g, outside)?, &all)?;
        r.give(o.value, sum)?;
    }
    Ok(())
}

pub(super) fn concat(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Concat>()?, r.cotangent()?);
    let (n, axis) = (rank(g), o.axis as usize);
    let mut start = Size::Static(0);
    for x in &o.inputs {
        let sizes = r.m.sizes_of(*x)?;
        let next = r.m.size(SymKind::Add, start, sizes[axis])?;
        if r.wants(*x) {
            let mut offsets = Size::all(&vec![0; n]);
            offsets[axis] = start;
            let v = r.m.b.add(&Slice { input: g, offsets, sizes, strides: vec![1; n] })?;
            r.give(*x, v)?;
        }
        start = next;
    }
    Ok(())
}

pub(super) fn reverse(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Reverse>()?, r.cotangent()?);
    let v = r.m.b.add(&Reverse { input: g, dims: o.dims })?;
    r.give(o.input, v)
}
