//! Derivatives of sampling at coordinates.
use super::{
    Args, Cx, Outcome, Row,
    backward_norm::masked,
    formula::value,
    resize::{cubic_slopes, cubic_weights},
    sample::{Axis, Padding, Place, Sampler, place, read},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.grid_sampler_2d_backward.default",
        arguments: "grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask",
        build: grid_sampler_backward,
    },
    Row {
        name: "aten.grid_sampler_3d_backward.default",
        arguments: "grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask",
        build: grid_sampler_backward,
    },
];

/// An element that a coordinate reads along one axis.
#[derive(Clone, Copy)]
struct Tap {
    at: Value,
    weight: Value,
    /// The weight's derivative by the coordinate.
    slope: Value,
}

/// The taps of a coordinate `v` along an axis, and the derivative of what they depend on by `v`.
fn taps(cx: &Cx, axis: &Axis, v: Value, mode: i64) -> Result<(Vec<Tap>, Value)> {
    let constant = |x: f64| cx.full_like(v, x);
    match mode {
        // Constant between the elements.
        1 => {
            let at = value(cx, |f| axis.inside(f, f.of(v)).round())?;
            Ok((vec![Tap { at, weight: constant(1.0)?, slope: constant(0.0)? }], constant(0.0)?))
        }
        0 => {
            let slope = value(cx, |f| axis.inside_slope(f, f.of(v)))?;
            let slope = cx.broadcast_to(slope, &cx.b.sizes_of(v)?)?;
            let v = value(cx, |f| axis.inside(f, f.of(v)))?;
            let first = value(cx, |f| f.of(v).floor())?;
            let next = value(cx, |f| f.of(first) + 1.0)?;
            let part = value(cx, |f| f.of(v) - f.of(first))?;
            let rest = value(cx, |f| f.of(next) - f.of(v))?;
            let all = vec![
                Tap { at: first, weight: rest, slope: constant(-1.0)? },
                Tap { at: next, weight: part, slope: constant(1.0)? },
            ];
            Ok((all, slope))
        }
        _ => {
            let first = value(cx, |f| f.of(v).floor())?;
            let part = value(cx, |f| f.of(v) - f.of(first))?;
            let mut all = vec![];
            let weights = cubic_weights(cx, part)?.into_iter().zip(cubic_slopes(cx, part)?);
            for ((weight, slope), by) in weights.zip([-1.0, 0.0, 1.0, 2.0]) {
                let at = value(cx, |f| axis.inside(f, f.of(first) + by).trunc())?;
                all.push(Tap { at, weight, slope });
            }
            Ok((all, constant(1.0)?))
        }
    }
}

/// By the input: each element has the gradients of the results that read it, times their weights.
/// By the grid: the sum over elements of their weights' derivatives, times element and gradient.
/// Bicubic interpolation moves its taps inside one by one, so that its weights depend on the
/// coordinate as it is.
fn grid_sampler_backward(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let Sampler { x, axes, at, narrow } = Sampler::new(cx, a)?;
    let g = cx.tensor(a, "grad_output")?;
    let g = cx.convert(g, dtype_of(x)?)?;
    let (n, mode) = (axes.len(), a.int("interpolation_mode", Some(0))?);
    if mode == 2 && n != 2 {
        return Err("grid_sampler(): bicubic interpolation only supports 4D input".into());
    }
    let (mut all, mut slopes) = (vec![], vec![]);
    for (axis, v) in axes.iter().zip(&at) {
        let (taps, slope) = taps(cx, axis, *v, mode)?;
        all.push(taps);
        slopes.push(slope);
    }
    let last = n as i64 + 1;
    // [N, C, grid..] to [N, grid.., C]
    let updates = cx.transpose(g, [vec![0], (2..=last).collect(), vec![1]].concat())?;
    let mut by_input = cx.full_like(x, 0.0)?;
    let mut by_axis: Vec<Value> =
        at.iter().map(|v| cx.full_like(*v, 0.0)).collect::<Result<_>>()?;
    for chosen in combinations(&all) {
        let positions: Vec<Value> = chosen.iter().map(|tap| tap.at).collect();
        let Place { indices, dims, inside } = place(cx, &positions, &axes)?;
        let read = read(cx, x, &positions, &axes)?;
        let along = value(cx, |f| (f.of(g) * f.of(read)).reduce(ReduceKind::Sum, &[1], false))?;
        for (i, sum) in by_axis.iter_mut().enumerate() {
            *sum = value(cx, |f| {
                let factor =
                    |(j, tap): (usize, &Tap)| f.of(if i == j { tap.slope } else { tap.weight });
                chosen.iter().enumerate().map(factor).fold(f.of(along), |x, y| x * y) + f.of(*sum)
            })?;
        }
        let weight = value(cx, |f| {
            let one = chosen.iter().map(|tap| f.of(tap.weight)).reduce(|x, y| x * y);
            let one = one.unwrap_or_else(|| f.of(along));
            if axes.iter().all(|axis| axis.padding == Padding::Zeros) {
                f.of(inside).select(one, 0.0)
            } else {
                one
            }
        })?;
        let dims_of_weight = (0..last).collect();
        let sizes = cx.b.sizes_of(updates)?;
        let weight = cx.b.add(&BroadcastInDim { input: weight, dims: dims_of_weight, sizes })?;
        let updates = cx.binary(BinaryKind::Mul, updates, weight)?;
        let kind = ScatterKind::Add;
        by_input = cx.b.add(&Scatter { kind, input: by_input, updates, indices, dims })?;
    }
    let mut columns = vec![];
    // The grid's last dimension starts with the last axis.
    for ((axis, slope), sum) in axes.iter().zip(slopes).zip(by_axis).rev() {
        let v = value(cx, |f| f.of(sum) * f.of(slope) * axis.scale(f))?;
        columns.push(cx.unsqueezed(v, rank_of(v))?);
    }
    let by_grid = cx.joined(columns, n + 1)?;
    let (by_input, by_grid) = (cx.convert(by_input, narrow)?, cx.convert(by_grid, narrow)?);
    masked(cx, a, vec![Some(by_input), Some(by_grid)])
}

/// Every choice of one tap an axis.
fn combinations(all: &[Vec<Tap>]) -> Vec<Vec<Tap>> {
    let Some((first, rest)) = all.split_first() else { return vec![vec![]] };
    let rest = combinations(rest);
    let with = |tap: &Tap| rest.iter().map(|r| [&[*tap][..], r].concat()).collect::<Vec<_>>();
    first.iter().flat_map(with).collect()
}
