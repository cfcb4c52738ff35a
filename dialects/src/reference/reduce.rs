//! Reductions and scans.

use crate::{
    error::Result,
    ops::{CumulativeKind, ReduceKind},
    reference::{
        element::{Element, each_data},
        shape::{Lines, axes, lines, offsets, other_axes},
    },
    value::{DType, Tensor},
};
use std::cmp::Ordering;

/// r\[j...\] = kind over i of x\[i at dims, j elsewhere\], of x's dtype; dims are dropped; integers
/// wrap around. any and all take `i1`, which also has max and sum (or), min and prod (and). With
/// `maybe_empty`, max and min of no elements are the dtype's least and greatest value. Err: any or
/// all of another dtype, max or min of no elements without it, a dim out of range or repeated.
pub fn reduce(kind: ReduceKind, x: &Tensor, dims: &[i64], maybe_empty: bool) -> Result<Tensor> {
    let dims = axes(dims, x.rank())?;
    let fold = match kind {
        ReduceKind::Sum => CumulativeKind::Sum,
        ReduceKind::Prod => CumulativeKind::Prod,
        ReduceKind::Max | ReduceKind::Any => CumulativeKind::Max,
        ReduceKind::Min | ReduceKind::All => CumulativeKind::Min,
    };
    if matches!(kind, ReduceKind::Any | ReduceKind::All) && x.dtype() != DType::I1 {
        return Err(format!("{kind:?} takes i1, not {}", x.dtype()).into());
    }
    let free = other_axes(&dims, x.rank());
    let shape: Vec<usize> = free.iter().map(|&d| x.shape()[d]).collect();
    let (outer, inner) = (offsets(x.shape(), &free)?, offsets(x.shape(), &dims)?);
    if inner.is_empty()
        && !outer.is_empty()
        && !maybe_empty
        && matches!(kind, ReduceKind::Max | ReduceKind::Min)
    {
        return Err(
            format!("{kind:?} of no elements, dims {dims:?} of shape {:?}", x.shape()).into()
        );
    }
    fn run<E: Element>(
        v: &[E],
        outer: &[usize],
        inner: &[usize],
        kind: CumulativeKind,
        dtype: DType,
    ) -> Vec<E> {
        let start = E::identity(kind, dtype);
        let fold =
            |o: &usize| inner.iter().fold(start, |sum, i| sum.combine(kind, v[o + i], dtype));
        outer.iter().map(fold).collect()
    }
    let data = each_data!(x, v => run(v, &outer, &inner, fold, x.dtype()));
    Tensor::new(x.dtype(), shape, data)
}

/// Index of the maximum along one axis as i64: the first of equal ones, or the first NaN. The axis
/// is dropped. Err: axis out of range or of size 0.
pub fn arg_max(x: &Tensor, axis: i64) -> Result<Tensor> {
    arg(x, axis, Ordering::Greater)
}

/// Index of the minimum along one axis, as [`arg_max`].
pub fn arg_min(x: &Tensor, axis: i64) -> Result<Tensor> {
    arg(x, axis, Ordering::Less)
}

fn arg(x: &Tensor, axis: i64, wanted: Ordering) -> Result<Tensor> {
    let lines = lines(x.shape(), axis)?;
    if lines.size == 0 && !lines.starts.is_empty() {
        return Err(format!("no elements along axis {axis} of shape {:?}", x.shape()).into());
    }
    let mut shape = x.shape().to_vec();
    shape.remove(axis as usize);
    fn best<E: Element>(line: impl Iterator<Item = E>, wanted: Ordering) -> i64 {
        let mut best: Option<(i64, E)> = None;
        for (position, value) in (0..).zip(line) {
            let better = best.is_none_or(|(_, best)| match (value.is_nan(), best.is_nan()) {
                (_, true) => false,
                (true, false) => true,
                _ => value.order(best) == wanted,
            });
            if better {
                best = Some((position, value));
            }
        }
        best.map_or(0, |(position, _)| position)
    }
    fn run<E: Element>(v: &[E], lines: &Lines, wanted: Ordering) -> Vec<i64> {
        let line = |start: usize| (0..lines.size).map(move |i| v[start + i * lines.step]);
        lines.starts.iter().map(|&start| best(line(start), wanted)).collect()
    }
    let positions = match x.as_f() {
        Ok(v) => run(v, &lines, wanted),
        Err(_) => run(x.as_i()?, &lines, wanted),
    };
    Tensor::ints(DType::I64, shape, positions)
}

/// r\[i\] = kind of x[0..=i] along one axis, of x's dtype; integers wrap around, max and min
/// propagate NaN. Err: axis out of range.
pub fn cumulative(kind: CumulativeKind, x: &Tensor, axis: i64) -> Result<Tensor> {
    let lines = lines(x.shape(), axis)?;
    fn run<E: Element>(v: &[E], lines: &Lines, kind: CumulativeKind, dtype: DType) -> Vec<E> {
        let mut out = v.to_vec();
        for start in &lines.starts {
            let mut sum = E::identity(kind, dtype);
            for i in 0..lines.size {
                sum = sum.combine(kind, v[start + i * lines.step], dtype);
                out[start + i * lines.step] = sum;
            }
        }
        out
    }
    let data = each_data!(x, v => run(v, &lines, kind, x.dtype()));
    Tensor::new(x.dtype(), x.shape().to_vec(), data)
}
