//! Sampling at coordinates: `grid_sampler` and `affine_grid`.
use super::{Args, Cx, Outcome, Row, formula::value, formula::*, resize::cubic_weights, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.grid_sampler.default",
        arguments: "input, grid, interpolation_mode, padding_mode, align_corners",
        build: grid_sampler,
    },
    Row {
        name: "aten.grid_sampler_2d.default",
        arguments: "input, grid, interpolation_mode, padding_mode, align_corners",
        build: grid_sampler,
    },
    Row {
        name: "aten.grid_sampler_3d.default",
        arguments: "input, grid, interpolation_mode, padding_mode, align_corners",
        build: grid_sampler,
    },
    Row {
        name: "aten.affine_grid_generator.default",
        arguments: "theta, size, align_corners",
        build: affine_grid,
    },
];

/// What is read outside of the input.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// Coordinates along one axis.
pub(super) struct Axis {
    pub size: Value,
    pub padding: Padding,
    align_corners: bool,
}

impl Axis {
    /// Coordinates in elements from coordinates in [-1, 1].
    fn unnormalise<'f>(&self, f: &'f Formula, x: Term<'f>) -> Term<'f> {
        let n = f.of(self.size);
        if self.align_corners { (x + 1.0) / 2.0 * (n - 1.0) } else { ((x + 1.0) * n - 1.0) / 2.0 }
    }
    /// Coordinates outside, moved inside as the padding says.
    pub fn inside<'f>(&self, f: &'f Formula, x: Term<'f>) -> Term<'f> {
        let n = f.of(self.size);
        let clip = |x: Term<'f>| x.max(0.0).min(n - 1.0);
        match self.padding {
            Padding::Zeros => x,
            Padding::Border => clip(x),
            Padding::Reflection => {
                // Reflected at the first and last elements' centres, or at their outer edges.
                let (low, span) = if self.align_corners { (0.0, n - 1.0) } else { (-0.5, n) };
                let distance = (x - low).abs();
                let rest = distance.remainder(span);
                let flips = (distance / span).floor();
                let even = flips.remainder(2.0).eq(0.0);
                let at = even.select(rest + low, span - rest + low);
                clip(span.eq(0.0).select(0.0 * n, at))
            }
        }
    }
    /// The derivative of [`Axis::inside`]: 0 at and outside of the first and last element where
    /// coordinates are clipped, as PyTorch has it, and of the opposite sign after odd reflections.
    pub fn inside_slope<'f>(&self, f: &'f Formula, x: Term<'f>) -> Term<'f> {
        let n = f.of(self.size);
        let within =
            |at: Term<'f>, slope: Term<'f>| (at.gt(0.0) & at.lt(n - 1.0)).select(slope, 0.0);
        let one = 0.0 * n + 1.0;
        match self.padding {
            Padding::Zeros => one,
            Padding::Border => within(x, one),
            Padding::Reflection => {
                let (low, span) = if self.align_corners { (0.0, n - 1.0) } else { (-0.5, n) };
                let away = x - low;
                let even = (away.abs() / span).floor().remainder(2.0).eq(0.0);
                let sign = away.lt(0.0).select(-one, one);
                span.eq(0.0).select(0.0, within(self.inside(f, x), even.select(sign, -sign)))
            }
        }
    }
    /// The derivative of [`Axis::unnormalise`].
    pub fn scale<'f>(&self, f: &'f Formula) -> Term<'f> {
        let n = f.of(self.size);
        if self.align_corners { (n - 1.0) / 2.0 } else { n / 2.0 }
    }
}

/// Where a gather or a scatter reads: indices of the batch and of each axis, and their dimensions.
pub(super) struct Place {
    pub indices: Vec<Value>,
    pub dims: Vec<i64>,
    /// Whether the coordinates lie inside, of the grid's shape.
    pub inside: Value,
}

/// Integral coordinates (one an axis, of the grid's shape) as indices, clipped.
pub(super) fn place(cx: &Cx, at: &[Value], axes: &[Axis]) -> Result<Place> {
    let (mut inside, mut indices): (Option<Value>, Vec<Value>) = (None, vec![]);
    let sizes = cx.b.sizes_of(*at.first().ok_or("has no axes")?)?;
    indices.push(cx.iota(DType::I64, sizes, 0)?);
    for (v, axis) in at.iter().zip(axes) {
        let within = value(cx, |f| {
            let v = f.of(*v);
            v.ge(0.0) & v.lt(f.of(axis.size))
        })?;
        indices.push(value(cx, |f| f.of(*v).max(0.0).min(f.of(axis.size) - 1.0).to(DType::I64))?);
        inside = Some(match inside {
            None => within,
            Some(all) => cx.binary(BinaryKind::And, all, within)?,
        });
    }
    let dims = [vec![0], (2..axes.len() as i64 + 2).collect()].concat();
    Ok(Place { indices, dims, inside: inside.ok_or("has no axes")? })
}

