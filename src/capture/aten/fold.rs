//! Columns of images and their inverse: `im2col` gathers windows, `col2im` adds them.
use super::{
    Args, Cx, Outcome, Row,
    formula::value,
    image::{WindowAxis, batched, spread, unbatched},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.im2col.default",
        arguments: "self, kernel_size, dilation, padding, stride",
        build: im2col,
    },
    Row {
        name: "aten.col2im.default",
        arguments: "self, output_size, kernel_size, dilation, padding, stride",
        build: col2im,
    },
];

/// The windows of `im2col` along both axes.
fn axes_of(a: &Args<'_>) -> Result<Vec<WindowAxis>> {
    let list = |name: &str, default| spread(a.ints(name)?, 2, default);
    let (kernel, dilation) = (list("kernel_size", 1)?, list("dilation", 1)?);
    let (padding, stride) = (list("padding", 0)?, list("stride", 1)?);
    let one = |i: usize| WindowAxis {
        kernel: kernel[i],
        dilation: dilation[i],
        padding: padding[i],
        stride: stride[i],
    };
    let all = vec![one(0), one(1)];
    if all.iter().any(|c| c.kernel < 1 || c.dilation < 1 || c.stride < 1) {
        return Err("kernel size, dilation and stride should be greater than zero".into());
    }
    Ok(all)
}

impl WindowAxis {
    /// The most windows over an element, if these have no dilation.
    fn overlap(&self) -> i64 {
        (self.kernel + self.stride - 1) / self.stride
    }
    /// The number of windows over `size` elements.
    fn count(&self, cx: &Cx, size: Size) -> Result<Size> {
        let room = 2 * self.padding - self.dilation * (self.kernel - 1) - 1;
        let steps =
            cx.size_div(cx.size_add(size, Size::Static(room))?, Size::Static(self.stride))?;
        cx.size_add(steps, Size::Static(1))
    }
}

fn im2col(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (x, added) = batched(cx, x, 2)?;
    let axes = axes_of(a)?;
    let (h, w) = (cx.b.size_of(x, 2)?, cx.b.size_of(x, 3)?);
    let counts = [axes[0].count(cx, h)?, axes[1].count(cx, w)?];
    let shape =
        vec![Size::Static(axes[0].kernel), Size::Static(axes[1].kernel), counts[0], counts[1]];
    let (mut at, mut inside): (Vec<Value>, Vec<Value>) = (vec![], vec![]);
    for (i, (c, size)) in axes.iter().zip([h, w]).enumerate() {
        let (k, o) =
            (cx.iota(DType::I64, shape.clone(), i)?, cx.iota(DType::I64, shape.clone(), i + 2)?);
        let size = cx.b.size_as_tensor(size, DType::I64)?;
        let position = value(cx, |f| {
            f.of(o) * c.stride as f64 + f.of(k) * c.dilation as f64 - c.padding as f64
        })?;
        inside.push(value(cx, |f| f.of(position).ge(0.0) & f.of(position).lt(f.of(size)))?);
        at.push(value(cx, |f| f.of(position).max(0.0).min(f.of(size) - 1.0))?);
    }
    let taken = gather_at(cx, x, at, 2)?;
    let mask = cx.binary(BinaryKind::And, inside[0], inside[1])?;
    let taken = cx.select(mask, taken, cx.number(dtype_of(x)?, 0.0)?)?;
    let kernel = Size::Static(axes[0].kernel * axes[1].kernel);
    let rows = cx.size_mul(cx.b.size_of(x, 1)?, kernel)?;
    let columns = cx.size_mul(counts[0], counts[1])?;
    let v = cx.reshape(taken, vec![cx.b.size_of(x, 0)?, rows, columns])?;
    let v = unbatched(cx, v, added)?;
    cx.one(v)
}

/// Sums over the windows that read an element.
fn col2im(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (x, added) = batched(cx, x, 1)?;
    let axes = axes_of(a)?;
    let outs = a.sizes("output_size")?;
    let [h, w] = outs.as_slice() else { return Err("wants two output sizes".into()) };
    let counts = [axes[0].count(cx, *h)?, axes[1].count(cx, *w)?];
    let (kh, kw) = (Size::Static(axes[0].kernel), Size::Static(axes[1].kernel));
    let kernel = Size::Static(axes[0].kernel * axes[1].kernel);
    let channels = cx.size_div(cx.b.size_of(x, 1)?, kernel)?;
    let split = vec![cx.b.size_of(x, 0)?, channels, kh, kw, counts[0], counts[1]];
    let x = cx.reshape(x, split)?;
    let adjacent = axes.iter().all(|c| c.dilation == 1);
    let terms: i64 = axes.iter().map(WindowAxis::overlap).product();
    let v = if adjacent && terms <= MOST_TERMS {
        sum_of_slices(cx, x, &axes, [*h, *w])?
    } else {
        sum_of_gathered(cx, x, &axes, [*h, *w], counts)?
    };
    let v = unbatched(cx, v, added)?;
    cx.one(v)
}

/// Most windows over an element that are added as slices.
const MOST_TERMS: i64 = 64;

