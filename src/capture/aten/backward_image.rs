//! Derivatives of convolutions, pools and resizing.
use super::{
    Args, Cx, Outcome, Row,
    backward_norm::masked,
    formula::value,
    image::{batched, spread, unbatched},
    resize::{Axis, Mode, axes, weighted, work},
    tools::*,
    window::scatter_planes,
    windows_apart::{Sliding, WindowsApart},
};
use kiln_dialects::{ir::*, ops::*, value::DType};
use kiln_passes::differentiate::ConvolutionGradient;

/// A row of the derivative of a resize.
macro_rules! resize {
    ($name:literal, $mode:ident, $n:literal, $arguments:literal) => {
        Row {
            name: $name,
            arguments: $arguments,
            build: |cx, a| resize_backward(cx, a, Mode::$mode, $n),
        }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.convolution_backward.default",
        arguments: "grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask",
        build: convolution_backward,
    },
    Row {
        name: "aten.max_pool2d_with_indices_backward.default",
        arguments: "grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices",
        build: |cx, a| max_pool_backward(cx, a, 2),
    },
    Row {
        name: "aten.max_pool3d_with_indices_backward.default",
        arguments: "grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices",
        build: |cx, a| max_pool_backward(cx, a, 3),
    },
    Row {
        name: "aten.adaptive_max_pool2d_backward.default",
        arguments: "grad_output, self, indices",
        build: |cx, a| adaptive_max_backward(cx, a, 2),
    },
    Row {
        name: "aten.adaptive_max_pool3d_backward.default",
        arguments: "grad_output, self, indices",
        build: |cx, a| adaptive_max_backward(cx, a, 3),
    },
    Row {
        name: "aten.avg_pool2d_backward.default",
        arguments: "grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override",
        build: |cx, a| avg_pool_backward(cx, a, 2),
    },
    Row {
        name: "aten.avg_pool3d_backward.default",
        arguments: "grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override",
        build: |cx, a| avg_pool_backward(cx, a, 3),
    },
    Row {
        name: "aten._adaptive_avg_pool2d_backward.default",
        arguments: "grad_output, self",
        build: |cx, a| adaptive_backward(cx, a, 2),
    },
    Row {
        name: "aten._adaptive_avg_pool3d_backward.default",
        arguments: "grad_output, self",
        build: |cx, a| adaptive_backward(cx, a, 3),
    },
    resize!(
        "aten.upsample_nearest1d_backward.default",
        Nearest,
        1,
        "grad_output, output_size, input_size, scales=None"
    ),
    resize!(
        "aten.upsample_nearest2d_backward.default",
        Nearest,
        2,
        "grad_output, output_size, input_size, scales_h=None, scales_w=None"
    ),
    resize!(
        "aten.upsample_nearest3d_backward.default",
        Nearest,
        3,
        "grad_output, output_size, input_size, scales_d=None, scales_h=None, scales_w=None"
    ),
    resize!(
        "aten._upsample_nearest_exact1d_backward.default",
        NearestExact,
        1,
        "grad_output, output_size, input_size, scales=None"
    ),
    resize!(
        "aten._upsample_nearest_exact2d_backward.default",
        NearestExact,
        2,
        "grad_output, output_size, input_size, scales_h=None, scales_w=None"
    ),
    resize!(
        "aten._upsample_nearest_exact3d_backward.default",
        NearestExact,
        3,
        "grad_output, output_size, input_size, scales_d=None, scales_h=None, scales_w=None"
    ),
    resize!(
        "aten.upsample_linear1d_backward.default",
        Linear,
        1,
        "grad_output, output_size, input_size, align_corners, scales=None"
    ),
    resize!(
        "aten.upsample_bilinear2d_backward.default",
        Linear,
        2,
        "grad_output, output_size, input_size, align_corners, scales_h=None, scales_w=None"
    ),
    resize!(
        "aten.upsample_trilinear3d_backward.default",
        Linear,
        3,
        "grad_output, output_size, input_size, align_corners, scales_d=None, scales_h=None, scales_w=None"
    ),
    resize!(
        "aten.upsample_bicubic2d_backward.default",
        Cubic,
        2,
        "grad_output, output_size, input_size, align_corners, scales_h=None, scales_w=None"
    ),
    resize!(
        "aten._upsample_bilinear2d_aa_backward.default",
        LinearAa,
        2,
        "grad_output, output_size, input_size, align_corners, scales_h=None, scales_w=None"
    ),
    resize!(
        "aten._upsample_bicubic2d_aa_backward.default",
        CubicAa,
        2,
        "grad_output, output_size, input_size, align_corners, scales_h=None, scales_w=None"
    ),
];

