//! Normalisations, softmax and statistics as prims.
use super::tools::*;
use kiln_dialects::{ir::*, ops::*};

pub(super) fn expand(kind: OpKind, op: Op, b: &Builder) -> Result<Value> {
    let m = Math { b };
    let input = op.operand(0);
    let narrow = dtype(input)?;
    let x = m.convert(input, accumulator_type(narrow))?;
    let malformed = "is malformed";
    let y = match kind {
        OpKind::LayerNorm => {
            let o = LayerNorm::of(op).ok_or(malformed)?;
            let dims = last(x, o.rank);
            affine(&m, normalise(&m, x, &dims, o.epsilon)?, o.weight, o.bias, &dims)?
        }
        OpKind::GroupNorm => group_norm(&m, x, &GroupNorm::of(op).ok_or(malformed)?)?,
        OpKind::BatchNorm => batch_norm(&m, x, &BatchNorm::of(op).ok_or(malformed)?)?,
        OpKind::RmsNorm => {
            let o = RmsNorm::of(op).ok_or(malformed)?;
            let dims = last(x, o.rank);
            let square = m.mean(m.mul(x, x)?, &dims)?;
            let y = m.div(x, m.broadcast_back(root(&m, square, o.epsilon)?, &dims, x)?)?;
            affine(&m, y, o.weight, None, &dims)?
        }
        OpKind::Softmax => {
            let o = Softmax::of(op).ok_or(malformed)?;
            let y = softmax(&m, x, o.axis)?;
            if o.safe { without_masked(&m, x, y, o.axis)? } else { y }
        }
        OpKind::LogSoftmax => log_softmax(&m, x, LogSoftmax::of(op).ok_or(malformed)?.axis)?,
        OpKind::Mean => {
            let o = Mean::of(op).ok_or(malformed)?;
            keep(&m, m.mean(x, &o.dims)?, x, &o.dims, o.keep_dims)?
        }
        OpKind::Var => {
            let o = Var::of(op).ok_or(malformed)?;
            keep(&m, variance(&m, x, &o.dims, o.correction)?, x, &o.dims, o.keep_dims)?
        }
        OpKind::Std => {
            let o = Std::of(op).ok_or(malformed)?;
            let root = m.unary(UnaryKind::Sqrt, variance(&m, x, &o.dims, o.correction)?)?;
            keep(&m, root, x, &o.dims, o.keep_dims)?
        }
        other => return Err(format!("({}) is not a normalisation", other.name()).into()),
    };
    m.convert(y, narrow)
}

fn last(x: Value, n: i64) -> Vec<i64> {
    let rank = rank(x) as i64;
    (rank - n..rank).collect()
}

/// x - mean x along dims
fn centred(m: &Math<'_>, x: Value, dims: &[i64]) -> Result<Value> {
    m.sub(x, m.broadcast_back(m.mean(x, dims)?, dims, x)?)
}

/// sqrt(x + epsilon)
fn root(m: &Math<'_>, x: Value, epsilon: f64) -> Result<Value> {
    m.unary(UnaryKind::Sqrt, m.add(x, m.full_like(x, epsilon)?)?)
}

/// (x - mean x) / sqrt(var x + epsilon) along dims; biased variance (divisor n)
fn normalise(m: &Math<'_>, x: Value, dims: &[i64], epsilon: f64) -> Result<Value> {
    let c = centred(m, x, dims)?;
    let var = m.mean(m.mul(c, c)?, dims)?;
    m.div(c, m.broadcast_back(root(m, var, epsilon)?, dims, x)?)
}

/// y * weight + bias, parameters over `dims` of y
fn affine(
    m: &Math<'_>,
    mut y: Value,
    weight: Option<Value>,
    bias: Option<Value>,
    dims: &[i64],
) -> Result<Value> {
    for (parameter, kind) in [(weight, BinaryKind::Mul), (bias, BinaryKind::Add)] {
        if let Some(p) = parameter {
            let p = m.convert(p, dtype(y)?)?;
            y = m.binary(kind, y, m.broadcast_to(p, dims, y)?)?;
        }
    }
    Ok(y)
}

