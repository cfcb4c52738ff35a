//! Attention from its log-sum-exp.
use super::rule::Rule;
use crate::decompose::{
    attention_gradient::{AttentionBackward, attention_gradients, row_sums},
    tools::Math,
};
use kiln_dialects::{ir::*, ops::*};

/// From the log-sum-exp where the op has no more than scores, a constant bias and a causal mask;
/// else by the decomposition, which keeps the weights.
pub(super) fn attention(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<Attention>()?;
    let plain = r.op.regions().iter().all(|region| region.is_empty())
        && o.query_lengths.or(o.key_lengths).is_none()
        && o.dropout_p == 0.0
        && !o.bias.is_some_and(|bias| r.wants(bias))
        && o.query.ty().dims()[1].known().zip(o.key.ty().dims()[1].known()).is_some();
    let (Some(g), None) = (r.cotangent_of(0), r.cotangent_of(1)) else { return r.decompose() };
    if !plain || o.unsafe_softmax {
        return r.decompose();
    }
    let (result, lse) = with_log_sum_exp(r.op, &o)?;
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

/// The result of an attention and the log-sum-exp of its scores; an op without it gives way to one
/// that has it.
fn with_log_sum_exp(op: Op, o: &Attention) -> Result<(Value, Value)> {
    if o.with_lse {
        return Ok((op.result(0), op.result(1)));
    }
    let b = Builder::before(op).ok_or("is in no block")?;
    let made = b.create_node(&Attention { with_lse: true, ..o.clone() })?;
    let result = Math { b: &b }.retype(made.result(0), op.result(0).ty())?;
    op.result(0).replace_uses(result);
    Ok((result, made.result(1)))
}
