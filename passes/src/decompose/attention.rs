//! Unfused attention: materialises the scores of all queries and keys.
use super::{contract::dot, region::Batch, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Largest sum of query and value head sizes that a CPU attention kernel tiles in scratch memory.
const MAX_HEAD_CPU: i64 = 512;

/// Largest head size of a GPU attention kernel, which keeps accumulators in registers.
const MAX_HEAD_GPU: i64 = 256;

/// Fewest queries for which a CPU attention kernel is faster than two products and a softmax.
const MIN_QUERIES_CPU: i64 = 4;

/// Smallest head size for which a GPU attention kernel is.
const MIN_HEAD_GPU: i64 = 16;

/// What decides whether a kernel supports an attention; sizes are absent where they are dynamic.
pub(crate) struct Form {
    pub(crate) dtype: DType,
    /// Head size of queries and keys.
    pub(crate) depth: Option<i64>,
    /// Head size of values.
    pub(crate) columns: Option<i64>,
    pub(crate) queries: Option<i64>,
    pub(crate) keys: Option<i64>,
    /// Query heads.
    pub(crate) heads: Option<i64>,
    /// Key heads.
    pub(crate) groups: Option<i64>,
    /// Whether several query heads share a key head, as far as that is known.
    pub(crate) grouped: bool,
}

impl Form {
    /// Why no attention kernel of the CPU, or of this GPU, supports it; none if one does.
    pub(crate) fn unsupported(&self, chip: &str) -> Option<&'static str> {
        let (Some(d), Some(e)) = (self.depth, self.columns) else {
            return Some("its head size is dynamic");
        };
        if self.keys == Some(0) {
            return Some("it has no keys");
        }
        if d == 0 || d + e > MAX_HEAD_CPU {
            return Some("its head size is 0 or exceeds the scratch memory");
        }
        if let Some(why) =
            if chip == "none" { None } else { self.unsupported_by_tensor_cores([d, e]) }
        {
            return Some(why);
        }
        let some = |n: Option<i64>| n.is_some_and(|n| n > 0);
        (self.grouped && !(some(self.heads) && some(self.groups)))
            .then_some("its numbers of heads are dynamic")
    }

    /// Why the tensor-core attention kernel does not support it; none if it does.
    fn unsupported_by_tensor_cores(&self, heads: [i64; 2]) -> Option<&'static str> {
        if !matches!(self.dtype, DType::BF16 | DType::F16) {
            return Some("its element type is neither bf16 nor f16");
        }
        // Rows are loaded as 16-byte vectors.
        let fits = heads.iter().all(|n| n % 8 == 0 && *n <= MAX_HEAD_GPU);
        (!fits).then_some("its head sizes are not multiples of 8 up to 256")
    }

    /// Why separate products are faster, where they are.
    pub(crate) fn unprofitable(&self, chip: &str) -> Option<&'static str> {
        if chip == "none" {
            // The lanes of a vector are queries.
            return self
                .queries
                .filter(|n| *n < MIN_QUERIES_CPU)
                .map(|_| "its queries are too few");
        }
        // Instructions of tensor cores take 16 elements of K.
        let small = |n: Option<i64>| n.is_some_and(|n| n < MIN_HEAD_GPU);
        (small(self.depth) || small(self.columns)).then_some("its heads are too small")
    }
}

/// Why no attention kernel of the CPU, or of this GPU, supports the op; none if one does.
pub(super) fn unsupported(op: Op, chip: &str) -> Option<&'static str> {
    let Some(o) = Attention::of(op) else { return Some("is malformed") };
    let size = |v: Value, axis: usize| v.ty().dims()[axis].known();
    if !walk(op).into_iter().filter(|o| *o != op).all(is_elementwise) {
        return Some("its score or mask region is not elementwise");
    }
    if o.dropout_p > 0.0 || (o.with_lse && chip == "none") {
        return Some("it has dropout or returns the log-sum-exp");
    }
    let Ok(dtype) = dtype(o.query) else { return Some("is malformed") };
    let form = Form {
        dtype,
        depth: size(o.query, 3),
        columns: size(o.value, 3),
        queries: size(o.query, 2),
        keys: size(o.key, 2),
        heads: size(o.query, 1),
        groups: size(o.key, 1),
        grouped: grouped(&o),
    };
    form.unsupported(chip)
}

/// Whether a kernel can evaluate a region's op per score: elementwise arithmetic, and gathers of
/// single elements.
fn is_elementwise(op: Op) -> bool {
    let single = |v: &Value| v.ty().dims().is_empty();
    match op.kind() {
        Some(OpKind::Gather) => {
            Gather::of(op).is_some_and(|o| o.indices.iter().all(single)) && single(&op.result(0))
        }
        Some(OpKind::Splat | OpKind::Constant | OpKind::Yield) => true,
        Some(k) => k.is_elementwise() && op.results().iter().all(single),
        None => false,
    }
}

