//! Windows that are gathered: maximum pools with indices, adaptive, fractional and inverse pools.
use super::{
    Args, Cx, Outcome, Row,
    formula::value,
    image::{WindowAxis, batched, max_pool, spread, unbatched},
    pool_indices,
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.max_pool1d_with_indices.default",
        arguments: "self, kernel_size, stride=[], padding=0, dilation=1, ceil_mode=False",
        build: |cx, a| max_pool_with_indices(cx, a, 1),
    },
    Row {
        name: "aten.max_pool2d_with_indices.default",
        arguments: "self, kernel_size, stride=[], padding=0, dilation=1, ceil_mode=False",
        build: |cx, a| max_pool_with_indices(cx, a, 2),
    },
    Row {
        name: "aten.max_pool3d_with_indices.default",
        arguments: "self, kernel_size, stride=[], padding=0, dilation=1, ceil_mode=False",
        build: |cx, a| max_pool_with_indices(cx, a, 3),
    },
    Row {
        name: "aten.adaptive_max_pool1d.default",
        arguments: "self, output_size",
        build: |cx, a| adaptive_max(cx, a, 1),
    },
    Row {
        name: "aten.adaptive_max_pool2d.default",
        arguments: "self, output_size",
        build: |cx, a| adaptive_max(cx, a, 2),
    },
    Row {
        name: "aten.adaptive_max_pool3d.default",
        arguments: "self, output_size",
        build: |cx, a| adaptive_max(cx, a, 3),
    },
    Row {
        name: "aten.fractional_max_pool2d.default",
        arguments: "self, kernel_size, output_size, random_samples",
        build: |cx, a| fractional_max(cx, a, 2),
    },
    Row {
        name: "aten.fractional_max_pool3d.default",
        arguments: "self, kernel_size, output_size, random_samples",
        build: |cx, a| fractional_max(cx, a, 3),
    },
    Row {
        name: "aten.max_unpool2d.default",
        arguments: "self, indices, output_size",
        build: |cx, a| max_unpool(cx, a, 2),
    },
    Row {
        name: "aten.max_unpool3d.default",
        arguments: "self, indices, output_size, stride, padding",
        build: |cx, a| max_unpool(cx, a, 3),
    },
];

/// The windows along one axis.
struct Window {
    /// First index of each window [windows].
    start: Value,
    /// Index behind each window [windows].
    end: Value,
    /// Distance of a window's elements.
    step: i64,
    /// Most elements of a window.
    count: Size,
    /// Size of the axis.
    size: Size,
}

/// Index of the maximum along the last axis as PyTorch's pools choose it: the first of equal ones,
/// but the last NaN.
fn last_nan_or_first_max(cx: &Cx, x: Value) -> Result<Value> {
    let axis = rank_of(x) as i64 - 1;
    let first = cx.b.add(&ArgMax { input: x, axis })?;
    if !dtype_of(x)?.is_float() {
        return Ok(first);
    }
    let k = cx.iota(DType::I64, cx.b.sizes_of(x)?, axis as usize)?;
    value(cx, |f| {
        let nan = f.of(x).is_nan().select(f.of(k), -1.0);
        nan.reduce(ReduceKind::Max, &[axis], false).max(f.of(first))
    })
}

