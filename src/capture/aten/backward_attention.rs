//! Derivatives of attention, as AOTAutograd emits them for processors and GPUs.
use super::{Args, Cx, Outcome, Row, Val, attention::bias_of, tools::*};
use kiln_dialects::ir::*;
use kiln_passes::differentiate::{AttentionBackward, attention_gradients, row_sums};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
        arguments: "grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask=None, scale=None",
        build: |cx, a| {
            let lse = cx.tensor(a, "logsumexp")?;
            let all = gradients(cx, a, "grad_out", "attn_mask", Some(lse))?;
            cx.many(&all)
        },
    },
    Row {
        name: "kiln.attention_gradients.default",
        arguments: "grad_out, query, key, value, out, lse, is_causal=False, scale=None",
        build: |cx, a| {
            let lse = cx.tensor(a, "lse")?;
            let all = gradients(cx, a, "grad_out", "attn_mask", Some(lse))?;
            cx.many(&all)
        },
    },
    Row {
        name: "aten._scaled_dot_product_flash_attention_backward.default",
        arguments: "grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, scale=None",
        build: with_log_sum_exp,
    },
    Row {
        name: "aten._scaled_dot_product_cudnn_attention_backward.default",
        arguments: "grad_out, query, key, value, out, logsumexp, philox_seed, philox_offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, scale=None",
        build: with_log_sum_exp,
    },
    Row {
        name: "aten._scaled_dot_product_efficient_attention_backward.default",
        arguments: "grad_out_, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask, is_causal=False, scale=None",
        build: |cx, a| {
            if let Some(Val::List(mask)) = a.values.get("grad_input_mask")
                && matches!(mask.get(3), Some(Val::Bool(true)))
            {
                return Err("gives no gradient of attn_bias".into());
            }
            let all = gradients(cx, a, "grad_out_", "attn_bias", None)?;
            let mut all: Vec<Val> = all.map(|v| Val::Tensor(cx.store.fresh(v))).into();
            all.push(Val::None);
            Ok(Outcome::Many(all))
        },
    },
];

/// Of ops whose log-sum-exp is `[B, H, Q]`, or with a further dimension of one.
fn with_log_sum_exp(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (query, lse) = (cx.tensor(a, "query")?, cx.tensor(a, "logsumexp")?);
    let rows = cx.b.sizes_of(query)?.into_iter().take(3).collect();
    let lse = cx.reshape(lse, rows)?;
    let all = gradients(cx, a, "grad_out", "attn_bias", Some(lse))?;
    cx.many(&all)
}

/// The gradients by query, key and value. Without the log-sum-exp of the scores, which one GPU kernel
/// has in a layout of its own, it is computed again.
fn gradients(
    cx: &mut Cx,
    a: &Args<'_>,
    cotangent: &str,
    mask: &str,
    lse: Option<Value>,
) -> Result<[Value; 3]> {
    if a.float("dropout_p", Some(0.0))? != 0.0 {
        return Err("with dropout is not supported in an exported graph".into());
    }
    let query = cx.tensor(a, "query")?;
    if rank_of(query) != 4 {
        return Err(format!("wants tensors of rank 4, has rank {}", rank_of(query)).into());
    }
    let d = statistics_dtype(dtype_of(query)?);
    let bias = cx.optional(a, mask)?.map(|mask| bias_of(cx, mask, d)).transpose()?;
    let (result, cotangent) = (cx.tensor(a, "out")?, cx.tensor(a, cotangent)?);
    let o = AttentionBackward {
        query,
        key: cx.tensor(a, "key")?,
        value: cx.tensor(a, "value")?,
        bias,
        lse,
        cotangent,
        delta: row_sums(&cx.b, cotangent, result)?,
        scale: if a.has("scale") { Some(a.float("scale", None)?) } else { None },
        causal: a.flag("is_causal", false)?,
    };
    attention_gradients(&cx.b, &o)
}