fn convolution_backward(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (g, x, weight) =
        (cx.tensor(a, "grad_output")?, cx.tensor(a, "input")?, cx.tensor(a, "weight")?);
    let n =
        rank_of(weight).checked_sub(2).filter(|n| *n > 0).ok_or("has a weight of rank below 3")?;
    let padding = spread(a.ints("padding")?, n, 0)?;
    let c = ConvolutionGradient {
        strides: spread(a.ints("stride")?, n, 1)?,
        pad_low: padding.clone(),
        pad_high: padding,
        dilation: spread(a.ints("dilation")?, n, 1)?,
        groups: a.int("groups", Some(1))?,
    };
    let sizes = cx.b.sizes_of(x)?;
    let (by_input, by_weight) = if a.flag("transposed", false)? {
        // The derivative of a transposed convolution is a convolution; the two swap their roles.
        let extra = spread(a.ints("output_padding")?, n, 0)?;
        let by_input = c.by_transposed_input(&cx.b, g, weight, &sizes, &extra)?;
        (by_input, c.by_weight(&cx.b, g, x, weight)?)
    } else {
        (c.by_input(&cx.b, g, weight, &sizes)?, c.by_weight(&cx.b, x, g, weight)?)
    };
    let dims: Vec<i64> = (0..n as i64 + 2).filter(|d| *d != 1).collect();
    let by_bias = value(cx, |f| f.of(g).reduce(ReduceKind::Sum, &dims, false))?;
    masked(cx, a, vec![Some(by_input), Some(by_weight), Some(by_bias)])
}

fn adaptive_max_backward(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let (g, x, indices) =
        (cx.tensor(a, "grad_output")?, cx.tensor(a, "self")?, cx.tensor(a, "indices")?);
    let (x, added) = batched(cx, x, n)?;
    let ((g, _), (indices, _)) = (batched(cx, g, n)?, batched(cx, indices, n)?);
    let outs = cx.b.sizes_of(x)?.split_off(2);
    let v = scatter_planes(cx, g, indices, &outs, ScatterKind::Add)?;
    let v = unbatched(cx, v, added)?;
    cx.one(v)
}

/// The windows that cover each element.
struct Covering {
    /// `[elements…, windows of an element…]`.
    shape: Vec<Size>,
    /// The windows' positions along each axis, within bounds.
    at: Vec<Value>,
    /// Whether there is such a window.
    inside: Value,
}

impl Covering {
    fn of(cx: &mut Cx, windows: &[Sliding], sizes: &[Size], outs: &[Size]) -> Result<Covering> {
        let n = windows.len();
        let each = windows.iter().map(|w| Size::Static(w.most()));
        let shape: Vec<Size> = sizes.iter().copied().chain(each).collect();
        let (mut at, mut inside): (Vec<Value>, Option<Value>) = (vec![], None);
        for (i, (w, out)) in windows.iter().zip(outs).enumerate() {
            let (y, k) = (
                cx.iota(DType::I64, shape.clone(), i)?,
                cx.iota(DType::I64, shape.clone(), n + i)?,
            );
            let count = cx.b.size_as_tensor(*out, DType::I64)?;
            let (stride, dilation) = (w.stride as f64, w.dilation as f64);
            let room = value(cx, |f| f.of(y) + w.padding as f64)?;
            // The window, and whether the element is at one of its offsets.
            let (window, covers) = match w.dilation {
                1 => {
                    let window = value(cx, |f| f.of(room) / stride - f.of(k))?;
                    let covers = value(cx, |f| {
                        (f.of(room) - f.of(window) * stride).lt(w.length as f64)
                            & f.of(window).ge(0.0)
                    })?;
                    (window, covers)
                }
                _ => {
                    let start = value(cx, |f| f.of(room) - f.of(k) * dilation)?;
                    let covers =
                        value(cx, |f| f.of(start).ge(0.0) & f.of(start).remainder(stride).eq(0.0))?;
                    (value(cx, |f| f.of(start) / stride)?, covers)
                }
            };
            let own = value(cx, |f| f.of(covers) & f.of(window).lt(f.of(count)))?;
            inside = Some(match inside {
                None => own,
                Some(all) => cx.binary(BinaryKind::And, all, own)?,
            });
            at.push(value(cx, |f| f.of(window).max(0.0).min(f.of(count) - 1.0))?);
        }
        Ok(Covering { shape, at, inside: inside.ok_or("has no axes")? })
    }

