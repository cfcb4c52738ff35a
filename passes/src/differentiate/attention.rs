//! Attention from its log-sum-exp.
use super::rule::Rule;
use crate::decompose::attention_gradient::{AttentionBackward, attention_gradients, row_sums};
use kiln_dialects::{ir::*, ops::*};

/// From the log-sum-exp where the op gives it and has no more than scores, a constant bias and a
/// causal mask; else by the decomposition, which keeps the weights.
pub(super) fn attention(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<Attention>()?;
    let plain = r.op.regions().iter().all(|region| region.is_empty())
        && o.query_lengths.or(o.key_lengths).is_none()
        && o.dropout_p == 0.0
        && !o.bias.is_some_and(|bias| r.wants(bias))
        && o.query.ty().dims()[1].known().zip(o.key.ty().dims()[1].known()).is_some();
    let (Some(g), None) = (r.cotangent_of(0), r.cotangent_of(1)) else { return r.decompose() };
    if !plain || !o.with_lse || o.unsafe_softmax {
        return r.decompose();
    }
    let (result, lse) = (r.op.result(0), r.op.result(1));
    let made = attention_gradients(
        r.m.b,
        &AttentionBackward {
            query: o.query,
            key: o.key,
            value: o.value,
            bias: o.bias,
            lse: Some(lse),
            cotangent: g,
            delta: row_sums(r.m.b, g, result)?,
            scale: o.scale,
            causal: o.causal,
        },
    )?;
    for (x, v) in [o.query, o.key, o.value].into_iter().zip(made) {
        r.give(x, v)?;
    }
    Ok(())
}