/// Elements of all windows [N, C, windows.., count], those outside as the least value; and for each
/// window the index of its maximum in the flattened input.
fn gathered(cx: &mut Cx, x: Value, windows: &[Window]) -> Result<(Value, Value)> {
    let n = windows.len();
    let outs = windows.iter().map(|w| cx.b.size_of(w.start, 0)).collect::<Result<Vec<_>, _>>()?;
    let shape: Vec<Size> = outs.iter().copied().chain(windows.iter().map(|w| w.count)).collect();
    let (mut at, mut inside): (Vec<Value>, Option<Value>) = (vec![], None);
    for (i, w) in windows.iter().enumerate() {
        let own = [*outs.get(i).ok_or("has no size")?, w.count];
        let start = along(cx, w.start, vec![0], &own)?;
        let end = along(cx, w.end, vec![0], &own)?;
        let k = cx.iota(DType::I64, own.to_vec(), 1)?;
        let size = cx.b.size_as_tensor(w.size, DType::I64)?;
        let position = value(cx, |f| f.of(start) + f.of(k) * w.step as f64)?;
        let within = value(cx, |f| f.of(position).lt(f.of(end)))?;
        let clamped = value(cx, |f| f.of(position).min(f.of(size) - 1.0))?;
        let dims = vec![i as i64, (n + i) as i64];
        at.push(along(cx, clamped, dims.clone(), &shape)?);
        let within = along(cx, within, dims, &shape)?;
        inside = Some(match inside {
            None => within,
            Some(all) => cx.binary(BinaryKind::And, all, within)?,
        });
    }
    let taken = gather_at(cx, x, at, 2)?;
    let taken = cx.select(inside.ok_or("has no windows")?, taken, min_value(cx, dtype_of(x)?)?)?;
    let count = windows.iter().try_fold(Size::Static(1), |n, w| cx.size_mul(n, w.count))?;
    let lead = [cx.b.size_of(x, 0)?, cx.b.size_of(x, 1)?];
    let taken = cx.reshape(taken, [&lead[..], &outs, &[count]].concat())?;
    let mut rest = last_nan_or_first_max(cx, taken)?;
    let result = cx.b.sizes_of(rest)?;
    let mut flat: Option<(Value, Size)> = None;
    for (i, w) in windows.iter().enumerate().rev() {
        let count = cx.b.size_as_tensor(w.count, DType::I64)?;
        let start = along(cx, w.start, vec![i as i64 + 2], &result)?;
        let position =
            value(cx, |f| f.of(start) + f.of(rest).remainder(f.of(count)) * w.step as f64)?;
        rest = cx.binary(BinaryKind::Div, rest, count)?;
        flat = Some(match flat {
            None => (position, w.size),
            Some((sum, by)) => {
                let scale = cx.b.size_as_tensor(by, DType::I64)?;
                let sum = value(cx, |f| f.of(sum) + f.of(position) * f.of(scale))?;
                (sum, cx.size_mul(by, w.size)?)
            }
        });
    }
    Ok((taken, flat.ok_or("has no windows")?.0))
}

fn max_pool_with_indices(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let values = max_pool(cx, a, n)?;
    let x = cx.tensor(a, "self")?;
    let (x, added) = batched(cx, x, n)?;
    let (pooled, _) = batched(cx, values, n)?;
    let window = spread(a.ints("kernel_size")?, n, 1)?;
    let strides = a.ints("stride")?.filter(|s| !s.is_empty());
    let strides = if strides.is_some() { spread(strides, n, 1)? } else { window.clone() };
    let padding = spread(a.ints("padding")?, n, 0)?;
    let dilation = spread(a.ints("dilation")?, n, 1)?;
    let axis = |i: usize| WindowAxis {
        kernel: window[i],
        stride: strides[i],
        padding: padding[i],
        dilation: dilation[i],
    };
    let axes: Vec<WindowAxis> = (0..n).map(axis).collect();
    let outs = cx.b.sizes_of(pooled)?.split_off(2);
    if let Some(indices) = pool_indices::of_small_windows(cx, x, &outs, &axes)? {
        let indices = unbatched(cx, indices, added)?;
        return cx.many(&[values, indices]);
    }
    let mut windows = vec![];
    for (i, (axis, out)) in axes.iter().zip(outs).enumerate() {
        let size = cx.b.size_of(x, i + 2)?;
        let first = axis.first(cx, out)?;
        let start = cx.binary(BinaryKind::Add, first, axis.outside(cx, first)?)?;
        let limit = cx.b.size_as_tensor(size, DType::I64)?;
        let reach = (axis.kernel - 1) * axis.dilation + 1;
        let end = value(cx, |f| (f.of(first) + reach as f64).min(f.of(limit)))?;
        let count = Size::Static(axis.kernel);
        windows.push(Window { start, end, step: axis.dilation, count, size });
    }
    let (_, indices) = gathered(cx, x, &windows)?;
    let indices = unbatched(cx, indices, added)?;
    cx.many(&[values, indices])
}

