//! Cross entropy and dropout as prims.
use super::{norm::log_softmax, tools::*};
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};

pub(super) fn expand(kind: OpKind, op: Op, b: &Builder) -> Result<Value> {
    let m = Math { b };
    match kind {
        OpKind::CrossEntropy => cross_entropy(&m, &CrossEntropy::of(op).ok_or_malformed(op)?),
        OpKind::Dropout => {
            let o = Dropout::of(op).ok_or_malformed(op)?;
            let narrow = dtype(o.input)?;
            m.convert(m.dropout(m.convert(o.input, accumulator_type(narrow))?, o.key, o.p)?, narrow)
        }
        other => Err(format!("({}) is not a loss", other.name()).into()),
    }
}

/// -(1 - s) * w[t] * log_softmax(x)[t] - s/C * sum over c of w[c] * log_softmax(x)[c], and 0 where
/// t is ignore_index
fn cross_entropy(m: &Math<'_>, o: &CrossEntropy) -> Result<Value> {
    let narrow = dtype(o.logits)?;
    let x = m.convert(o.logits, accumulator_type(narrow))?;
    let log = log_softmax(m, x, 1)?;
    let target = target(m, o)?;
    let weight = o.weight.map(|w| m.convert(w, accumulator_type(narrow))).transpose()?;

    let ignored = m.b.add(&Splat {
        value: Attr::scalar_int(m.b.ctx, DType::I64, o.ignore_index),
        sizes: m.sizes_of(target)?,
    })?;
    let counts = m.compare(CompareKind::Ne, target, ignored)?;
    let class = m.select(counts, target, m.full_like(target, 0.0)?)?;
    let sizes = m.sizes_of(class)?;
    let mut at =
        (0..rank(class)).map(|axis| m.iota(&sizes, axis)).collect::<Result<Vec<_>, _>>()?;
    at.insert(1, class);
    let picked =
        m.b.add(&Gather { input: log, indices: at, dims: (0..rank(log) as i64).collect() })?;
    let own_weight = weight
        .map(|w| m.b.add(&Gather { input: w, indices: vec![class], dims: vec![0] }))
        .transpose()?;

    let s = o.label_smoothing;
    let mut loss = if s == 0.0 {
        m.unary(UnaryKind::Neg, picked)?
    } else {
        m.mul(picked, m.full_like(picked, s - 1.0)?)?
    };
    if let Some(w) = own_weight {
        loss = m.mul(loss, w)?;
    }
    if s != 0.0 {
        let weighted = weight.map_or(Ok(log), |w| m.mul(log, m.broadcast_to(w, &[1], log)?))?;
        let sum = m.retype_like(m.reduce(ReduceKind::Sum, weighted, &[1])?, loss)?;
        let share =
            m.div(m.mul(sum, m.full_like(sum, s)?)?, m.number_like(m.size_of(log, 1)?, sum)?)?;
        loss = m.sub(loss, share)?;
    }
    let zero = m.full_like(loss, 0.0)?;
    loss = m.select(counts, loss, zero)?;
    let all: Vec<i64> = (0..rank(loss) as i64).collect();
    let result = match o.reduction {
        LossReduction::None => loss,
        LossReduction::Sum => m.reduce(ReduceKind::Sum, loss, &all)?,
        LossReduction::Mean => {
            let own = own_weight.map_or_else(|| m.full_like(loss, 1.0), Ok)?;
            let total = m.reduce(ReduceKind::Sum, m.select(counts, own, zero)?, &all)?;
            m.div(m.reduce(ReduceKind::Sum, loss, &all)?, total)?
        }
    };
    m.convert(result, narrow)
}

/// The target with the static dimensions of its own type and of the logits.
fn target(m: &Math<'_>, o: &CrossEntropy) -> Result<Value> {
    let mut dims = o.logits.ty().dims();
    dims.remove(1);
    let known = |(a, b): (Dim, Dim)| if a.known().is_some() { a } else { b };
    let dims: Vec<Dim> = dims.into_iter().zip(o.target.ty().dims()).map(known).collect();
    m.retype(o.target, Type::tensor(m.b.ctx, DType::I64, &dims))
}