/// [N, C, kh, kw, windows..] to [N, C, h, w]. With strides s, place j s + r of window q - j has
/// element q s + r of the padded image: each j is a slice, and r stays a dimension.
fn sum_of_slices(cx: &mut Cx, x: Value, axes: &[WindowAxis], outs: [Size; 2]) -> Result<Value> {
    let (n, c) = (cx.b.size_of(x, 0)?, cx.b.size_of(x, 1)?);
    // [N, windows.., kh, kw, C]: a slice has whole rows of channels.
    let wide = cx.transpose(x, vec![0, 4, 5, 2, 3, 1])?;
    let (zero, mut steps) = (Size::Static(0), vec![]);
    let (mut low, mut high, mut split) = (vec![zero; 6], vec![zero; 6], vec![n]);
    for (i, (axis, out)) in axes.iter().zip(outs).enumerate() {
        let (overlap, stride) = (axis.overlap(), axis.stride);
        let whole = cx.size_add(out, Size::Static(axis.padding + stride - 1))?;
        let step = cx.size_div(whole, Size::Static(stride))?;
        let windows = cx.b.size_of(wide, 1 + i)?;
        low[1 + i] = Size::Static(overlap - 1);
        high[1 + i] = cx.size_sub(step, windows)?;
        high[3 + i] = Size::Static(overlap * stride - axis.kernel);
        split.push(cx.size_add(step, Size::Static(overlap - 1))?);
        steps.push(step);
    }
    let nothing = cx.number(dtype_of(x)?, 0.0)?;
    let wide = cx.b.add(&Pad { input: wide, value: nothing, low, high })?;
    let strides = [axes[0].stride, axes[1].stride].map(Size::Static);
    split.extend([Size::Static(axes[0].overlap()), strides[0]]);
    split.extend([Size::Static(axes[1].overlap()), strides[1], c]);
    let wide = cx.reshape(wide, split)?;
    let wider = statistics_dtype(dtype_of(x)?);
    let mut sum: Option<Value> = None;
    for (j, i) in (0..axes[0].overlap()).flat_map(|j| (0..axes[1].overlap()).map(move |i| (j, i))) {
        let first = |axis: &WindowAxis, j: i64| Size::Static(axis.overlap() - 1 - j);
        let offsets = vec![
            zero,
            first(&axes[0], j),
            first(&axes[1], i),
            Size::Static(j),
            zero,
            Size::Static(i),
            zero,
            zero,
        ];
        let one = Size::Static(1);
        let sizes = vec![n, steps[0], steps[1], one, strides[0], one, strides[1], c];
        let slice = cx.b.add(&Slice { input: wide, offsets, sizes, strides: vec![1; 8] })?;
        let term = cx.reshape(slice, vec![n, steps[0], steps[1], strides[0], strides[1], c])?;
        let term = cx.convert(term, wider)?;
        sum = Some(match sum {
            Some(sum) => cx.binary(BinaryKind::Add, sum, term)?,
            None => term,
        });
    }
    let sum = cx.convert(sum.ok_or("has no windows")?, dtype_of(x)?)?;
    let mixed = cx.transpose(sum, vec![0, 1, 3, 2, 4, 5])?;
    let area = |i: usize| cx.size_mul(steps[i], strides[i]);
    let image = cx.reshape(mixed, vec![n, area(0)?, area(1)?, c])?;
    let offsets = vec![zero, Size::Static(axes[0].padding), Size::Static(axes[1].padding), zero];
    let sizes = vec![n, outs[0], outs[1], c];
    let image = cx.b.add(&Slice { input: image, offsets, sizes, strides: vec![1; 4] })?;
    cx.transpose(image, vec![0, 3, 1, 2])
}

/// The same for each element and each place in a window: the window that has it there, if there is
/// one.
fn sum_of_gathered(
    cx: &mut Cx,
    x: Value,
    axes: &[WindowAxis],
    [h, w]: [Size; 2],
    counts: [Size; 2],
) -> Result<Value> {
    let (kh, kw) = (Size::Static(axes[0].kernel), Size::Static(axes[1].kernel));
    let shape = vec![h, w, kh, kw];
    let (mut at, mut inside): (Vec<Value>, Vec<Value>) = (vec![], vec![]);
    for (i, (c, count)) in axes.iter().zip(counts).enumerate() {
        let (y, k) =
            (cx.iota(DType::I64, shape.clone(), i)?, cx.iota(DType::I64, shape.clone(), i + 2)?);
        let count = cx.b.size_as_tensor(count, DType::I64)?;
        let room = value(cx, |f| f.of(y) + c.padding as f64 - f.of(k) * c.dilation as f64)?;
        inside.push(value(cx, |f| {
            let (room, by) = (f.of(room), c.stride as f64);
            room.ge(0.0) & room.remainder(by).eq(0.0) & (room / by).lt(f.of(count))
        })?);
        at.push(value(cx, |f| (f.of(room) / c.stride as f64).max(0.0).min(f.of(count) - 1.0))?);
    }
    let (ky, kx) = (cx.iota(DType::I64, shape.clone(), 2)?, cx.iota(DType::I64, shape, 3)?);
    let taken = gather_at(cx, x, vec![ky, kx, at[0], at[1]], 2)?;
    let mask = cx.binary(BinaryKind::And, inside[0], inside[1])?;
    value(cx, |f| {
        let taken = f.of(mask).select(f.of(taken), 0.0);
        taken.reduce(ReduceKind::Sum, &[4, 5], false)
    })
}