fn adaptive_max(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (x, added) = batched(cx, x, n)?;
    let sizes = spread(a.ints("output_size")?, n, 1)?;
    if sizes.contains(&0) {
        let lead = [cx.b.size_of(x, 0)?, cx.b.size_of(x, 1)?];
        let sizes = [&lead[..], &Size::all(&sizes)].concat();
        let (v, i) = (cx.b.splat(dtype_of(x)?, &sizes, 0.0)?, cx.b.splat(DType::I64, &sizes, 0.0)?);
        let (v, i) = (unbatched(cx, v, added)?, unbatched(cx, i, added)?);
        return cx.many(&[v, i]);
    }
    let mut windows = vec![];
    for (i, to) in sizes.iter().enumerate() {
        let size = cx.b.size_of(x, i + 2)?;
        let count = match size {
            Size::Static(from) => {
                let length = |i: i64| ((i + 1) * from + to - 1) / to - i * from / to;
                Size::Static((0..*to).map(length).max().unwrap_or(1))
            }
            // Windows share their first and last element with their neighbours.
            _ => cx.size_add(cx.size_div(size, Size::Static(*to))?, Size::Static(2))?,
        };
        let o = cx.iota(DType::I64, vec![Size::Static(*to)], 0)?;
        let from = cx.b.size_as_tensor(size, DType::I64)?;
        let start = value(cx, |f| f.of(o) * f.of(from) / *to as f64)?;
        let end = value(cx, |f| ((f.of(o) + 1.0) * f.of(from) + (to - 1) as f64) / *to as f64)?;
        windows.push(Window { start, end, step: 1, count, size });
    }
    let (taken, indices) = gathered(cx, x, &windows)?;
    let last = vec![rank_of(taken) as i64 - 1];
    let v =
        cx.b.add(&Reduce { kind: ReduceKind::Max, input: taken, dims: last, maybe_empty: false })?;
    let (v, indices) = (unbatched(cx, v, added)?, unbatched(cx, indices, added)?);
    cx.many(&[v, indices])
}

