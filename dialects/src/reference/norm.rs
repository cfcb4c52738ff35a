//! Normalisations. All tensors are floats; the result has x's dtype.

use crate::{
    error::Result,
    reference::{
        shape::{Lines, has_shape, lines},
        statistic::{mean_of, variance_of},
    },
    value::{Tensor, count},
};

/// Element k of an optional tensor; the identity if there is none.
fn element(tensor: Option<&[f64]>, k: usize, neutral: f64) -> f64 {
    tensor.map_or(neutral, |v| v[k])
}

/// The elements of an optional float tensor. Err: another shape, not a float dtype.
fn optional<'a>(
    what: &str,
    tensor: Option<&'a Tensor>,
    shape: &[usize],
) -> Result<Option<&'a [f64]>> {
    tensor.map(|t| has_shape(what, t, shape).and_then(|()| t.as_f())).transpose()
}

/// The last `rank` sizes. Err: rank not in 1..=rank of x.
fn last_sizes(x: &Tensor, rank: i64) -> Result<&[usize]> {
    let lead = usize::try_from(rank)
        .ok()
        .filter(|&rank| rank > 0)
        .and_then(|rank| x.rank().checked_sub(rank));
    lead.map(|lead| &x.shape()[lead..])
        .ok_or_else(|| format!("{rank} dimensions to normalise of shape {:?}", x.shape()).into())
}

/// Contiguous runs of `size` elements; none for an empty tensor.
fn runs(v: &[f64], size: usize) -> std::slice::ChunksExact<'_, f64> {
    v.chunks_exact(size.max(1))
}

/// r = (x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias over the last `rank` dimensions, with
/// biased variance; weight and bias have these dimensions (Ba et al., 2016). Err: rank not in
/// 1..=rank of x, invalid shapes, not a float dtype.
pub fn layer_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    rank: i64,
    epsilon: f64,
) -> Result<Tensor> {
    let inner = last_sizes(x, rank)?;
    let (weight, bias) = (optional("weight", weight, inner)?, optional("bias", bias, inner)?);
    let mut out = Vec::with_capacity(x.len());
    for run in runs(x.as_f()?, count(inner)?) {
        let (mean, root) = (mean_of(run), (variance_of(run, 0.0) + epsilon).sqrt());
        let scaled = |(k, x): (usize, &f64)| {
            (x - mean) / root * element(weight, k, 1.0) + element(bias, k, 0.0)
        };
        out.extend(run.iter().enumerate().map(scaled));
    }
    Tensor::floats(x.dtype(), x.shape().to_vec(), out)
}

/// C and the number of elements per channel of \[N, C, ...\].
fn channels(x: &Tensor) -> Result<(usize, usize)> {
    match x.shape() {
        [_, c, rest @ ..] => Ok((*c, count(rest)?)),
        shape => Err(format!("input {shape:?} is not [N, C, ...]").into()),
    }
}

/// Normalises \[N, C, ...\] per group of channels, as [`layer_norm`]; weight and bias are \[C\] (Wu
/// and He, 2018). Err: groups do not divide C, invalid shapes, not a float dtype.
pub fn group_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    groups: i64,
    epsilon: f64,
) -> Result<Tensor> {
    let (c, inner) = channels(x)?;
    let parts = usize::try_from(groups).ok().filter(|&g| g > 0 && c % g == 0);
    let parts = parts.ok_or_else(|| format!("{c} channels in {groups} groups"))?;
    let (weight, bias) = (optional("weight", weight, &[c])?, optional("bias", bias, &[c])?);
    let per_group = c / parts;
    let mut out = Vec::with_capacity(x.len());
    for (group, run) in runs(x.as_f()?, per_group * inner).enumerate() {
        let (mean, root) = (mean_of(run), (variance_of(run, 0.0) + epsilon).sqrt());
        let scaled = |(i, x): (usize, &f64)| {
            let k = group % parts * per_group + i / inner;
            (x - mean) / root * element(weight, k, 1.0) + element(bias, k, 0.0)
        };
        out.extend(run.iter().enumerate().map(scaled));
    }
    Tensor::floats(x.dtype(), x.shape().to_vec(), out)
}

