//! Matmuls, linear layers and embedding lookups as prims.
use super::tools::*;
use kiln_dialects::{ir::*, ops::*};

pub(super) fn expand(kind: OpKind, op: Op, b: &Builder) -> Result<Value> {
    let m = Math { b };
    match kind {
        OpKind::Linear => linear(&m, &Linear::of(op).ok_or_malformed(op)?),
        OpKind::Matmul => {
            let o = Matmul::of(op).ok_or_malformed(op)?;
            matmul(&m, o.lhs, o.rhs)
        }
        OpKind::Embedding => {
            let o = Embedding::of(op).ok_or_malformed(op)?;
            b.add(&Gather { input: o.weight, indices: vec![o.indices], dims: vec![0] })
        }
        other => Err(format!("({}) is not a matmul or an embedding", other.name()).into()),
    }
}

/// A `dot_general` with `batch` leading batch dimensions.
pub(super) fn dot(
    m: &Math<'_>,
    lhs: Value,
    rhs: Value,
    batch: usize,
    contract: [usize; 2],
    to: Option<Type>,
) -> Result<Value> {
    let all: Vec<i64> = (0..batch as i64).collect();
    m.b.add(&DotGeneral {
        lhs,
        rhs,
        lhs_batch: all.clone(),
        rhs_batch: all,
        lhs_contract: vec![contract[0] as i64],
        rhs_contract: vec![contract[1] as i64],
        element_type: to,
    })
}

/// x . w + bias; for 16-bit floats the f32 accumulator is rounded once, after the bias.
fn linear(m: &Math<'_>, o: &Linear) -> Result<Value> {
    let narrow = dtype(o.input)?;
    let wide = accumulator_type(narrow);
    let last = rank(o.input) - 1;
    let Some(bias) = o.bias else { return dot(m, o.input, o.weight, 0, [last, 1], None) };
    let product = dot(
        m,
        o.input,
        o.weight,
        0,
        [last, 1],
        (wide != narrow).then(|| Type::scalar(m.b.ctx, wide)),
    )?;
    let bias = m.broadcast_to(m.convert(bias, wide)?, &[last as i64], product)?;
    m.convert(m.add(product, bias)?, narrow)
}

fn matmul(m: &Math<'_>, x: Value, y: Value) -> Result<Value> {
    let (p, q) = (rank(x), rank(y));
    let contract = [p - 1, q.saturating_sub(2)];
    if p <= 2 || q <= 2 {
        let r = dot(m, x, y, 0, contract, None)?;
        if p < 2 || q <= 2 {
            return Ok(r);
        }
        // Fold the left operand's M dimension after the batch dimensions of the right.
        let batch = q as i64 - 2;
        return m.transpose(r, &[(1..=batch).collect(), vec![0, batch + 1]].concat());
    }
    let batch = p.max(q) - 2;
    let common =
        (0..batch).map(|i| common_size(m, x, y, batch, i)).collect::<Result<Vec<_>, _>>()?;
    let (x, y) = (batched(m, x, &common)?, batched(m, y, &common)?);
    dot(m, x, y, batch, [batch + 1, batch], None)
}

/// The size to which dimension `i` of both operands' batch dimensions broadcasts.
fn common_size(m: &Math<'_>, x: Value, y: Value, batch: usize, i: usize) -> Result<Size> {
    let size = |v: Value| match (i + rank(v) - 2).checked_sub(batch) {
        Some(axis) => m.size_of(v, axis),
        None => Ok(Size::Static(1)),
    };
    let one = Size::Static(1);
    match (size(x)?, size(y)?) {
        (Size::Static(1), s) | (s, Size::Static(1)) => Ok(s),
        (s @ Size::Static(_), _) | (_, s @ Size::Static(_)) => Ok(s),
        // Either may be 1 at run time: x * y / max(min(x, y), 1).
        (s, t) => {
            let (product, lesser) = (m.size(SymKind::Mul, s, t)?, m.size(SymKind::Min, s, t)?);
            m.size(SymKind::Floordiv, product, m.size(SymKind::Max, lesser, one)?)
        }
    }
}

/// Broadcasts the batch dimensions of `v` to these sizes.
fn batched(m: &Math<'_>, v: Value, common: &[Size]) -> Result<Value> {
    let n = rank(v);
    let static_dims = |s: &[Size]| s.iter().map(|s| s.known()).collect::<Option<Vec<i64>>>();
    let own = v.ty().dims()[..n - 2].iter().map(|d| d.known()).collect::<Option<Vec<i64>>>();
    if own.is_some() && own == static_dims(common) {
        return Ok(v);
    }
    let sizes = [common, &[m.size_of(v, n - 2)?, m.size_of(v, n - 1)?]].concat();
    let first = sizes.len() - n;
    m.broadcast(v, &(first as i64..sizes.len() as i64).collect::<Vec<_>>(), &sizes)
}
