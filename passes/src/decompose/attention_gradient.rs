//! Derivatives of attention as products of whole matrices.
use super::tools::*;
use crate::formula::{Formula, value};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// The largest head size of the GPU kernels, which keep the sums of both keys and values in
/// registers.
const MAX_HEAD: i64 = 128;

/// Why no kernel of this GPU, `none` for processors, computes the op; none if one does.
pub(super) fn unsupported(op: Op, chip: &str) -> Option<&'static str> {
    let Some(o) = AttentionGradient::of(op) else { return Some("is malformed") };
    if chip == "none" {
        return Some("processors have no kernel for it");
    }
    if !chip.starts_with("sm_90") {
        return Some("it takes the tensor cores of Hopper");
    }
    if !matches!(dtype(o.query), Ok(DType::BF16 | DType::F16)) {
        return Some("its element type is neither bf16 nor f16");
    }
    let size = |v: Value, axis: usize| v.ty().dims()[axis].known();
    // Rows are loaded as 16-byte vectors, and instructions take 16 elements of K.
    let fits = |n: Option<i64>| n.is_some_and(|n| n % 8 == 0 && (16..=MAX_HEAD).contains(&n));
    if !fits(size(o.query, 3)) || !fits(size(o.value, 3)) {
        return Some("its head sizes are not multiples of 8 from 16 to 128");
    }
    if size(o.query, 1).zip(size(o.key, 1)).is_none() {
        return Some("its numbers of heads are dynamic");
    }
    let empty = |v: Value| v.ty().dims().iter().any(|n| n.known() == Some(0));
    (empty(o.query) || empty(o.key)).then_some("it has no elements")
}

/// Sums of cotangent times result over rows, as f32 or f64.
pub fn row_sums(b: &Builder, cotangent: Value, result: Value) -> Result<Value> {
    let m = Math { b };
    let wide = accumulator_type(dtype(result)?);
    let product = m.mul(m.convert(cotangent, wide)?, m.convert(result, wide)?)?;
    m.reduce(ReduceKind::Sum, product, &[3])
}

/// An attention and the cotangent of its first result.
#[derive(Clone, Copy)]
pub struct AttentionBackward {
    /// `[B, H, Q, D]`
    pub query: Value,
    /// `[B, G, K, D]`
    pub key: Value,
    /// `[B, G, K, E]`
    pub value: Value,
    /// Added to the scores, of a shape that broadcasts to `[B, H, Q, K]`.
    pub bias: Option<Value>,
    /// The log-sum-exp of the scores, `[B, H, Q]`; none: it is computed again.
    pub lse: Option<Value>,
    /// The cotangent of the result `[B, H, Q, E]`.
    pub cotangent: Value,
    /// The sums of cotangent times result over a row, `[B, H, Q]`.
    pub delta: Value,
    /// The scale; none: `1 / sqrt(D)`.
    pub scale: Option<f64>,
    /// Whether query i sees keys up to i.
    pub causal: bool,
}

/// The gradients by query, key and value, of dtype of these: as `kiln.attention_gradient`, or as
/// products where there is a bias or no log-sum-exp.
pub fn attention_gradients(b: &Builder, o: &AttentionBackward) -> Result<[Value; 3]> {
    let m = Math { b };
    let narrow = dtype(o.query)?;
    let wide = accumulator_type(narrow);
    let o = AttentionBackward {
        cotangent: m.convert(o.cotangent, narrow)?,
        delta: m.convert(o.delta, wide)?,
        lse: o.lse.map(|v| m.convert(v, wide)).transpose()?,
        ..*o
    };
    let heads = |v: Value| v.ty().dims()[1].known();
    if let (Some(lse), None, Some(_)) = (o.lse, o.bias, heads(o.query).zip(heads(o.key))) {
        let by = |by_keys: bool| AttentionGradient {
            by_keys,
            query: o.query,
            key: o.key,
            value: o.value,
            cotangent: o.cotangent,
            lse,
            delta: o.delta,
            scale: o.scale,
            causal: o.causal,
        };
        let (query, others) = (b.add(&by(false))?, b.create_node(&by(true))?);
        return Ok([query, others.result(0), others.result(1)]);
    }
    let get = |v: Value| m.convert(v, wide);
    let all = AttentionBackward {
        query: get(o.query)?,
        key: get(o.key)?,
        value: get(o.value)?,
        bias: o.bias.map(get).transpose()?,
        cotangent: get(o.cotangent)?,
        ..o
    };
    let [q, k, v] = from_log_sum_exp(b, &all)?;
    Ok([m.convert(q, narrow)?, m.convert(k, narrow)?, m.convert(v, narrow)?])
}

/// The gradients by query, key and value, all of one dtype: the weights again from the scores and
/// their log-sum-exp, then the derivatives of both products (Dao et al., FlashAttention, 2022,
/// algorithm 4, without tiles).
fn from_log_sum_exp(b: &Builder, o: &AttentionBackward) -> Result<[Value; 3]> {
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
    let delta = m.broadcast(o.delta, &[0, 1, 2], &sizes)?;
    let by_scores = value(b, |f| f.of(weights) * (f.of(by_weights) - f.of(delta)) * f.of(scale))?;
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

pub(super) fn expand(op: Op, b: &Builder) -> Result<Vec<Value>> {
    let o = AttentionGradient::of(op).ok_or_malformed(op)?;
    let m = Math { b };
    let (narrow, wide) = (dtype(o.query)?, dtype(o.lse)?);
    let get = |v: Value| m.convert(v, wide);
    let made = from_log_sum_exp(
        b,
        &AttentionBackward {
            query: get(o.query)?,
            key: get(o.key)?,
            value: get(o.value)?,
            bias: None,
            cotangent: get(o.cotangent)?,
            delta: o.delta,
            lse: Some(o.lse),
            scale: o.scale,
            causal: o.causal,
        },
    )?;
    let wanted = if o.by_keys { &made[1..] } else { &made[..1] };
    wanted.iter().map(|v| m.convert(*v, narrow)).collect()
}