/// Windows of one size whose positions follow from a sample for each plane and axis.
fn fractional_max(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (x, added) = batched(cx, x, n)?;
    let samples = cx.tensor(a, "random_samples")?;
    let (kernel, outs) =
        (spread(a.ints("kernel_size")?, n, 1)?, spread(a.ints("output_size")?, n, 1)?);
    let sizes = cx.b.sizes_of(x)?;
    let lead = [cx.b.size_of(x, 0)?, cx.b.size_of(x, 1)?];
    // All of them: planes, windows, elements of a window.
    let shape = [&lead[..], &Size::all(&outs), &Size::all(&kernel)].concat();
    let d = dtype_of(samples)?;
    let mut at =
        vec![cx.iota(DType::I64, shape.clone(), 0)?, cx.iota(DType::I64, shape.clone(), 1)?];
    for i in 0..n {
        let (out, k) = (outs[i], kernel[i]);
        // The last sample belongs to the first of two axes, but to the last of three.
        let column = if n == 2 { 1 - i } else { i };
        let sample = cx.b.add(&Slice {
            input: samples,
            offsets: vec![Size::Static(0), Size::Static(0), Size::Static(column as i64)],
            sizes: vec![lead[0], lead[1], Size::Static(1)],
            strides: vec![1; 3],
        })?;
        let sample = along(cx, sample, vec![0, 1, i as i64 + 2], &shape)?;
        let o = cx.iota(d, shape.clone(), i + 2)?;
        let j = cx.iota(DType::I64, shape.clone(), n + i + 2)?;
        let size = cx.b.size_as_tensor(*sizes.get(i + 2).ok_or("has no size")?, DType::I64)?;
        at.push(value(cx, |f| {
            let (sample, o, room) = (f.of(sample), f.of(o), f.of(size) - k as f64);
            let step = room.to(d) / (out - 1).max(1) as f64;
            let start = ((o + sample) * step).to(DType::I64) - (sample * step).to(DType::I64);
            let start = o.eq((out - 1) as f64).select(room, start);
            start + f.of(j)
        })?);
    }
    let dims = (0..n as i64 + 2).collect();
    let taken = cx.b.add(&Gather { input: x, indices: at.clone(), dims })?;
    let count = kernel.iter().product::<i64>();
    let merged = [&lead[..], &Size::all(&outs), &[Size::Static(count)]].concat();
    let taken = cx.reshape(taken, merged.clone())?;
    let mut flat: Option<Value> = None;
    for (position, size) in at.iter().zip(&sizes).skip(2) {
        let size = cx.b.size_as_tensor(*size, DType::I64)?;
        flat = Some(match flat {
            None => *position,
            Some(flat) => value(cx, |f| f.of(flat) * f.of(size) + f.of(*position))?,
        });
    }
    let flat = cx.reshape(flat.ok_or("has no axes")?, merged.clone())?;
    let axis = n as i64 + 2;
    let v = cx.b.add(&Reduce {
        kind: ReduceKind::Max,
        input: taken,
        dims: vec![axis],
        maybe_empty: false,
    })?;
    // The index is the one at the chosen element.
    let chosen = last_nan_or_first_max(cx, taken)?;
    let chosen = along(cx, chosen, (0..axis).collect(), &merged)?;
    let k = cx.iota(DType::I64, merged, axis as usize)?;
    let index = value(cx, |f| {
        let own = f.of(k).eq(f.of(chosen)).select(f.of(flat), 0.0);
        own.reduce(ReduceKind::Sum, &[axis], false)
    })?;
    let (v, index) = (unbatched(cx, v, added)?, unbatched(cx, index, added)?);
    cx.many(&[v, index])
}

/// Writes each element to the index that its pool chose; 0 elsewhere.
fn max_unpool(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let (x, indices) = (cx.tensor(a, "self")?, cx.tensor(a, "indices")?);
    let outs = a.sizes("output_size")?;
    let (x, added) = batched(cx, x, n)?;
    let (indices, _) = batched(cx, indices, n)?;
    let v = scatter_planes(cx, x, indices, &outs, ScatterKind::Assign)?;
    let v = unbatched(cx, v, added)?;
    cx.one(v)
}

/// Zeros [N, C, outs..] with the elements of [N, C, ..] at flat indices of each plane.
pub(super) fn scatter_planes(
    cx: &mut Cx,
    x: Value,
    indices: Value,
    outs: &[Size],
    kind: ScatterKind,
) -> Result<Value> {
    let sizes = cx.b.sizes_of(x)?;
    let lead = [cx.b.size_of(x, 0)?, cx.b.size_of(x, 1)?];
    let product =
        |cx: &mut Cx, all: &[Size]| all.iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s));
    let (from, to) = (product(cx, sizes.get(2..).unwrap_or(&[]))?, product(cx, outs)?);
    let flat = vec![lead[0], lead[1], from];
    let (updates, at) = (cx.reshape(x, flat.clone())?, cx.reshape(indices, flat.clone())?);
    let zeros = cx.b.splat(dtype_of(x)?, &[lead[0], lead[1], to], 0.0)?;
    let (n, c) = (cx.iota(DType::I64, flat.clone(), 0)?, cx.iota(DType::I64, flat, 1)?);
    let indices = vec![n, c, at];
    let v = cx.b.add(&Scatter { kind, input: zeros, updates, indices, dims: vec![0, 1, 2] })?;
    cx.reshape(v, [&lead[..], outs].concat())
}