    /// The sums over the windows of each element of their values `[planes…, windows…]`, where they
    /// count.
    fn sums(&self, cx: &mut Cx, values: Value, counts: Value) -> Result<Value> {
        // Widened behind the gather, which reads them from memory.
        let taken = gather_at(cx, values, self.at.clone(), 2)?;
        let taken = cx.convert(taken, statistics_dtype(dtype_of(values)?))?;
        let n = self.at.len() as i64;
        let dims: Vec<i64> = (n + 2..2 * n + 2).collect();
        value(cx, |f| f.of(counts).select(f.of(taken), 0.0).reduce(ReduceKind::Sum, &dims, false))
    }
}

/// Sums the gradients of the windows whose maximum an element is.
fn max_pool_backward(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let (g, x, indices) =
        (cx.tensor(a, "grad_output")?, cx.tensor(a, "self")?, cx.tensor(a, "indices")?);
    let narrow = dtype_of(g)?;
    let (x, added) = batched(cx, x, n)?;
    let ((g, _), (indices, _)) = (batched(cx, g, n)?, batched(cx, indices, n)?);
    let (sizes, outs) = (cx.b.sizes_of(x)?.split_off(2), cx.b.sizes_of(g)?.split_off(2));
    let windows = Sliding::all(a, n)?;
    let v = if let Some(all) = WindowsApart::of(&sizes, &outs, &windows) {
        let g = cx.convert(g, statistics_dtype(narrow))?;
        let (chosen, taken) = (all.spread(cx, indices, -1.0)?, all.spread(cx, g, 0.0)?);
        let place = all.position(cx)?;
        let v = value(cx, |f| f.of(chosen).eq(f.of(place)).select(f.of(taken), 0.0))?;
        all.flatten(cx, v, narrow)?
    } else {
        let covering = Covering::of(cx, &windows, &sizes, &outs)?;
        // The element's own position in its plane.
        let mut place = cx.iota(DType::I64, covering.shape.clone(), 0)?;
        for (i, size) in sizes.iter().enumerate().skip(1) {
            let (along, size) = (
                cx.iota(DType::I64, covering.shape.clone(), i)?,
                cx.b.size_as_tensor(*size, DType::I64)?,
            );
            place = value(cx, |f| f.of(place) * f.of(size) + f.of(along))?;
        }
        let chosen = gather_at(cx, indices, covering.at.clone(), 2)?;
        let counts = value(cx, |f| f.of(chosen).eq(f.of(place)) & f.of(covering.inside))?;
        covering.sums(cx, g, counts)?
    };
    let v = unbatched(cx, v, added)?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// Sums the shares of the windows that read an element.
fn avg_pool_backward(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let (g, x) = (cx.tensor(a, "grad_output")?, cx.tensor(a, "self")?);
    let narrow = dtype_of(g)?;
    let d = statistics_dtype(narrow);
    let (x, added) = batched(cx, x, n)?;
    let (g, _) = batched(cx, g, n)?;
    let g = cx.convert(g, d)?;
    let windows = Sliding::all(a, n)?;
    let with_padding = a.flag("count_include_pad", true)?;
    let (sizes, outs) = (cx.b.sizes_of(x)?, cx.b.sizes_of(g)?);
    let mut shares = g;
    if a.has("divisor_override") {
        let by = a.int("divisor_override", None)? as f64;
        shares = value(cx, |f| f.of(shares) / by)?;
    } else {
        for (i, w) in windows.iter().enumerate() {
            let o = cx.iota(d, outs.clone(), i + 2)?;
            let size = cx.b.size_as_tensor(*sizes.get(i + 2).ok_or("has no size")?, d)?;
            let (k, s, p) = (w.length as f64, w.stride as f64, w.padding as f64);
            shares = value(cx, |f| {
                let start = f.of(o) * s - p;
                let limit = if with_padding { f.of(size) + p } else { f.of(size) };
                let end = (start + k).min(limit);
                let start = if with_padding { start } else { start.max(0.0) };
                f.of(shares) / (end - start)
            })?;
        }
    }
    // Where windows have gaps, an element between them has no share.
    let whole = windows.iter().all(|w| w.length == w.stride);
    let apart = WindowsApart::of(&sizes[2..], &outs[2..], &windows).filter(|_| whole);
    let v = if let Some(all) = apart {
        let v = all.spread(cx, shares, 0.0)?;
        all.flatten(cx, v, narrow)?
    } else {
        let covering = Covering::of(cx, &windows, &sizes[2..], &outs[2..])?;
        covering.sums(cx, shares, covering.inside)?
    };
    let v = unbatched(cx, v, added)?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// Each axis on its own: the windows over an element are neighbours.
fn adaptive_backward(cx: &mut Cx, a: &Args<'_>, n: usize) -> Result<Outcome> {
    let (g, x) = (cx.tensor(a, "grad_output")?, cx.tensor(a, "self")?);
    let narrow = dtype_of(g)?;
    let d = statistics_dtype(narrow);
    let (x, added) = batched(cx, x, n)?;
    let (g, _) = batched(cx, g, n)?;
    let mut v = cx.convert(g, d)?;
    for i in 0..n {
        let (size, out) = (cx.b.size_of(x, i + 2)?, cx.b.size_of(v, i + 2)?);
        // Windows [first, first + count) may hold an element.
        let count = cx.size_add(cx.size_div(out, size)?, Size::Static(2))?;
        let shape = vec![size, count];
        let (y, k) = (cx.iota(DType::I64, shape.clone(), 0)?, cx.iota(DType::I64, shape, 1)?);
        let (n, m) =
            (cx.b.size_as_tensor(size, DType::I64)?, cx.b.size_as_tensor(out, DType::I64)?);
        let o = value(cx, |f| f.of(y) * f.of(m) / f.of(n) + f.of(k))?;
        let start = value(cx, |f| f.of(o) * f.of(n) / f.of(m))?;
        let end = value(cx, |f| ((f.of(o) + 1.0) * f.of(n) + f.of(m) - 1.0) / f.of(m))?;
        let weights = value(cx, |f| {
            let y = f.of(y);
            let holds = f.of(start).le(y) & y.lt(f.of(end)) & f.of(o).lt(f.of(m));
            holds.select(1.0 / (f.of(end) - f.of(start)).to(d), 0.0)
        })?;
        let at = value(cx, |f| f.of(o).min(f.of(m) - 1.0))?;
        v = weighted(cx, v, i + 2, at, weights)?;
    }
    let v = unbatched(cx, v, added)?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// The weights of a resize along one axis as a matrix [output, input].
fn matrix(cx: &mut Cx, axis: &Axis, mode: Mode, d: DType) -> Result<Value> {
    let taps = match mode {
        Mode::Nearest | Mode::NearestExact => {
            vec![(axis.nearest(cx, d, mode == Mode::NearestExact)?, None)]
        }
        Mode::Linear | Mode::Cubic => axis.taps(cx, d, mode == Mode::Cubic)?,
        Mode::LinearAa | Mode::CubicAa => {
            let (at, weights) = axis.wide_taps(cx, d, mode == Mode::CubicAa)?;
            let count = cx.b.size_of(at, 1)?;
            let cube = [axis.output, count, axis.input];
            let at = along(cx, at, vec![0, 1], &cube)?;
            let weights = along(cx, weights, vec![0, 1], &cube)?;
            let i = cx.iota(DType::I64, cube.to_vec(), 2)?;
            return value(cx, |f| {
                let own = f.of(i).eq(f.of(at)).select(f.of(weights), 0.0);
                own.reduce(ReduceKind::Sum, &[1], false)
            });
        }
    };
    let shape = [axis.output, axis.input];
    let i = cx.iota(DType::I64, shape.to_vec(), 1)?;
    let mut sum = cx.b.splat(d, &shape, 0.0)?;
    for (at, weight) in taps {
        let at = along(cx, at, vec![0], &shape)?;
        let weight = match weight {
            Some(w) => along(cx, w, vec![0], &shape)?,
            None => cx.b.splat(d, &shape, 1.0)?,
        };
        sum = value(cx, |f| f.of(sum) + f.of(i).eq(f.of(at)).select(f.of(weight), 0.0))?;
    }
    Ok(sum)
}

/// One product with the weights of the resize an axis.
fn resize_backward(cx: &mut Cx, a: &Args<'_>, mode: Mode, n: usize) -> Result<Outcome> {
    let g = cx.tensor(a, "grad_output")?;
    let narrow = dtype_of(g)?;
    let d = work(narrow);
    let sizes = a.sizes("input_size")?;
    let axes = axes(cx, a, &sizes, n)?;
    let mut v = cx.convert(g, d)?;
    for (i, axis) in axes.iter().enumerate() {
        let weights = matrix(cx, axis, mode, d)?;
        let at = i as i64 + 2;
        v = cx.b.add(&DotGeneral {
            lhs: v,
            rhs: weights,
            lhs_batch: vec![],
            rhs_batch: vec![],
            lhs_contract: vec![at],
            rhs_contract: vec![0],
            element_type: None,
        })?;
        let last = n as i64 + 1;
        let order = (0..at).chain([last]).chain(at..last).collect();
        v = cx.transpose(v, order)?;
    }
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}
