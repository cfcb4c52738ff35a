//! Scaled dot-product attention.

use crate::{
    error::Result,
    reference::{
        norm::max_of,
        random::Draws,
        shape::{broadcast_strides, dot, has_shape},
    },
    value::{DType, Tensor, count},
};

/// The score function: scaled score and indices (b, h, q, k) to a new score.
pub type ScoreFn<'a> = &'a mut dyn FnMut(f64, [i64; 4]) -> Result<f64>;
/// The mask function: whether (b, h, q, k) is attended to.
pub type MaskFn<'a> = &'a mut dyn FnMut([i64; 4]) -> Result<bool>;

/// Options of kiln.attention; the default is plain attention.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionParams<'a> {
    /// Added to the scaled scores; broadcasts to \[B, H, Q, K\].
    pub bias: Option<&'a Tensor>,
    /// \[B\], integers: queries past the length give 0.
    pub query_lengths: Option<&'a Tensor>,
    /// \[B\], integers: keys past the length are masked.
    pub key_lengths: Option<&'a Tensor>,
    /// tensor<2xi64>.
    pub dropout_key: Option<&'a Tensor>,
    /// The op's `dropout_p`.
    pub dropout_p: f64,
    /// 1/sqrt(D) if absent.
    pub scale: Option<f64>,
    /// Causal mask: query i attends to keys j <= i.
    pub causal: bool,
    /// Also returns the log-sum-exp of the scores, \[B, H, Q\] in f32 (f64 for f64).
    pub with_lse: bool,
    /// Fully masked rows are NaN instead of 0.
    pub unsafe_softmax: bool,
}

/// The sizes of query \[B, H, Q, D\], key \[B, G, K, D\] and value \[B, G, K, E\].
pub(super) struct Sizes {
    pub(super) b: usize,
    pub(super) h: usize,
    pub(super) q: usize,
    pub(super) d: usize,
    pub(super) g: usize,
    pub(super) k: usize,
    pub(super) e: usize,
    /// Query heads of a key head.
    pub(super) per_group: usize,
}

impl Sizes {
    /// Err: invalid shapes, G does not divide H.
    pub(super) fn of(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Sizes> {
        let (&[b, h, q, d], &[_, g, k, _], &[.., e]) = (query.shape(), key.shape(), value.shape())
        else {
            return Err(
                format!("query {:?} and key {:?} are not 4-d", query.shape(), key.shape()).into()
            );
        };
        has_shape("key", key, &[b, g, k, d])?;
        has_shape("value", value, &[b, g, k, e])?;
        if h > 0 && (g == 0 || h % g != 0) {
            return Err(format!("{g} key heads do not divide {h} query heads").into());
        }
        Ok(Sizes { b, h, q, d, g, k, e, per_group: (h / g.max(1)).max(1) })
    }
}

/// r[b, h, q, :] = softmax over k of (score(scale * q . k + bias), where not masked) * v[b, h /
/// (H/G), k, :], with query \[B, H, Q, D\], key \[B, G, K, D\], value \[B, G, K, E\]. The result is
/// \[B, H, Q, E\] in the query's dtype, with the log-sum-exp on request.
///
/// Rows past a query's length and fully masked rows (or scores of -inf only) are 0, or NaN with
/// `unsafe_softmax`; their log-sum-exp is -inf. Dropout is kiln.dropout over \[B, H, Q, K\] (Vaswani et al., 2017; Ainslie
/// et al., 2023; FlexAttention).
///
/// Err: invalid shapes or dtypes, G does not divide H, dropout without a key, an error of a region.
pub fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    p: &AttentionParams<'_>,
    mut score: Option<ScoreFn<'_>>,
    mut mask: Option<MaskFn<'_>>,
) -> Result<(Tensor, Option<Tensor>)> {
    let Sizes { b, h, q, d, g, k, e, per_group } = Sizes::of(query, key, value)?;
    let (qs, ks, vs) = (query.as_f()?, key.as_f()?, value.as_f()?);
    let target = [b, h, q, k];
    count(&target)?;
    let bias = p
        .bias
        .map(|t| Ok::<_, String>((t.as_f()?, broadcast_strides(t.shape(), &target)?)))
        .transpose()?;
    let query_lengths = p.query_lengths.map(|t| lengths(t, b)).transpose()?;
    let key_lengths = p.key_lengths.map(|t| lengths(t, b)).transpose()?;
    let draws = match (p.dropout_key, p.dropout_p) {
        (_, p) if !(0.0..=1.0).contains(&p) => {
            return Err(format!("dropout_p {p} is outside of [0, 1]").into());
        }
        (Some(key), _) => Some(Draws::new(key)?),
        (None, p) if p > 0.0 => return Err(format!("dropout_p {p} without a dropout key").into()),
        _ => None,
    };
    let scale = p.scale.unwrap_or(1.0 / (d as f64).sqrt());
    let mut out = vec![0.0; count(&[b, h, q, e])?];
    let mut lse = vec![f64::NEG_INFINITY; count(&[b, h, q])?];
    for row in 0..lse.len() {
        let (bi, hi, qi) = (row / q / h, row / q % h, row % q);
        let mut mask_row = || {
            if p.unsafe_softmax {
                out[row * e..(row + 1) * e].fill(f64::NAN);
            }
        };
        if query_lengths.is_some_and(|lengths| qi as i64 >= lengths[bi]) {
            mask_row();
            continue;
        }
        let group = (bi * g + hi / per_group) * k;
        // The unmasked keys with their scores.
        let mut seen = vec![];
        for ki in 0..k {
            let at = [bi as i64, hi as i64, qi as i64, ki as i64];
            let hidden =
                (p.causal && ki > qi) || key_lengths.is_some_and(|lengths| at[3] >= lengths[bi]);
            if hidden || !mask.as_mut().map_or(Ok(true), |mask| mask(at))? {
                continue;
            }
            let product: f64 = (0..d).map(|i| qs[row * d + i] * ks[(group + ki) * d + i]).sum();
            let bias = bias.as_ref().map_or(0.0, |(v, strides)| v[dot(&[bi, hi, qi, ki], strides)]);
            let scaled = scale * product + bias;
            seen.push((ki, score.as_mut().map_or(Ok(scaled), |score| score(scaled, at))?));
        }
        let max = max_of(seen.iter().map(|&(_, s)| s));
        if max == f64::NEG_INFINITY {
            mask_row();
            continue;
        }
        let sum: f64 = seen.iter().map(|&(_, s)| libm::exp(s - max)).sum();
        lse[row] = max + libm::log(sum);
        for (ki, s) in seen {
            let mut weight = libm::exp(s - max) / sum;
            if let Some(draws) = draws {
                let kept = draws.uniform_f32(row * k + ki) >= p.dropout_p;
                weight = if kept { weight / (1.0 - p.dropout_p) } else { 0.0 };
            }
            for i in 0..e {
                out[row * e + i] += weight * vs[(group + ki) * e + i];
            }
        }
    }
    let result = Tensor::floats(query.dtype(), vec![b, h, q, e], out)?;
    let lse_dtype = if query.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let lse = p.with_lse.then(|| Tensor::floats(lse_dtype, vec![b, h, q], lse)).transpose()?;
    Ok((result, lse))
}

/// The lengths of a batch. Err: not \[B\], not integers.
fn lengths(tensor: &Tensor, batch: usize) -> Result<&[i64]> {
    has_shape("lengths", tensor, &[batch])?;
    if !tensor.dtype().is_int() {
        return Err(format!("lengths are of dtype {}, not integers", tensor.dtype()).into());
    }
    tensor.as_i()
}
