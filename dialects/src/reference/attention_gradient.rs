//! Derivatives of scaled dot-product attention.

use crate::{
    error::Result,
    reference::{attention::Sizes, shape::has_shape},
    value::{Tensor, count},
};

/// What kiln.attention_gradient takes beside queries, keys, values and the cotangent.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradientParams<'a> {
    /// \[B, H, Q\]: the log-sum-exp of the scores.
    pub lse: &'a Tensor,
    /// \[B, H, Q\]: the sums of cotangent times result.
    pub delta: &'a Tensor,
    /// 1/sqrt(D) if absent.
    pub scale: Option<f64>,
    /// Causal mask: query i attends to keys j <= i.
    pub causal: bool,
    /// Gives the derivatives by key and value instead of the one by query.
    pub by_keys: bool,
}

/// Derivatives of attention of query \[B, H, Q, D\], key \[B, G, K, D\], value \[B, G, K, E\] by
/// the query, or by key and value, given the result's `cotangent` \[B, H, Q, E\]: the weights again
/// from the log-sum-exp of the scores (Dao et al., FlashAttention, 2022, algorithm 4).
///
/// Err: invalid shapes or dtypes, G does not divide H.
pub fn attention_gradient(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    cotangent: &Tensor,
    p: &AttentionGradientParams<'_>,
) -> Result<Vec<Tensor>> {
    let Sizes { b, h, q, d, g, k, e, per_group } = Sizes::of(query, key, value)?;
    has_shape("cotangent", cotangent, &[b, h, q, e])?;
    has_shape("lse", p.lse, &[b, h, q])?;
    has_shape("delta", p.delta, &[b, h, q])?;
    let (qs, ks, vs, cs) = (query.as_f()?, key.as_f()?, value.as_f()?, cotangent.as_f()?);
    let (lse, delta) = (p.lse.as_f()?, p.delta.as_f()?);
    let scale = p.scale.unwrap_or(1.0 / (d as f64).sqrt());
    let mut by_query = vec![0.0; count(&[b, h, q, d])?];
    let mut by_key = vec![0.0; count(&[b, g, k, d])?];
    let mut by_value = vec![0.0; count(&[b, g, k, e])?];
    let dot = |x: &[f64], i: usize, y: &[f64], j: usize, n: usize| -> f64 {
        (0..n).map(|c| x[i * n + c] * y[j * n + c]).sum()
    };
    for row in (0..lse.len()).filter(|row| lse[*row] != f64::NEG_INFINITY) {
        let (bi, hi, qi) = (row / q / h, row / q % h, row % q);
        let seen = if p.causal { k.min(qi + 1) } else { k };
        for at in (0..seen).map(|ki| (bi * g + hi / per_group) * k + ki) {
            let weight = libm::exp(scale * dot(qs, row, ks, at, d) - lse[row]);
            let score = scale * weight * (dot(cs, row, vs, at, e) - delta[row]);
            for c in 0..d {
                by_query[row * d + c] += score * ks[at * d + c];
                by_key[at * d + c] += score * qs[row * d + c];
            }
            for c in 0..e {
                by_value[at * e + c] += weight * cs[row * e + c];
            }
        }
    }
    let like = |t: &Tensor, all: Vec<f64>| Tensor::floats(t.dtype(), t.shape().to_vec(), all);
    if p.by_keys {
        return Ok(vec![like(key, by_key)?, like(value, by_value)?]);
    }
    Ok(vec![like(query, by_query)?])
}
