//! Creation and data movement.

use crate::{
    error::Result,
    reference::shape::{
        axes, axis, dot, for_each_index, has_shape, same_dtype, same_rank, sizes as to_sizes,
        steps, take,
    },
    value::{DType, Data, Tensor, count},
};

/// r\[...\] = value, a 0-d tensor. Err: value is not 0-d, a negative size.
pub fn splat(value: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    Tensor::full(value, to_sizes(sizes)?)
}

/// r\[i...\] = i\[axis\]; integers wrap around. Err: axis out of range, a negative size.
pub fn iota(dtype: DType, sizes: &[i64], along: i64) -> Result<Tensor> {
    let shape = to_sizes(sizes)?;
    let along = axis(along, shape.len())?;
    let mut positions = Vec::with_capacity(count(&shape)?);
    for_each_index(&shape, |index| {
        positions.push(index[along] as i64);
        Ok(())
    })?;
    let data = if dtype.is_float() {
        Data::F(positions.into_iter().map(|i| i as f64).collect())
    } else {
        Data::I(positions.into_iter().map(|i| dtype.wrap(i)).collect())
    };
    Tensor::new(dtype, shape, data)
}

/// Dimension k of x becomes dims\[k\] of the result; new and unit dimensions repeat (StableHLO
/// broadcast_in_dim, dims ascending). Err: dims not ascending, a size of x neither 1 nor the
/// result's.
pub fn broadcast_in_dim(x: &Tensor, dims: &[i64], sizes: &[i64]) -> Result<Tensor> {
    let shape = to_sizes(sizes)?;
    same_rank("dims", dims.len(), x.rank())?;
    let dims = axes(dims, shape.len())?;
    if !dims.is_sorted() {
        return Err(format!("dims {dims:?} do not ascend").into());
    }
    let mut strides = vec![0; shape.len()];
    for (k, (&dim, stride)) in dims.iter().zip(x.strides()).enumerate() {
        match x.shape()[k] {
            1 => {}
            size if size == shape[dim] => strides[dim] = stride,
            size => {
                return Err(format!(
                    "dimension {k} of size {size} does not broadcast to size {}",
                    shape[dim]
                )
                .into());
            }
        }
    }
    take(x, shape, None, |index| Ok(Some(dot(index, &strides))))
}

/// The same elements in row-major order. Err: the number of elements differs.
pub fn reshape(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    x.clone().with_shape(to_sizes(sizes)?)
}

/// Permutes dimensions: size(r, k) = size(x, permutation\[k\]). Err: not a permutation.
pub fn transpose(x: &Tensor, permutation: &[i64]) -> Result<Tensor> {
    same_rank("permutation entries", permutation.len(), x.rank())?;
    let permutation = axes(permutation, x.rank())?;
    let all = x.strides();
    let strides: Vec<usize> = permutation.iter().map(|&p| all[p]).collect();
    let shape = permutation.iter().map(|&p| x.shape()[p]).collect();
    take(x, shape, None, |index| Ok(Some(dot(index, &strides))))
}

/// r\[i...\] = x[offsets + i * strides]. Err: a stride below 1, an element out of bounds.
pub fn slice(x: &Tensor, offsets: &[i64], sizes: &[i64], strides: &[i64]) -> Result<Tensor> {
    same_rank("offsets", offsets.len(), x.rank())?;
    same_rank("sizes", sizes.len(), x.rank())?;
    steps("strides", strides, x.rank())?;
    let shape = to_sizes(sizes)?;
    for (k, &bound) in x.shape().iter().enumerate() {
        let (first, bound) = (i128::from(offsets[k]), bound as i128);
        let last = first + (i128::from(sizes[k]) - 1) * i128::from(strides[k]);
        if first < 0 || first > bound || last >= bound {
            return Err(format!(
                "offset {}, size {} and stride {} leave dimension {k} of size {bound}",
                offsets[k], sizes[k], strides[k]
            )
            .into());
        }
    }
    let all = x.strides();
    take(x, shape, None, |index| {
        let at = |k: usize| (offsets[k] as usize + index[k] * strides[k] as usize) * all[k];
        Ok(Some((0..index.len()).map(at).sum()))
    })
}

