//! Positions of the maxima of small pools: the elements of a window are compared one after the
//! other, so that nothing of the size of all windows is stored.
use super::{Cx, formula::value, image::WindowAxis, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Most elements of a window whose comparisons are written out.
const MOST_ELEMENTS: i64 = 16;

impl WindowAxis {
    /// Where each of `out` windows starts, maybe before the input.
    pub(super) fn first(&self, cx: &Cx, out: Size) -> Result<Value> {
        let o = cx.iota(DType::I64, vec![out], 0)?;
        value(cx, |f| f.of(o) * self.stride as f64 - self.padding as f64)
    }
    /// How far behind that its first element inside the input is, in steps of the dilation.
    pub(super) fn outside(&self, cx: &Cx, first: Value) -> Result<Value> {
        let d = self.dilation;
        value(cx, |f| {
            let outside = (-f.of(first)).max(0.0) + (d - 1) as f64;
            (outside / d as f64) * d as f64
        })
    }
}

/// For each window of `x` [N, C, sizes..] the index of its maximum in the flattened sizes, [N, C,
/// outs..] of i64: as PyTorch chooses it the first of equal ones, but the last NaN. None for large
/// windows and for dynamic sizes.
pub(super) fn of_small_windows(
    cx: &mut Cx,
    x: Value,
    outs: &[Size],
    axes: &[WindowAxis],
) -> Result<Option<Value>> {
    let known = |all: &[Size]| all.iter().map(|s| s.known()).collect::<Option<Vec<i64>>>();
    let all = cx.b.sizes_of(x)?;
    let (Some(sizes), Some(outs)) = (known(&all[2..]), known(outs)) else { return Ok(None) };
    let elements = axes.iter().try_fold(1i64, |n, a| n.checked_mul(a.kernel));
    if elements.is_none_or(|n| n > MOST_ELEMENTS) || outs.contains(&0) {
        return Ok(None);
    }
    let d = dtype_of(x)?;
    let padded = padded(cx, x, &sizes, &outs, axes)?;
    let lead = [all[0], all[1]];
    let shape = [&lead[..], &Size::all(&outs)].concat();
    // Strides of the flattened sizes.
    let mut scales = vec![1; axes.len()];
    for i in (1..axes.len()).rev() {
        scales[i - 1] = scales[i] * sizes[i];
    }
    // Where the windows start, and how far behind that their first element inside the input is.
    let (mut start, mut first) = (None, None);
    for (i, (a, scale)) in axes.iter().zip(&scales).enumerate() {
        let from = a.first(cx, Size::Static(outs[i]))?;
        let inside = a.outside(cx, from)?;
        let scaled = |v: Value| value(cx, |f| f.of(v) * *scale as f64);
        let (from, inside) = (scaled(from)?, scaled(inside)?);
        for (sum, own) in [(&mut start, from), (&mut first, inside)] {
            let own = along(cx, own, vec![i as i64 + 2], &shape)?;
            *sum = Some(match *sum {
                None => own,
                Some(sum) => cx.binary(BinaryKind::Add, sum, own)?,
            });
        }
    }
    let (start, first) = (start.ok_or("has no axes")?, first.ok_or("has no axes")?);
    let (mut best, mut chosen) = (min_value(cx, d)?, first);
    best = along(cx, best, vec![], &shape)?;
    for k in 0..elements.unwrap_or(0) {
        let (mut offsets, mut behind, mut rest) = (vec![0; axes.len()], 0, k);
        for (i, a) in axes.iter().enumerate().rev() {
            offsets[i] = rest % a.kernel * a.dilation;
            behind += offsets[i] * scales[i];
            rest /= a.kernel;
        }
        let strides: Vec<i64> = [1, 1].into_iter().chain(axes.iter().map(|a| a.stride)).collect();
        let offsets = Size::all(&[&[0, 0][..], &offsets].concat());
        let v = cx.b.add(&Slice { input: padded, offsets, sizes: shape.clone(), strides })?;
        let mut better = value(cx, |f| f.of(v).gt(f.of(best)))?;
        if d.is_float() {
            let nan = value(cx, |f| f.of(v).is_nan())?;
            better = cx.binary(BinaryKind::Or, better, nan)?;
        }
        best = cx.select(better, v, best)?;
        let behind = along(cx, cx.integer(DType::I64, behind)?, vec![], &shape)?;
        chosen = cx.select(better, behind, chosen)?;
    }
    cx.binary(BinaryKind::Add, start, chosen).map(Some)
}

/// `x` with the least value wherever a window reaches beyond it.
fn padded(
    cx: &mut Cx,
    x: Value,
    sizes: &[i64],
    outs: &[i64],
    axes: &[WindowAxis],
) -> Result<Value> {
    let mut high = vec![0, 0];
    for ((a, size), out) in axes.iter().zip(sizes).zip(outs) {
        let end = (out - 1) * a.stride + (a.kernel - 1) * a.dilation + 1 - a.padding;
        high.push((end - size).max(0));
    }
    let low: Vec<i64> = [0, 0].into_iter().chain(axes.iter().map(|a| a.padding)).collect();
    if low.iter().chain(&high).all(|n| *n == 0) {
        return Ok(x);
    }
    let value = min_value(cx, dtype_of(x)?)?;
    cx.b.add(&Pad { input: x, value, low: Size::all(&low), high: Size::all(&high) })
}