/// The arguments of a sampler in the dtype that it computes in.
pub(super) struct Sampler {
    pub x: Value,
    pub axes: Vec<Axis>,
    /// Coordinates in elements along each axis, of the grid's shape.
    pub at: Vec<Value>,
    /// The input's own dtype.
    pub narrow: DType,
}

/// The elements at integral coordinates (one an axis, of the grid's shape); 0 outside.
pub(super) fn read(cx: &Cx, x: Value, at: &[Value], axes: &[Axis]) -> Result<Value> {
    let n = axes.len();
    let Place { indices, dims, inside } = place(cx, at, axes)?;
    // [N, grid.., C] to [N, C, grid..]
    let taken = cx.b.add(&Gather { input: x, indices, dims })?;
    let last = n as i64 + 1;
    let taken = cx.transpose(taken, [vec![0, last], (1..last).collect()].concat())?;
    if axes.iter().any(|a| a.padding != Padding::Zeros) {
        return Ok(taken);
    }
    let shape = cx.b.sizes_of(taken)?;
    let mask = cx.b.add(&BroadcastInDim {
        input: inside,
        dims: [vec![0], (2..n as i64 + 2).collect()].concat(),
        sizes: shape,
    })?;
    cx.select(mask, taken, cx.number(dtype_of(x)?, 0.0)?)
}

impl Sampler {
    /// The arguments `input`, `grid`, `padding_mode` and `align_corners`.
    pub fn new(cx: &mut Cx, a: &Args<'_>) -> Result<Sampler> {
        let (x, grid) = (cx.tensor(a, "input")?, cx.tensor(a, "grid")?);
        let narrow = dtype_of(x)?;
        let n = rank_of(x).checked_sub(2).filter(|n| (2..=3).contains(n)).ok_or_else(|| {
            format!("grid_sampler(): expected 4D or 5D input, but got input of rank {}", rank_of(x))
        })?;
        if rank_of(grid) != n + 2 {
            return Err(format!(
            "grid_sampler(): expected grid and input to have same number of dimensions, but got input of rank {} and grid of rank {}",
            n + 2,
            rank_of(grid)
        ).into());
        }
        let d = if narrow == DType::F64 { narrow } else { DType::F32 };
        let (x, grid) = (cx.convert(x, d)?, cx.convert(grid, d)?);
        let padding = match a.int("padding_mode", Some(0))? {
            0 => Padding::Zeros,
            1 => Padding::Border,
            _ => Padding::Reflection,
        };
        let align_corners = a.flag("align_corners", false)?;
        let mut axes = vec![];
        for i in 0..n {
            let size = cx.b.size_as_tensor(cx.b.size_of(x, i + 2)?, d)?;
            axes.push(Axis { size, padding, align_corners });
        }
        // The grid's last dimension starts with the last axis.
        let sizes = cx.b.sizes_of(grid)?;
        let mut at = vec![];
        for (i, axis) in axes.iter().enumerate() {
            let (mut offsets, mut one) = (vec![Size::Static(0); n + 2], sizes.clone());
            let (Some(offset), Some(last)) = (offsets.last_mut(), one.last_mut()) else {
                return Err("has a grid of rank 0".into());
            };
            (*offset, *last) = (Size::Static((n - 1 - i) as i64), Size::Static(1));
            let column =
                cx.b.add(&Slice { input: grid, offsets, sizes: one, strides: vec![1; n + 2] })?;
            let column = cx.reshape(column, sizes.get(..n + 1).unwrap_or(&[]).to_vec())?;
            at.push(value(cx, |f| axis.unnormalise(f, f.of(column)))?);
        }
        Ok(Sampler { x, axes, at, narrow })
    }
}

