//! Gather, scatter and dynamic slices.

use crate::{
    error::Result,
    ops::{CumulativeKind, ScatterKind},
    reference::{
        element::{Element, both_data},
        shape::{
            axes, dot, for_each_index, has_dtype, has_shape, offsets, other_axes, same_dtype,
            same_rank, same_shape, sizes as to_sizes, strides, take,
        },
    },
    value::{DType, Tensor},
};

/// Linear offsets that index tensors address.
struct Positions {
    /// The shape of the index tensors, then the other dimensions of the input.
    shape: Vec<usize>,
    /// Per index tuple: the offset along `dims`.
    outer: Vec<usize>,
    /// Per index of the other dimensions: its offset.
    inner: Vec<usize>,
}

/// Err: no index tensors, not one per dim, shapes differ, not integers, an index out of [0, size).
fn positions(x: &Tensor, indices: &[&Tensor], dims: &[i64]) -> Result<Positions> {
    let first = indices.first().ok_or("no index tensors")?;
    same_rank("index tensors", indices.len(), dims.len())?;
    let dims = axes(dims, x.rank())?;
    let all = x.strides();
    let mut outer = vec![0; first.len()];
    for (index, &dim) in indices.iter().zip(&dims) {
        same_shape(first, index)?;
        if !index.dtype().is_int() {
            return Err(format!("indices are of dtype {}, not integers", index.dtype()).into());
        }
        let size = x.shape()[dim];
        for (position, &i) in outer.iter_mut().zip(index.as_i()?) {
            let inside = usize::try_from(i).ok().filter(|&i| i < size);
            let i = inside.ok_or_else(|| {
                format!("index {i} is out of range for dimension {dim} of size {size}")
            })?;
            *position += i * all[dim];
        }
    }
    let rest = other_axes(&dims, x.rank());
    let shape = first.shape().iter().copied().chain(rest.iter().map(|&d| x.shape()[d])).collect();
    Ok(Positions { shape, outer, inner: offsets(x.shape(), &rest)? })
}

/// r\[i..., j...\] = x[indices_k\[i...\] at dims\[k\], j... elsewhere]: NumPy advanced indexing
/// with the index dimensions first. Index tensors are integers of one shape. Err: an index out of
/// [0, size), invalid index tensors or dims.
pub fn gather(x: &Tensor, indices: &[&Tensor], dims: &[i64]) -> Result<Tensor> {
    let at = positions(x, indices, dims)?;
    let mut source = at.outer.iter().flat_map(|&o| at.inner.iter().map(move |&i| o + i));
    take(x, at.shape.clone(), None, |_| Ok(source.next()))
}

/// r = x; for i, j in row-major order: r[indices_k\[i...\] at dims\[k\], j...] kind= updates\[i...,
/// j...\]; the last update wins for `assign`. updates has the shape and dtype of the gather. Err:
/// as [`gather`], invalid updates.
pub fn scatter(
    kind: ScatterKind,
    x: &Tensor,
    updates: &Tensor,
    indices: &[&Tensor],
    dims: &[i64],
) -> Result<Tensor> {
    let at = positions(x, indices, dims)?;
    has_shape("updates", updates, &at.shape)?;
    same_dtype(x, updates)?;
    fn run<E: Element>(
        kind: ScatterKind,
        at: &Positions,
        dtype: DType,
        x: &[E],
        updates: &[E],
    ) -> Vec<E> {
        let mut out = x.to_vec();
        let kind = match kind {
            ScatterKind::Assign => None,
            ScatterKind::Add => Some(CumulativeKind::Sum),
            ScatterKind::Mul => Some(CumulativeKind::Prod),
            ScatterKind::Max => Some(CumulativeKind::Max),
            ScatterKind::Min => Some(CumulativeKind::Min),
        };
        let targets = at.outer.iter().flat_map(|&o| at.inner.iter().map(move |&i| o + i));
        for (target, &update) in targets.zip(updates) {
            out[target] = kind.map_or(update, |kind| out[target].combine(kind, update, dtype));
        }
        out
    }
    let data = both_data!(x, updates, v, w => run(kind, &at, x.dtype(), v, w));
    Tensor::new(x.dtype(), x.shape().to_vec(), data)
}

