//! Index arithmetic shared by the reference functions.

use crate::{
    error::Result,
    value::{DType, Data, Tensor, count},
};

/// Sizes as usize. Err: a negative size.
pub fn sizes(sizes: &[i64]) -> Result<Vec<usize>> {
    sizes
        .iter()
        .map(|&size| usize::try_from(size).map_err(|_| format!("size {size} is negative").into()))
        .collect()
}

/// Strides or dilations as i64. Err: not `rank` of them, one below 1.
pub fn steps(what: &str, steps: &[i64], rank: usize) -> Result<()> {
    same_rank(what, steps.len(), rank)?;
    match steps.iter().find(|&&step| step < 1) {
        Some(step) => Err(format!("{what} {step} is not positive").into()),
        None => Ok(()),
    }
}

/// Err: the list does not have one entry per dimension.
pub fn same_rank(what: &str, given: usize, rank: usize) -> Result<()> {
    if given == rank {
        Ok(())
    } else {
        Err(format!("{given} {what} given for {rank} dimensions").into())
    }
}

/// One axis as usize. Err: out of range.
pub fn axis(axis: i64, rank: usize) -> Result<usize> {
    usize::try_from(axis)
        .ok()
        .filter(|&axis| axis < rank)
        .ok_or_else(|| format!("axis {axis} is out of range for rank {rank}").into())
}

/// Distinct axes as usize. Err: one out of range or repeated.
pub fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>> {
    let axes: Vec<usize> = list.iter().map(|&a| axis(a, rank)).collect::<Result<_, _>>()?;
    match (1..axes.len()).find(|&k| axes[..k].contains(&axes[k])) {
        Some(k) => Err(format!("axis {} is given twice", axes[k]).into()),
        None => Ok(axes),
    }
}

/// The axes below `rank` that are not listed, ascending.
pub fn other_axes(axes: &[usize], rank: usize) -> Vec<usize> {
    (0..rank).filter(|k| !axes.contains(k)).collect()
}

/// Err: the shapes differ.
pub fn same_shape(x: &Tensor, y: &Tensor) -> Result<()> {
    if x.shape() == y.shape() {
        Ok(())
    } else {
        Err(format!("shapes {:?} and {:?} differ", x.shape(), y.shape()).into())
    }
}

/// Err: the dtypes differ.
pub fn same_dtype(x: &Tensor, y: &Tensor) -> Result<()> {
    if x.dtype() == y.dtype() {
        Ok(())
    } else {
        Err(format!("dtypes {} and {} differ", x.dtype(), y.dtype()).into())
    }
}

/// Err: the tensor does not have this shape.
pub fn has_shape(what: &str, x: &Tensor, shape: &[usize]) -> Result<()> {
    if x.shape() == shape {
        Ok(())
    } else {
        Err(format!("{what} has shape {:?}, not {shape:?}", x.shape()).into())
    }
}

/// Err: another dtype.
pub fn has_dtype(what: &str, x: &Tensor, dtype: DType) -> Result<()> {
    if x.dtype() == dtype {
        Ok(())
    } else {
        Err(format!("{what} has dtype {}, not {dtype}", x.dtype()).into())
    }
}

/// Row-major strides of a shape.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for k in (1..shape.len()).rev() {
        strides[k - 1] = strides[k].saturating_mul(shape[k]);
    }
    strides
}

/// Visits every index of a shape in row-major order.
pub fn for_each_index(
    shape: &[usize],
    mut visit: impl FnMut(&[usize]) -> Result<()>,
) -> Result<()> {
    let mut index = vec![0; shape.len()];
    for _ in 0..count(shape)? {
        visit(&index)?;
        for k in (0..shape.len()).rev() {
            index[k] += 1;
            if index[k] < shape[k] {
                break;
            }
            index[k] = 0;
        }
    }
    Ok(())
}