fn grid_sampler(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let Sampler { x, axes, at, narrow } = Sampler::new(cx, a)?;
    let n = axes.len();
    let v = match a.int("interpolation_mode", Some(0))? {
        1 => {
            let at = at
                .iter()
                .zip(&axes)
                .map(|(v, axis)| value(cx, |f| axis.inside(f, f.of(*v)).round()))
                .collect::<Result<Vec<_>, _>>()?;
            read(cx, x, &at, &axes)?
        }
        0 => {
            let mut taps = vec![];
            for (v, axis) in at.iter().zip(&axes) {
                let v = value(cx, |f| axis.inside(f, f.of(*v)))?;
                let first = value(cx, |f| f.of(v).floor())?;
                let next = value(cx, |f| f.of(first) + 1.0)?;
                let part = value(cx, |f| f.of(v) - f.of(first))?;
                let rest = value(cx, |f| f.of(next) - f.of(v))?;
                // A tap behind the last element has weight 0 there, and is not read.
                taps.push(vec![(first, rest), (next, part)]);
            }
            corners(cx, x, &taps, &axes, &[])?
        }
        2 if n == 2 => {
            let mut taps = vec![];
            for (v, axis) in at.iter().zip(&axes) {
                let first = value(cx, |f| f.of(*v).floor())?;
                let part = value(cx, |f| f.of(*v) - f.of(first))?;
                let mut all = vec![];
                for (w, by) in cubic_weights(cx, part)?.into_iter().zip([-1.0, 0.0, 1.0, 2.0]) {
                    let tap = value(cx, |f| axis.inside(f, f.of(first) + by).trunc())?;
                    all.push((tap, w));
                }
                taps.push(all);
            }
            corners(cx, x, &taps, &axes, &[])?
        }
        _ => return Err("grid_sampler(): bicubic interpolation only supports 4D input".into()),
    };
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// `sum w0[i] * (sum w1[j] * x[i, j])` over the taps of each axis.
fn corners(
    cx: &Cx,
    x: Value,
    taps: &[Vec<(Value, Value)>],
    axes: &[Axis],
    chosen: &[Value],
) -> Result<Value> {
    let Some(axis) = taps.get(chosen.len()) else { return read(cx, x, chosen, axes) };
    let mut sum: Option<Value> = None;
    for (at, weight) in axis {
        let inner = corners(cx, x, taps, axes, &[chosen, &[*at]].concat())?;
        let n = axes.len() as i64;
        let weight = cx.b.add(&BroadcastInDim {
            input: *weight,
            dims: [vec![0], (2..n + 2).collect()].concat(),
            sizes: cx.b.sizes_of(inner)?,
        })?;
        let term = cx.binary(BinaryKind::Mul, inner, weight)?;
        sum = Some(match sum {
            None => term,
            Some(sum) => cx.binary(BinaryKind::Add, sum, term)?,
        });
    }
    sum.ok_or_else(|| "has no taps".into())
}

/// `theta [N, n, n + 1]` times the coordinates (x, y, 1) or (x, y, z, 1) of a grid over [-1, 1].
fn affine_grid(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let theta = cx.tensor(a, "theta")?;
    let size = a.sizes("size")?;
    let n = size
        .len()
        .checked_sub(2)
        .filter(|n| (2..=3).contains(n))
        .ok_or("affine_grid_generator needs 4d (spatial) or 5d (volumetric) inputs.")?;
    let d = dtype_of(theta)?;
    let align = a.flag("align_corners", false)?;
    let batch = cx.b.size_of(theta, 0)?;
    let grid = size.get(2..).unwrap_or(&[]);
    let shape = [&[batch], grid, &[Size::Static(n as i64)]].concat();
    let column = |cx: &Cx, k: usize| -> Result<Value> {
        let v = cx.b.add(&Slice {
            input: theta,
            offsets: vec![Size::Static(0), Size::Static(0), Size::Static(k as i64)],
            sizes: vec![batch, Size::Static(n as i64), Size::Static(1)],
            strides: vec![1; 3],
        })?;
        let v = cx.reshape(v, vec![batch, Size::Static(n as i64)])?;
        cx.b.add(&BroadcastInDim { input: v, dims: vec![0, n as i64 + 1], sizes: shape.clone() })
    };
    let mut sum = column(cx, n)?;
    for k in 0..n {
        // Column k of theta belongs to the k-th axis from the end.
        let axis = n - 1 - k;
        let i = cx.iota(d, shape.clone(), axis + 1)?;
        let count = cx.b.size_as_tensor(*grid.get(axis).ok_or("has no axis")?, d)?;
        let theta = column(cx, k)?;
        sum = value(cx, |f| {
            let (i, count) = (f.of(i), f.of(count));
            let at = if align {
                let at = 2.0 * i / (count - 1.0).max(1.0) - 1.0;
                count.gt(1.0).select(at, 0.0)
            } else {
                (2.0 * i + 1.0) / count - 1.0
            };
            f.of(sum) + f.of(theta) * at
        })?;
    }
    cx.one(sum)
}