pub(super) fn expand(op: Op, b: &Builder) -> Result<Vec<Value>> {
    let m = Math { b };
    let o = Attention::of(op).ok_or_malformed(op)?;
    let narrow = dtype(o.query)?;
    let accumulator_type = accumulator_type(narrow);
    let mut scores = scores(&m, &o, accumulator_type)?;
    let sizes = m.sizes_of(scores)?;

    let mut batch = Batch::new(&m, sizes.clone());
    let mut seen: Option<Value> = None;
    let both = |seen: Option<Value>, next: Value| match seen {
        Some(s) => m.binary(BinaryKind::And, s, next).map(Some),
        None => Ok(Some(next)),
    };
    if o.causal {
        let (q, k) = (batch.position(2)?, batch.position(3)?);
        seen = both(seen, m.compare(CompareKind::Le, k, q)?)?;
    }
    for (lengths, axis) in [(o.query_lengths, 2), (o.key_lengths, 3)] {
        let Some(l) = lengths else { continue };
        let l = m.broadcast(m.convert(l, DType::I64)?, &[0], &sizes)?;
        let position = batch.position(axis)?;
        seen = both(seen, m.compare(CompareKind::Lt, position, l)?)?;
    }
    let regions = op.regions();
    let region = |i: usize| regions.get(i).and_then(|r| r.first());
    if let Some(block) = region(1) {
        // Masked keys may have positions out of range, so the gathers' indices are clamped.
        batch.clamp = seen.is_some();
        seen = both(seen, batch.inline(block, &[])?)?;
    }
    if let Some(block) = region(0) {
        batch.clamp = seen.is_some();
        scores = batch.inline(block, &[scores])?;
    }
    if let Some(seen) = seen {
        scores = m.select(seen, scores, m.full_like(scores, f64::NEG_INFINITY)?)?;
    }

    let (mut weights, lse) = normalise(&m, scores, &o)?;
    if let Some(key) = o.dropout_key.filter(|_| o.dropout_p > 0.0) {
        weights = m.dropout(weights, key, o.dropout_p)?;
    }
    let result = m.convert(product(&m, &o, weights)?, narrow)?;
    Ok([Some(result), lse].into_iter().flatten().collect())
}

/// scale * q . k + bias as [B, H, Q, K] in the wide dtype.
fn scores(m: &Math<'_>, o: &Attention, to: DType) -> Result<Value> {
    let (q, k) = (m.sizes_of(o.query)?, m.sizes_of(o.key)?);
    let element = (dtype(o.query)? != to).then(|| Type::scalar(m.b.ctx, to));
    let mut s = if grouped(o) {
        let per_group = m.size(SymKind::Floordiv, q[1], k[1])?;
        let split = m.reshape(o.query, &[q[0], k[1], per_group, q[2], q[3]])?;
        let s = dot(m, split, o.key, 2, [4, 3], element)?;
        m.reshape(s, &[q[0], q[1], q[2], k[2]])?
    } else {
        dot(m, o.query, o.key, 2, [3, 3], element)?
    };
    s = match o.scale {
        Some(scale) => m.mul(s, m.full_like(s, scale)?)?,
        None => {
            m.div(s, m.broadcast_to(m.unary(UnaryKind::Sqrt, m.number(q[3], to)?)?, &[], s)?)?
        }
    };
    match o.bias {
        Some(bias) => {
            let first = 4 - rank(bias) as i64;
            m.add(s, m.broadcast_to(m.convert(bias, to)?, &(first..4).collect::<Vec<_>>(), s)?)
        }
        None => Ok(s),
    }
}

/// Whether several query heads share a key head (grouped-query attention).
fn grouped(o: &Attention) -> bool {
    let (h, g) = (&o.query.ty().dims()[1], &o.key.ty().dims()[1]);
    h.known().is_none() || h != g
}

/// Softmax over the keys, 0 for fully masked rows (all -inf) unless it is unsafe, and the
/// log-sum-exp on request.
fn normalise(m: &Math<'_>, s: Value, o: &Attention) -> Result<(Value, Option<Value>)> {
    let with_lse = o.with_lse;
    let (axis, rows) = ([3], m.sizes_of(s)?[..3].to_vec());
    let none = m.b.splat(dtype(s)?, &rows, f64::NEG_INFINITY)?;
    if s.ty().dims()[3].known() == Some(0) {
        return Ok((s, with_lse.then_some(none)));
    }
    let max = m.reduce(ReduceKind::Max, s, &axis)?;
    let empty = m.compare(CompareKind::Eq, max, none)?;
    let max = m.select(empty, m.full_like(max, 0.0)?, max)?;
    let e = m.unary(UnaryKind::Exp, m.sub(s, m.broadcast_back(max, &axis, s)?)?)?;
    let sum = m.reduce(ReduceKind::Sum, e, &axis)?;
    let lse = if with_lse { Some(m.add(max, m.unary(UnaryKind::Log, sum)?)?) } else { None };
    // 0 / 0 is NaN.
    let divisor =
        if o.unsafe_softmax { sum } else { m.select(empty, m.full_like(sum, 1.0)?, sum)? };
    Ok((m.div(e, m.broadcast_back(divisor, &axis, e)?)?, lse))
}

/// weights . v as [B, H, Q, E] in the weights' dtype.
fn product(m: &Math<'_>, o: &Attention, weights: Value) -> Result<Value> {
    let mut v = m.convert(o.value, dtype(weights)?)?;
    if let Some(l) = o.key_lengths {
        // Values past the end of the sequence may be inf or NaN, and 0 * NaN is NaN: mask them.
        let sizes = m.sizes_of(v)?;
        let l = m.broadcast(m.convert(l, DType::I64)?, &[0], &sizes)?;
        v =
            m.select(m.compare(CompareKind::Lt, m.iota(&sizes, 2)?, l)?, v, m.full_like(v, 0.0)?)?;
    }
    if !grouped(o) {
        return dot(m, weights, v, 2, [3, 2], None);
    }
    let (w, v_sizes) = (m.sizes_of(weights)?, m.sizes_of(v)?);
    let per_group = m.size(SymKind::Floordiv, w[1], v_sizes[1])?;
    let split = m.reshape(weights, &[w[0], v_sizes[1], per_group, w[2], w[3]])?;
    m.reshape(dot(m, split, v, 2, [4, 2], None)?, &[w[0], w[1], w[2], v_sizes[3]])
}