/// The elements of `x` at the linear offsets that `source` gives per index of `shape`; 0-d `fill`
/// for None. Err: `source`'s, an offset out of bounds.
pub fn take(
    x: &Tensor,
    shape: Vec<usize>,
    fill: Option<&Tensor>,
    mut source: impl FnMut(&[usize]) -> Result<Option<usize>>,
) -> Result<Tensor> {
    let mut positions = Vec::with_capacity(count(&shape)?);
    for_each_index(&shape, |index| {
        positions.push(source(index)?);
        Ok(())
    })?;
    let outside = || format!("a position lies outside of shape {:?}", x.shape());
    let data = match (x.data(), fill.map(Tensor::data)) {
        (Data::F(v), None | Some(Data::F(_))) => {
            let fill = fill.and_then(|t| t.as_f().ok()).and_then(|f| f.first().copied());
            let pick =
                |at: &Option<usize>| at.map_or(fill, |at| v.get(at).copied()).ok_or_else(outside);
            Data::F(positions.iter().map(pick).collect::<Result<_, _>>()?)
        }
        (Data::I(v), None | Some(Data::I(_))) => {
            let fill = fill.and_then(|t| t.as_i().ok()).and_then(|f| f.first().copied());
            let pick =
                |at: &Option<usize>| at.map_or(fill, |at| v.get(at).copied()).ok_or_else(outside);
            Data::I(positions.iter().map(pick).collect::<Result<_, _>>()?)
        }
        _ => return Err(format!("a fill value has not the dtype {}", x.dtype()).into()),
    };
    Tensor::new(x.dtype(), shape, data)
}

/// The sum of `index\[k\] * strides\[k\]`.
pub fn dot(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, s)| i * s).sum()
}

/// Linear offsets of all indices along `axes` (in their order, row-major), index 0 elsewhere. Err:
/// as [`count`].
pub fn offsets(shape: &[usize], axes: &[usize]) -> Result<Vec<usize>> {
    let all = strides(shape);
    let box_shape: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
    let box_strides: Vec<usize> = axes.iter().map(|&a| all[a]).collect();
    let mut out = Vec::with_capacity(count(&box_shape)?);
    for_each_index(&box_shape, |index| {
        out.push(dot(index, &box_strides));
        Ok(())
    })?;
    Ok(out)
}

/// The lines of a tensor along one axis: line `k` has the elements `starts\[k\] + i * step` for i
/// below `size`.
pub struct Lines {
    /// The op's `starts`.
    pub starts: Vec<usize>,
    /// The op's `size`.
    pub size: usize,
    /// The op's `step`.
    pub step: usize,
}

/// All lines along one axis. Err: the axis is out of range.
pub fn lines(shape: &[usize], along: i64) -> Result<Lines> {
    let along = axis(along, shape.len())?;
    let starts = offsets(shape, &other_axes(&[along], shape.len()))?;
    Ok(Lines { starts, size: shape[along], step: strides(shape)[along] })
}

/// Strides that read `shape` at an index of `target` under NumPy broadcasting: trailing dimensions
/// align, repeated ones have stride 0. Err: it does not broadcast.
pub fn broadcast_strides(shape: &[usize], target: &[usize]) -> Result<Vec<usize>> {
    let failure = || format!("shape {shape:?} does not broadcast to {target:?}");
    let missing = target.len().checked_sub(shape.len()).ok_or_else(failure)?;
    let mut out = vec![0; missing];
    for ((&size, &wanted), stride) in shape.iter().zip(&target[missing..]).zip(strides(shape)) {
        if size != wanted && size != 1 {
            return Err(failure().into());
        }
        out.push(if size == 1 { 0 } else { stride });
    }
    Ok(out)
}

/// The shape that two shapes broadcast to. Err: they do not.
pub fn broadcast_shapes(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size =
        |shape: &[usize], k: usize| (k + shape.len()).checked_sub(rank).map_or(1, |k| shape[k]);
    (0..rank)
        .map(|k| match (size(a, k), size(b, k)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(format!("shapes {a:?} and {b:?} do not broadcast").into()),
        })
        .collect()
}
