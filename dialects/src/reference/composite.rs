//! Matmul, linear, embedding, dropout and resizing.

use crate::{
    error::Result,
    reference::{
        element::{Element, both_data},
        random::Draws,
        shape::{
            broadcast_shapes, broadcast_strides, dot, for_each_index, has_shape, same_dtype,
            sizes as to_sizes, take,
        },
    },
    value::{DType, Tensor, count},
};

/// r\[..., n\] = sum over k of x\[..., k\] * w\[n, k\] + bias\[n\], with x \[..., K\], weight \[N,
/// K\], bias \[N\] (torch.nn.functional.linear). Err: dtypes differ, invalid shapes.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    same_dtype(x, weight)?;
    let (&[n, k], Some((&last, rows))) = (weight.shape(), x.shape().split_last()) else {
        return Err(format!(
            "input {:?} and weight {:?} are not [..., K] and [N, K]",
            x.shape(),
            weight.shape()
        )
        .into());
    };
    if last != k {
        return Err(format!("input has {last} features, weight has {k}").into());
    }
    let shape = [rows, &[n]].concat();
    if let Some(bias) = bias {
        same_dtype(x, bias)?;
        has_shape("bias", bias, &[n])?;
    }
    fn run<E: Element>(
        x: &[E],
        w: &[E],
        bias: Option<&[E]>,
        [rows, n, k]: [usize; 3],
        dtype: DType,
    ) -> Vec<E> {
        let mut out = Vec::with_capacity(rows * n);
        for row in 0..rows {
            for column in 0..n {
                let product = |i: usize| x[row * k + i].mul(w[column * k + i], dtype);
                let sum = (0..k).fold(E::ZERO, |sum, i| sum.add(product(i), dtype));
                out.push(bias.map_or(sum, |bias| sum.add(bias[column], dtype)));
            }
        }
        out
    }
    count(&shape)?;
    let sizes = [count(rows)?, n, k];
    let (bias_f, bias_i) = (bias.and_then(|b| b.as_f().ok()), bias.and_then(|b| b.as_i().ok()));
    let data = match x.as_f() {
        Ok(v) => crate::value::Data::F(run(v, weight.as_f()?, bias_f, sizes, x.dtype())),
        Err(_) => crate::value::Data::I(run(x.as_i()?, weight.as_i()?, bias_i, sizes, x.dtype())),
    };
    Tensor::new(x.dtype(), shape, data)
}

/// r\[..., m, n\] = sum over k of x\[..., m, k\] * y\[..., k, n\]. Batch dimensions broadcast; a
/// 1-d operand is a row on the left, a column on the right, and its dimension is dropped
/// (torch.matmul). Err: dtypes differ, a 0-d operand, invalid shapes.
pub fn matmul(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    same_dtype(x, y)?;
    let failure = || format!("shapes {:?} and {:?} have no matrix product", x.shape(), y.shape());
    let (left, right) = (x.shape(), y.shape());
    let (x_batch, m, k) = match *left {
        [k] => (&left[..0], 1, k),
        [.., m, k] => (&left[..left.len() - 2], m, k),
        [] => return Err(failure().into()),
    };
    let (y_batch, k2, n) = match *right {
        [k] => (&right[..0], k, 1),
        [.., k, n] => (&right[..right.len() - 2], k, n),
        [] => return Err(failure().into()),
    };
    if k != k2 {
        return Err(failure().into());
    }
    let batch = broadcast_shapes(x_batch, y_batch)?;
    let (x_strides, y_strides) =
        (broadcast_strides(x_batch, &batch)?, broadcast_strides(y_batch, &batch)?);
    let mut shape = batch.clone();
    shape.extend((left.len() > 1).then_some(m));
    shape.extend((right.len() > 1).then_some(n));
    let size = count(&shape)?;
    let mut starts = vec![];
    for_each_index(&batch, |index| {
        starts.push((dot(index, &x_strides) * m * k, dot(index, &y_strides) * k * n));
        Ok(())
    })?;
    let dtype = x.dtype();
    fn run<E: Element>(
        x: &[E],
        y: &[E],
        starts: &[(usize, usize)],
        [m, k, n, size]: [usize; 4],
        dtype: DType,
    ) -> Vec<E> {
        let mut out = Vec::with_capacity(size);
        for &(xs, ys) in starts {
            for row in 0..m {
                for column in 0..n {
                    let product = |i: usize| x[xs + row * k + i].mul(y[ys + i * n + column], dtype);
                    out.push((0..k).fold(E::ZERO, |sum, i| sum.add(product(i), dtype)));
                }
            }
        }
        out
    }
    let data = both_data!(x, y, v, w => run(v, w, &starts, [m, k, n, size], dtype));
    Tensor::new(dtype, shape, data)
}

/// r[i..., :] = weight[indices\[i...\], :] with weight \[V, D\] and integer indices
/// (torch.nn.functional.embedding). Err: an index out of [0, V), weight not 2-d, indices not
/// integers.
pub fn embedding(weight: &Tensor, indices: &Tensor) -> Result<Tensor> {
    let &[rows, width] = weight.shape() else {
        return Err(format!("weight {:?} is not [V, D]", weight.shape()).into());
    };
    if !indices.dtype().is_int() {
        return Err(format!("indices are of dtype {}, not integers", indices.dtype()).into());
    }
    let at = indices.as_i()?;
    let mut element = 0..;
    take(weight, [indices.shape(), &[width]].concat(), None, |_| {
        let i = element.next().unwrap_or(0usize);
        let row = at[i / width];
        let inside = usize::try_from(row).ok().filter(|&row| row < rows);
        let row = inside.ok_or_else(|| format!("index {row} is out of range for {rows} rows"))?;
        Ok(Some(row * width + i % width))
    })
}

/// r = u >= p ? x / (1 - p) : 0, u the kiln.random_uniform (f32) of the key at the element's
/// row-major index (Srivastava et al., 2014). Err: not a float dtype, key not tensor<2xi64>, p out
/// of \[0, 1\].
pub fn dropout(x: &Tensor, key: &Tensor, p: f64) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&p) {
        return Err(format!("probability {p} is outside of [0, 1]").into());
    }
    let draws = Draws::new(key)?;
    let kept = |(i, &x): (usize, &f64)| if draws.uniform_f32(i) >= p { x / (1.0 - p) } else { 0.0 };
    Tensor::floats(x.dtype(), x.shape().to_vec(), x.as_f()?.iter().enumerate().map(kept).collect())
}

/// Nearest-neighbour resize of \[N, C, ...\]: r\[n, c, i\] = x[n, c, min(floor(i * size(x) /
/// size(r)), size(x) - 1)] (torch.nn.functional.interpolate(mode='nearest')). Any dtype. Err: not
/// one size per spatial dimension, a non-positive size for a non-empty dimension.
pub fn interpolate(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    let Some((lead, spatial)) = x.shape().split_at_checked(2) else {
        return Err(format!("input {:?} is not [N, C, ...]", x.shape()).into());
    };
    let sizes = to_sizes(sizes)?;
    if sizes.len() != spatial.len()
        || spatial.iter().zip(&sizes).any(|(&from, &to)| from == 0 && to > 0)
    {
        return Err(format!("spatial dimensions {spatial:?} cannot become {sizes:?}").into());
    }
    let all = x.strides();
    take(x, [lead, &sizes].concat(), None, |index| {
        let source = |k: usize| match k.checked_sub(2) {
            Some(s) => (index[k] * spatial[s] / sizes[s]).min(spatial[s] - 1),
            None => index[k],
        };
        Ok(Some((0..index.len()).map(|k| source(k) * all[k]).sum()))
    })
}
