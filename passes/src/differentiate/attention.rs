//! Attention from its log-sum-exp.
use super::rule::Rule;
use crate::{
    decompose::tools::*,
    formula::{Formula, value},
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// An attention and the cotangent of its first result; floats of one dtype, in which the
/// gradients are computed.
pub struct AttentionGradient {
    /// `[B, H, Q, D]`
    pub query: Value,
    /// `[B, G, K, D]`
    pub key: Value,
    /// `[B, G, K, E]`
    pub value: Value,
    /// Added to the scores, of a shape that broadcasts to `[B, H, Q, K]`.
    pub bias: Option<Value>,
    /// The result `[B, H, Q, E]`.
    pub result: Value,
    /// The log-sum-exp of the scores, `[B, H, Q]`; none: it is computed again.
    pub lse: Option<Value>,
    /// The cotangent of the result.
    pub cotangent: Value,
    /// The scale; none: `1 / sqrt(D)`.
    pub scale: Option<f64>,
    /// Whether query i sees keys up to i.
    pub causal: bool,
}

/// The gradients by query, key and value: the weights again from the scores and their
/// log-sum-exp, then the derivatives of both products (Dao et al., FlashAttention, 2022,
/// algorithm 4, without tiles).
pub fn from_log_sum_exp(b: &Builder, o: &AttentionGradient) -> Result<[Value; 3]> {
    let m = Math { b };
    let d = dtype(o.query)?;
    let (heads, groups) = (m.size_of(o.query, 1)?, m.size_of(o.key, 1)?);
    let (k, v) = (repeated(&m, o.key, heads)?, repeated(&m, o.value, heads)?);
    let product = |lhs: Value, rhs: Value, left: i64, right: i64| {
        b.add(&DotGeneral {
            lhs,
            rhs,
            lhs_batch: vec![0, 1],
            rhs_batch: vec![0, 1],
            lhs_contract: vec![left],
            rhs_contract: vec![right],
            element_type: None,
        })
    };
    let scale = match o.scale {
        Some(scale) => b.splat(d, &[], scale)?,
        None => {
            let width = m.number(m.size_of(o.query, 3)?, d)?;
            value(b, |f| 1.0 / f.of(width).sqrt())?
        }
    };
    let products = product(o.query, k, 3, 3)?;
    let sizes = m.sizes_of(products)?;
    let f = Formula::new(b);
    let mut scores = f.of(products) * f.of(scale);
    if let Some(bias) = o.bias {
        scores = scores + f.of(bias);
    }
    if o.causal {
        let (i, j) = (f.of(m.iota(&sizes, 2)?), f.of(m.iota(&sizes, 3)?));
        scores = j.le(i).select(scores, f64::NEG_INFINITY);
    }
    let scores = f.end(scores)?;
    let lse = match o.lse {
        Some(lse) => lse,
        None => log_sum_exp(&m, scores, &sizes)?,
    };
    let row = m.broadcast(lse, &[0, 1, 2], &sizes)?;
    // A row without scores has no weights.
    let weights = value(b, |f| {
        f.of(row).eq(f64::NEG_INFINITY).select(0.0, (f.of(scores) - f.of(row)).exp())
    })?;
    let by_value = product(weights, o.cotangent, 2, 2)?;
    let by_weights = product(o.cotangent, v, 3, 3)?;
    let level = m.reduce(ReduceKind::Sum, m.mul(o.cotangent, o.result)?, &[3])?;
    let level = m.broadcast(level, &[0, 1, 2], &sizes)?;
    let by_scores = value(b, |f| f.of(weights) * (f.of(by_weights) - f.of(level)) * f.of(scale))?;
    let by_query = product(by_scores, k, 3, 2)?;
    let by_key = product(by_scores, o.query, 2, 2)?;
    Ok([by_query, over_heads(&m, by_key, groups)?, over_heads(&m, by_value, groups)?])
}

/// The logarithm of the sum of exponentials over the last dimension of scores; -inf if all are.
fn log_sum_exp(m: &Math<'_>, scores: Value, sizes: &[Size]) -> Result<Value> {
    let most = m.reduce(ReduceKind::Max, scores, &[3])?;
    let most = value(m.b, |f| f.of(most).eq(f64::NEG_INFINITY).select(0.0, f.of(most)))?;
    let row = m.broadcast(most, &[0, 1, 2], sizes)?;
    let sum = m.reduce(ReduceKind::Sum, value(m.b, |f| (f.of(scores) - f.of(row)).exp())?, &[3])?;
    value(m.b, |f| f.of(sum).ln() + f.of(most))
}

/// Keys or values `[B, G, S, D]` with one of the `G` heads for each of the queries' `heads`, in
/// runs, as grouped-query attention reads them.
fn repeated(m: &Math<'_>, v: Value, heads: Size) -> Result<Value> {
    let sizes = m.sizes_of(v)?;
    let Some(each) = ratio(heads, sizes[1])? else { return Ok(v) };
    let apart = [sizes[0], sizes[1], Size::Static(each), sizes[2], sizes[3]];
    let v = m.broadcast(v, &[0, 1, 3, 4], &apart)?;
    m.reshape(v, &[sizes[0], heads, sizes[2], sizes[3]])
}

/// The sum of gradients `[B, H, S, D]` over the heads of queries that read the same of `groups`.
fn over_heads(m: &Math<'_>, v: Value, groups: Size) -> Result<Value> {
    let sizes = m.sizes_of(v)?;
    let Some(each) = ratio(sizes[1], groups)? else { return Ok(v) };
    let apart = [sizes[0], groups, Size::Static(each), sizes[2], sizes[3]];
    let v = m.reshape(v, &apart)?;
    m.reduce(ReduceKind::Sum, v, &[2])
}

/// How many heads of queries read one of the keys; `None` if one.
fn ratio(heads: Size, groups: Size) -> Result<Option<i64>> {
    match (heads.known(), groups.known()) {
        (Some(h), Some(g)) if h == g => Ok(None),
        (Some(h), Some(g)) if g > 0 && h % g == 0 => Ok(Some(h / g)),
        _ if heads == groups => Ok(None),
        _ => Err("has heads of queries that are no multiple of those of keys".into()),
    }
}

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
    let d = accumulator_type(dtype(o.query)?);
    let wide = |v: Value| r.m.convert(v, if d == DType::F64 { d } else { DType::F32 });
    let made = from_log_sum_exp(
        r.m.b,
        &AttentionGradient {
            query: wide(o.query)?,
            key: wide(o.key)?,
            value: wide(o.value)?,
            bias: o.bias.map(wide).transpose()?,
            result: wide(r.op.result(0))?,
            lse: Some(wide(r.op.result(1))?),
            cotangent: wide(g)?,
            scale: o.scale,
            causal: o.causal,
        },
    )?;
    for (x, v) in [o.query, o.key, o.value].into_iter().zip(made) {
        r.give(x, v)?;
    }
    Ok(())
}