/// The linear offset of a slice, its starts clamped so that it fits.
fn clamped_start(x: &Tensor, starts: &[&Tensor], sizes: &[usize]) -> Result<usize> {
    same_rank("starts", starts.len(), x.rank())?;
    same_rank("sizes", sizes.len(), x.rank())?;
    let mut position = 0;
    for (k, stride) in x.strides().into_iter().enumerate() {
        has_shape("a start", starts[k], &[])?;
        if !starts[k].dtype().is_int() {
            return Err(
                format!("start {k} is of dtype {}, not an integer", starts[k].dtype()).into()
            );
        }
        let (size, bound) = (sizes[k], x.shape()[k]);
        let room = bound
            .checked_sub(size)
            .ok_or_else(|| format!("size {size} exceeds dimension {k} of size {bound}"))?;
        let start = starts[k].as_i()?.first().copied().unwrap_or(0);
        position += usize::try_from(start).unwrap_or(0).min(room) * stride;
    }
    Ok(position)
}

/// r\[i\] = x[clamp(start, 0, size(x) - size(r)) + i], one 0-d integer start per dimension
/// (StableHLO dynamic_slice). Err: a size above x's, invalid starts.
pub fn dynamic_slice(x: &Tensor, starts: &[&Tensor], sizes: &[i64]) -> Result<Tensor> {
    let sizes = to_sizes(sizes)?;
    let start = clamped_start(x, starts, &sizes)?;
    let all = x.strides();
    take(x, sizes, None, |index| Ok(Some(start + dot(index, &all))))
}

/// A copy of x with a slice at clamped starts replaced by `update` (StableHLO
/// dynamic_update_slice). Err: dtypes differ, a size of update above x's, invalid starts.
pub fn dynamic_update_slice(x: &Tensor, update: &Tensor, starts: &[&Tensor]) -> Result<Tensor> {
    has_dtype("update", update, x.dtype())?;
    let start = clamped_start(x, starts, update.shape())?;
    replaced(x, update, start)
}

/// x with the slice at this linear offset replaced by `update`.
fn replaced(x: &Tensor, update: &Tensor, start: usize) -> Result<Tensor> {
    fn run<E: Element>(
        x: &[E],
        update: &[E],
        start: usize,
        all: &[usize],
        shape: &[usize],
    ) -> Result<Vec<E>> {
        let mut out = x.to_vec();
        let inner = strides(shape);
        for_each_index(shape, |index| {
            out[start + dot(index, all)] = update[dot(index, &inner)];
            Ok(())
        })?;
        Ok(out)
    }
    let data = both_data!(x, update, v, w => run(v, w, start, &x.strides(), update.shape())?);
    Tensor::new(x.dtype(), x.shape().to_vec(), data)
}

/// Moves the offset of a slice of this shape along an axis by a 0-d integer, so far that the slice
/// stays within `sizes`. Err: no such axis, or no 0-d integer.
pub fn move_slice(
    offsets: &mut [i64],
    start: &Tensor,
    axis: i64,
    shape: &[usize],
    sizes: &[i64],
) -> Result<()> {
    let [start] = start.as_i()? else { return Err("start has several elements".into()) };
    let k = usize::try_from(axis).map_err(|_| "has a negative axis")?;
    let (Some(offset), Some(n), Some(size)) = (offsets.get_mut(k), shape.get(k), sizes.get(k))
    else {
        return Err(format!("has no dimension {axis}").into());
    };
    *offset += (*start).min(size - *n as i64 - *offset).max(0);
    Ok(())
}

/// `dest`, or zeros of these sizes, with the slice at `offsets` replaced by `source`. Err: dtypes,
/// ranks or sizes differ, a slice out of bounds.
pub fn insert_slice(
    source: &Tensor,
    dest: Option<&Tensor>,
    offsets: &[i64],
    sizes: &[i64],
) -> Result<Tensor> {
    let shape = to_sizes(sizes)?;
    let zero = if source.dtype().is_float() {
        Tensor::scalar_f(source.dtype(), 0.0)?
    } else {
        Tensor::scalar_i(source.dtype(), 0)?
    };
    let x = dest.map_or_else(|| Tensor::full(&zero, shape.clone()), |w| Ok(w.clone()))?;
    has_shape("the dest", &x, &shape)?;
    has_dtype("the source", source, x.dtype())?;
    same_rank("offsets", offsets.len(), x.rank())?;
    same_rank("sizes of the source", source.rank(), x.rank())?;
    let mut start = 0;
    for (k, stride) in x.strides().into_iter().enumerate() {
        let (size, bound) = (source.shape()[k], x.shape()[k]);
        let offset = usize::try_from(offsets[k])
            .ok()
            .filter(|o| o.checked_add(size).is_some_and(|end| end <= bound));
        start += stride
            * offset.ok_or_else(|| {
                format!("offset {} and size {size} leave dimension {k} of size {bound}", offsets[k])
            })?;
    }
    replaced(&x, source, start)
}
