//! Statistics along dims.

use crate::{
    error::Result,
    reference::shape::{axes, offsets, other_axes},
    value::Tensor,
};

/// Groups of elements that reduce to one, and the shape of the result.
fn statistic(
    x: &Tensor,
    dims: &[i64],
    keep_dims: bool,
    f: impl Fn(&[f64]) -> f64,
) -> Result<Tensor> {
    let v = x.as_f()?;
    let dims = axes(dims, x.rank())?;
    let free = other_axes(&dims, x.rank());
    let inner = offsets(x.shape(), &dims)?;
    let at = |o: usize| inner.iter().map(|i| v[o + i]).collect::<Vec<f64>>();
    let values = offsets(x.shape(), &free)?.into_iter().map(|o| f(&at(o))).collect();
    let shape = if keep_dims {
        x.shape()
            .iter()
            .enumerate()
            .map(|(k, &size)| if dims.contains(&k) { 1 } else { size })
            .collect()
    } else {
        free.iter().map(|&d| x.shape()[d]).collect()
    };
    Tensor::floats(x.dtype(), shape, values)
}

/// sum x / n; NaN of no elements.
pub fn mean_of(v: &[f64]) -> f64 {
    v.iter().sum::<f64>() / v.len() as f64
}

/// sum (x - mean x)^2 / max(n - correction, 0).
pub fn variance_of(v: &[f64], correction: f64) -> f64 {
    let mean = mean_of(v);
    let divisor = (v.len() as f64 - correction).max(0.0);
    v.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / divisor
}

/// r = sum x / n along dims, which are dropped, or kept as unit dimensions under keep_dims
/// (torch.mean); NaN of no elements. Err: not a float dtype, a dim out of range or repeated.
pub fn mean(x: &Tensor, dims: &[i64], keep_dims: bool) -> Result<Tensor> {
    statistic(x, dims, keep_dims, mean_of)
}

/// r = sum (x - mean x)^2 / max(n - correction, 0) along dims (torch.var). Err: as [`mean`].
pub fn var(x: &Tensor, dims: &[i64], keep_dims: bool, correction: f64) -> Result<Tensor> {
    statistic(x, dims, keep_dims, |v| variance_of(v, correction))
}

/// r = sqrt(var x) along dims (torch.std). Err: as [`mean`].
pub fn std(x: &Tensor, dims: &[i64], keep_dims: bool, correction: f64) -> Result<Tensor> {
    statistic(x, dims, keep_dims, |v| variance_of(v, correction).sqrt())
}