/// Statistics and parameters \[C\] of kiln.batch_norm.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormParams<'a> {
    /// The op's `mean`.
    pub mean: &'a Tensor,
    /// The op's `variance`.
    pub variance: &'a Tensor,
    /// The op's `weight`.
    pub weight: Option<&'a Tensor>,
    /// The op's `bias`.
    pub bias: Option<&'a Tensor>,
    /// The op's `epsilon`.
    pub epsilon: f64,
}

/// r = (x - mean) / sqrt(variance + epsilon) * weight + bias on \[N, C, ...\] with running
/// statistics \[C\] (Ioffe and Szegedy, 2015, inference). Err: invalid shapes, not a float dtype.
pub fn batch_norm(x: &Tensor, p: &BatchNormParams<'_>) -> Result<Tensor> {
    let (c, inner) = channels(x)?;
    let (weight, bias) = (optional("weight", p.weight, &[c])?, optional("bias", p.bias, &[c])?);
    let (mean, variance) =
        (optional("mean", Some(p.mean), &[c])?, optional("variance", Some(p.variance), &[c])?);
    let scaled = |(i, x): (usize, &f64)| {
        let k = i / inner % c;
        let root = (element(variance, k, 1.0) + p.epsilon).sqrt();
        (x - element(mean, k, 0.0)) / root * element(weight, k, 1.0) + element(bias, k, 0.0)
    };
    Tensor::floats(
        x.dtype(),
        x.shape().to_vec(),
        x.as_f()?.iter().enumerate().map(scaled).collect(),
    )
}

/// r = x / sqrt(mean(x^2) + epsilon) * weight over the last `rank` dimensions, which are weight's
/// (Zhang and Sennrich, 2019). Err: as [`layer_norm`].
pub fn rms_norm(x: &Tensor, weight: Option<&Tensor>, rank: i64, epsilon: f64) -> Result<Tensor> {
    let inner = last_sizes(x, rank)?;
    let weight = optional("weight", weight, inner)?;
    let mut out = Vec::with_capacity(x.len());
    for run in runs(x.as_f()?, count(inner)?) {
        let root = (run.iter().map(|x| x * x).sum::<f64>() / run.len() as f64 + epsilon).sqrt();
        out.extend(run.iter().enumerate().map(|(k, x)| x / root * element(weight, k, 1.0)));
    }
    Tensor::floats(x.dtype(), x.shape().to_vec(), out)
}

/// The maximum, NaN if any element is; -inf of no elements.
pub fn max_of(v: impl Iterator<Item = f64>) -> f64 {
    v.fold(f64::NEG_INFINITY, super::element::Element::maximum)
}

/// Applies `f` to every line along one axis.
fn per_line(x: &Tensor, axis: i64, f: impl Fn(&[f64]) -> Vec<f64>) -> Result<Tensor> {
    let v = x.as_f()?;
    let Lines { starts, size, step } = lines(x.shape(), axis)?;
    let mut out = v.to_vec();
    for start in starts {
        let line: Vec<f64> = (0..size).map(|i| v[start + i * step]).collect();
        for (i, value) in f(&line).into_iter().enumerate() {
            out[start + i * step] = value;
        }
    }
    Tensor::floats(x.dtype(), x.shape().to_vec(), out)
}

/// r = e^(x - max x) / sum of e^(x - max x) along one axis (torch.softmax). `safe`: 0 where all are
/// -inf. Err: axis out of range, not a float dtype.
pub fn softmax(x: &Tensor, axis: i64, safe: bool) -> Result<Tensor> {
    per_line(x, axis, |line| {
        if safe && line.iter().all(|x| *x == f64::NEG_INFINITY) {
            return vec![0.0; line.len()];
        }
        let max = max_of(line.iter().copied());
        let powers: Vec<f64> = line.iter().map(|x| libm::exp(x - max)).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(|power| power / sum).collect()
    })
}

/// r = x - max x - ln(sum of e^(x - max x)) along one axis (torch.log_softmax). Err: axis out of
/// range, not a float dtype.
pub fn log_softmax(x: &Tensor, axis: i64) -> Result<Tensor> {
    per_line(x, axis, |line| {
        let max = max_of(line.iter().copied());
        let log = libm::log(line.iter().map(|x| libm::exp(x - max)).sum());
        line.iter().map(|x| x - max - log).collect()
    })
}
