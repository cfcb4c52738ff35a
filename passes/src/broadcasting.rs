//! Elementwise ops whose operands broadcast, by NumPy's rule.
use crate::decompose::tools::{dtype, rank};
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};

/// An elementwise op of one operand.
pub fn unary(b: &Builder, kind: UnaryKind, x: Value) -> Result<Value> {
    let ty = match kind {
        UnaryKind::IsFinite | UnaryKind::IsNan => Type::tensor(b.ctx, DType::I1, &x.ty().dims()),
        _ => x.ty(),
    };
    Ok(b.generic(kind.op().name(), &[x], &[ty], &[], &mut [])?.result(0))
}
/// A broadcasting elementwise op; the operands have one dtype. A product of bools is their
/// conjunction, as in PyTorch.
pub fn binary(b: &Builder, kind: BinaryKind, x: Value, y: Value) -> Result<Value> {
    let truths = kind == BinaryKind::Mul && dtype(x)? == DType::I1;
    let kind = if truths { BinaryKind::And } else { kind };
    let (x, y) = broadcast(b, x, y)?;
    Ok(b.generic(kind.op().name(), &[x, y], &[x.ty()], &[], &mut [])?.result(0))
}
/// A broadcasting comparison; the operands have one dtype.
pub fn compare(b: &Builder, kind: CompareKind, x: Value, y: Value) -> Result<Value> {
    let (lhs, rhs) = broadcast(b, x, y)?;
    b.add(&Compare { kind, lhs, rhs })
}
/// `x` where `c`, else `y`; broadcasts.
pub fn select(b: &Builder, c: Value, x: Value, y: Value) -> Result<Value> {
    let (x, y) = broadcast(b, x, y)?;
    let (condition, x) = broadcast(b, c, x)?;
    let (on_false, on_true) = broadcast(b, y, x)?;
    b.add(&Select { condition, on_true, on_false })
}
/// Converts to a dtype. Float to narrow integer goes through a wider integer and wraps, as in
/// PyTorch; kiln's own conversion saturates.
pub fn convert(b: &Builder, x: Value, to: DType) -> Result<Value> {
    let from = dtype(x)?;
    if from == to {
        return Ok(x);
    }
    let by = match to {
        DType::UI8 => Some(DType::I64),
        DType::I8 | DType::I16 => Some(DType::I32),
        _ => None,
    };
    let x = match by.filter(|_| from.is_float()) {
        Some(by) => b.add(&Convert { input: x, dtype: Type::scalar(b.ctx, by) })?,
        None => x,
    };
    b.add(&Convert { input: x, dtype: Type::scalar(b.ctx, to) })
}
/// Broadcasts both to their common shape, by NumPy's rule. A symbolic size is never 1: exports
/// specialise on 1.
pub fn broadcast(b: &Builder, x: Value, y: Value) -> Result<(Value, Value)> {
    if x.ty().dims() == y.ty().dims() {
        return Ok((x, y));
    }
    let sizes = common(b, &[x, y])?;
    Ok((broadcast_to(b, x, &sizes)?, broadcast_to(b, y, &sizes)?))
}
/// The broadcast shape of values.
pub fn common(b: &Builder, values: &[Value]) -> Result<Vec<Size>> {
    let rank = values.iter().map(|v| rank(*v)).max().unwrap_or(0);
    let mut out = vec![];
    for i in 0..rank {
        let mut best: Option<(Value, usize, Dim)> = None;
        for v in values {
            let dims = v.ty().dims();
            let Some(axis) = (i + dims.len()).checked_sub(rank) else { continue };
            let d = dims[axis].clone();
            let better = match &best {
                None => true,
                Some((_, _, Dim::Known(1))) => true,
                Some((_, _, Dim::Known(_))) => false,
                Some(_) => matches!(d, Dim::Known(n) if n != 1),
            };
            match (&best, &d) {
                (Some((_, _, Dim::Known(a))), Dim::Known(b)) if a != b && *a != 1 && *b != 1 => {
                    return Err(format!(
                        "The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {i}"
                    ).into());
                }
                _ if better => best = Some((*v, axis, d)),
                _ => {}
            }
        }
        let (v, axis, _) = best.ok_or("has no dimensions")?;
        out.push(b.size_of(v, axis)?);
    }
    Ok(out)
}
/// Broadcasts to a shape, with dimensions aligned at the end.
pub fn broadcast_to(b: &Builder, x: Value, sizes: &[Size]) -> Result<Value> {
    let dims = x.ty().dims();
    for (d, s) in dims.iter().rev().zip(sizes.iter().rev()) {
        if let Some((d, s)) = d.known().zip(s.known()).filter(|(d, s)| d != s && *d != 1) {
            return Err(format!(
                "The expanded size of the tensor ({s}) must match the existing size ({d}) at a non-singleton dimension"
            ).into());
        }
    }
    let same = dims.len() == sizes.len()
        && dims
            .iter()
            .zip(sizes)
            .all(|(d, s)| d.known() == s.known() && *d != Dim::Known(1) || (s.known() == Some(1)));
    if same {
        return Ok(x);
    }
    let lead = sizes
        .len()
        .checked_sub(dims.len())
        .ok_or_else(|| format!("rank {} does not broadcast to rank {}", dims.len(), sizes.len()))?;
    b.add(&BroadcastInDim {
        input: x,
        dims: (lead as i64..sizes.len() as i64).collect(),
        sizes: sizes.to_vec(),
    })
}

/// Reinserts reduced dimensions `dims` of `x` as size 1 in `r`.
pub fn keep_dims(b: &Builder, x: Value, r: Value, dims: &[i64]) -> Result<Value> {
    let size = |i: usize| match dims.contains(&(i as i64)) {
        true => Ok(Size::Static(1)),
        false => b.size_of(x, i),
    };
    let sizes = (0..rank(x)).map(size).collect::<Result<_>>()?;
    b.add(&Reshape { input: r, sizes })
}
