//! Distances of rows, and norms of differences.
use super::{
    Args, Cx, Outcome,
    arithmetic::default_float,
    formula::{Term, value},
    reduce::{keep_dims, p_norm},
    stacks::chosen,
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// A norm; 0 of no elements.
pub(super) fn length(cx: &Cx, x: Value, p: f64, dims: &[i64]) -> Result<Value> {
    let empty = dims.iter().any(|d| x.ty().dims()[*d as usize].known() == Some(0));
    if empty {
        return cx.reduced(ReduceKind::Sum, x, dims);
    }
    p_norm(cx, x, p, dims, false)
}

/// Distances of all pairs of rows.
pub(super) fn cdist(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let own = dtype_of(cx.tensor(a, "x1")?)?;
    let (x, y) = cx.promoted(a, "x1", "x2")?;
    if !dtype_of(x)?.is_float() {
        return Err("cdist only supports floating-point dtypes".into());
    }
    if rank_of(x) < 2 || rank_of(y) < 2 {
        return Err("cdist only supports at least 2D tensors".into());
    }
    let (x, y) = (cx.unsqueezed(x, rank_of(x) - 1)?, cx.unsqueezed(y, rank_of(y) - 2)?);
    let v = cx.binary(BinaryKind::Sub, x, y)?;
    let last = rank_of(v) as i64 - 1;
    let v = length(cx, v, a.float("p", Some(2.0))?, &[last])?;
    let v = cx.convert(v, own)?;
    cx.one(v)
}

/// Distances of each pair of different rows, in the order of `torch.combinations`.
pub(super) fn pdist(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    if rank_of(x) != 2 || !dtype_of(x)?.is_float() {
        return Err("pdist only supports 2D floating-point tensors".into());
    }
    let pairs = chosen(cx, cx.b.size_of(x, 0)?, 2)?;
    let [i, j] = pairs.as_slice() else { return Err("has no pairs".into()) };
    let (x, y) = (cx.take_axis(x, *i, 0)?, cx.take_axis(x, *j, 0)?);
    let v = cx.binary(BinaryKind::Sub, x, y)?;
    let v = length(cx, v, a.float("p", Some(2.0))?, &[1])?;
    cx.one(v)
}

/// The p-norm of `x - y + eps` along the last dimension: the differences are rounded to the dtype
/// twice, as PyTorch does; integers become the default float dtype with eps.
pub(super) fn distance(
    cx: &Cx,
    x: Value,
    y: Value,
    p: f64,
    epsilon: f64,
    keepdim: bool,
) -> Result<Value> {
    let (x, y) = cx.broadcast(x, y)?;
    let d = dtype_of(x)?;
    if d == DType::I1 {
        return Err("Subtraction, the `-` operator, with two bool tensors is not supported.".into());
    }
    let narrow = default_float(d);
    let wide = statistics_dtype(narrow);
    let axis = (rank_of(x) as i64 - 1).max(0);
    let dims: Vec<i64> = if rank_of(x) == 0 { vec![] } else { vec![axis] };
    let v = value(cx, |f| {
        let difference = if d.is_float() {
            (f.of(x).to(wide) - f.of(y).to(wide)).rounded(narrow)
        } else {
            (f.of(x) - f.of(y)).to(wide)
        };
        norm((difference + epsilon).rounded(narrow).abs(), p, &dims)
    })?;
    let v = if keepdim { keep_dims(cx, x, v, &dims)? } else { v };
    cx.convert(v, narrow)
}

/// The p-norm of magnitudes over dimensions.
fn norm<'f>(d: Term<'f>, p: f64, dims: &[i64]) -> Term<'f> {
    let sum = |x: Term<'f>| x.reduce(ReduceKind::Sum, dims, false);
    match p {
        _ if p == f64::INFINITY => d.reduce(ReduceKind::Max, dims, false),
        _ if p == f64::NEG_INFINITY => d.reduce(ReduceKind::Min, dims, false),
        0.0 => sum(d.ne(0.0).to(d.dtype())),
        1.0 => sum(d),
        2.0 => sum(d * d).sqrt(),
        _ => sum(d.pow(p)).pow(1.0 / p),
    }
}