/// r\[i\] = x[i - low] in bounds, the 0-d value elsewhere; size(r) = low + size(x) + high, negative
/// counts crop. Err: value not 0-d or of another dtype, a negative size.
pub fn pad(x: &Tensor, value: &Tensor, low: &[i64], high: &[i64]) -> Result<Tensor> {
    has_shape("the padding value", value, &[])?;
    same_dtype(x, value)?;
    same_rank("low counts", low.len(), x.rank())?;
    same_rank("high counts", high.len(), x.rank())?;
    let mut shape = vec![];
    for (k, &size) in x.shape().iter().enumerate() {
        let padded = low[k] as i128 + size as i128 + high[k] as i128;
        shape.push(
            usize::try_from(padded)
                .map_err(|_| format!("dimension {k} would have size {padded}"))?,
        );
    }
    let all = x.strides();
    take(x, shape, Some(value), |index| {
        let mut position = 0;
        for (k, &i) in index.iter().enumerate() {
            match usize::try_from(i as i128 - low[k] as i128) {
                Ok(i) if i < x.shape()[k] => position += i * all[k],
                _ => return Ok(None),
            }
        }
        Ok(Some(position))
    })
}

/// Concatenates tensors along one axis. Err: no inputs, dtypes or other sizes differ, axis out of
/// range.
pub fn concat(inputs: &[&Tensor], along: i64) -> Result<Tensor> {
    let first = inputs.first().ok_or("nothing to join")?;
    let along = axis(along, first.rank())?;
    let mut shape = first.shape().to_vec();
    shape[along] = 0;
    for (k, input) in inputs.iter().enumerate() {
        same_dtype(first, input)?;
        let fits = |(d, (a, b)): (usize, (&usize, &usize))| d == along || a == b;
        if input.rank() != first.rank()
            || !input.shape().iter().zip(first.shape()).enumerate().all(fits)
        {
            return Err(format!(
                "input {k} of shape {:?} does not fit {:?}",
                input.shape(),
                first.shape()
            )
            .into());
        }
        shape[along] += input.shape()[along];
    }
    if count(&shape)? == 0 {
        return take(first, shape, None, |_| Ok(None));
    }
    let outer: usize = shape[..along].iter().product();
    let inner: usize = shape[along + 1..].iter().product();
    // For each index of the leading dimensions, one contiguous run of every input.
    let runs = (0..outer).flat_map(|o| {
        inputs
            .iter()
            .map(move |t| (t, o * t.shape()[along] * inner..(o + 1) * t.shape()[along] * inner))
    });
    let data = match first.data() {
        Data::F(_) => {
            let mut out = vec![];
            runs.into_iter()
                .try_for_each(|(t, run)| t.as_f().map(|v| out.extend_from_slice(&v[run])))?;
            Data::F(out)
        }
        Data::I(_) => {
            let mut out = vec![];
            runs.into_iter()
                .try_for_each(|(t, run)| t.as_i().map(|v| out.extend_from_slice(&v[run])))?;
            Data::I(out)
        }
    };
    Tensor::new(first.dtype(), shape, data)
}

/// r\[i\] = x[size - 1 - i] along dims. Err: a dim out of range or repeated.
pub fn reverse(x: &Tensor, dims: &[i64]) -> Result<Tensor> {
    let dims = axes(dims, x.rank())?;
    let all = x.strides();
    let shape = x.shape().to_vec();
    take(x, shape.clone(), None, |index| {
        let at = |k: usize| if dims.contains(&k) { shape[k] - 1 - index[k] } else { index[k] };
        Ok(Some((0..index.len()).map(|k| at(k) * all[k]).sum()))
    })
}