/// As layer_norm on [N, groups, C / groups, ...].
fn group_norm(m: &Math<'_>, x: Value, o: &GroupNorm) -> Result<Value> {
    if o.groups == 1 {
        // In place, so that the order of the dimensions stays open.
        let dims: Vec<i64> = (1..rank(x) as i64).collect();
        return affine(m, normalise(m, x, &dims, o.epsilon)?, o.weight, o.bias, &[1]);
    }
    let sizes = m.sizes_of(x)?;
    let groups = Size::Static(o.groups);
    let each = m.size(SymKind::Floordiv, sizes[1], groups)?;
    let split = m.reshape(x, &[&[sizes[0], groups, each], &sizes[2..]].concat())?;
    let dims: Vec<i64> = (2..rank(split) as i64).collect();
    let y = m.reshape(normalise(m, split, &dims, o.epsilon)?, &sizes)?;
    affine(m, y, o.weight, o.bias, &[1])
}

fn batch_norm(m: &Math<'_>, x: Value, o: &BatchNorm) -> Result<Value> {
    let mean = m.convert(o.mean, dtype(x)?)?;
    let root = root(m, m.convert(o.variance, dtype(x)?)?, o.epsilon)?;
    let c = m.sub(x, m.broadcast_to(mean, &[1], x)?)?;
    affine(m, m.div(c, m.broadcast_to(root, &[1], x)?)?, o.weight, o.bias, &[1])
}

/// x - max x along the axis; x itself for an empty axis, which has no maximum
fn shifted(m: &Math<'_>, x: Value, axis: i64) -> Result<Value> {
    if x.ty().dims()[axis as usize].known() == Some(0) {
        return Ok(x);
    }
    m.sub(x, m.reduce_and_broadcast(ReduceKind::Max, x, &[axis])?)
}

/// e^(x - max x) / sum of e^(x - max x)
fn softmax(m: &Math<'_>, x: Value, axis: i64) -> Result<Value> {
    let e = m.unary(UnaryKind::Exp, shifted(m, x, axis)?)?;
    m.div(e, m.reduce_and_broadcast(ReduceKind::Sum, e, &[axis])?)
}

/// 0 in rows of -inf only
fn without_masked(m: &Math<'_>, x: Value, y: Value, axis: i64) -> Result<Value> {
    let least = m.full_like(x, f64::NEG_INFINITY)?;
    let masked = m.b.add(&Compare { kind: CompareKind::Eq, lhs: x, rhs: least })?;
    let condition = m.reduce_and_broadcast(ReduceKind::All, masked, &[axis])?;
    m.b.add(&Select { condition, on_true: m.full_like(y, 0.0)?, on_false: y })
}

/// x - max x - ln(sum of e^(x - max x))
pub(super) fn log_softmax(m: &Math<'_>, x: Value, axis: i64) -> Result<Value> {
    let s = shifted(m, x, axis)?;
    let sum = m.reduce(ReduceKind::Sum, m.unary(UnaryKind::Exp, s)?, &[axis])?;
    m.sub(s, m.broadcast_back(m.unary(UnaryKind::Log, sum)?, &[axis], x)?)
}

/// sum (x - mean x)^2 / max(n - correction, 0)
fn variance(m: &Math<'_>, x: Value, dims: &[i64], correction: f64) -> Result<Value> {
    let c = centred(m, x, dims)?;
    let sum = m.reduce(ReduceKind::Sum, m.mul(c, c)?, dims)?;
    let divisor = match m.count(x, dims)? {
        Size::Static(n) => m.full_like(sum, (n as f64 - correction).max(0.0))?,
        n => {
            let n = m.number(n, dtype(x)?)?;
            let less = m.sub(n, m.full_like(n, correction)?)?;
            m.broadcast_to(m.binary(BinaryKind::Max, less, m.full_like(n, 0.0)?)?, &[], sum)?
        }
    };
    m.div(sum, divisor)
}

/// Keeps reduced dimensions as unit dimensions (keepdim).
fn keep(m: &Math<'_>, r: Value, x: Value, dims: &[i64], keep: bool) -> Result<Value> {
    if !keep || dims.is_empty() {
        return Ok(r);
    }
    let size =
        |i: usize| if dims.contains(&(i as i64)) { Ok(Size::Static(1)) } else { m.size_of(x, i) };
    m.reshape(r, &(0..rank(x)).map(size).collect::<Result<Vec<_>, _>>()?)
}
