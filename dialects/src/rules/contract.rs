//! Type rules of matmuls, embeddings and attention.
use super::types::{Sizes, TensorType, axes_of, ensure, unify, unify_all, without};
use crate::{ir::*, ops::*, sym::Dim, value::DType};

/// NumPy broadcasting of two shapes.
pub(super) fn broadcast(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |d: &[Dim], i: usize| {
        (i + d.len()).checked_sub(rank).map_or(Dim::Known(1), |j| d[j].clone())
    };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (Dim::Known(1), x) | (x, Dim::Known(1)) => Ok(x),
            (x @ Dim::Known(_), y) | (x, y @ Dim::Known(_)) => {
                unify(&x, &y, || format!("in leading dimension {i} that do not broadcast"))
            }
            // A symbolic size may be 1, so distinct expressions decide nothing.
            (x, y) => Ok(if x == y { x } else { Dim::Unknown }),
        })
        .collect()
}

fn same_dtype(a: &TensorType, b: &TensorType) -> Result<()> {
    ensure(a.dtype == b.dtype, || {
        format!("mixes {} and {}; convert first", a.dtype.name(), b.dtype.name())
    })?;
    ensure(a.dtype != DType::I1, || "is not defined on i1".into())
}

pub(super) fn infer(view: &View, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    match view.kind {
        OpKind::DotGeneral => dot_general(&DotGeneral::read(view)?, v),
        OpKind::Linear => linear(&Linear::read(view)?, v),
        OpKind::Matmul => matmul(&Matmul::read(view)?, v),
        OpKind::Embedding => {
            let o = Embedding::read(view)?;
            let (w, i) = (v.tensor(o.weight)?, v.tensor(o.indices)?);
            ensure(w.dims.len() == 2, || {
                format!("needs a table [V, D], has rank {}", w.dims.len())
            })?;
            ensure(i.dtype.is_int(), || format!("needs integer indices, has {}", i.dtype.name()))?;
            Ok(vec![TensorType {
                dtype: w.dtype,
                dims: [i.dims, vec![w.dims[1].clone()]].concat(),
            }])
        }
        OpKind::Attention => attention(&Attention::read(view)?, v),
        OpKind::AttentionGradient => attention_gradient(&AttentionGradient::read(view)?, v),
        other => Err(format!("({}) is not a contraction", other.name()).into()),
    }
}

/// Batch, contracted and free dimensions.
type Parts = (Vec<Dim>, Vec<Dim>, Vec<Dim>);

fn dot_general(o: &DotGeneral, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let (x, y) = (v.tensor(o.lhs)?, v.tensor(o.rhs)?);
    same_dtype(&x, &y)?;
    let side = |t: &TensorType, batch: &[i64], contract: &[i64], name| -> Result<Parts> {
        let all = axes_of(&[batch, contract].concat(), t.dims.len(), name)?;
        let pick = |axes: &[usize]| axes.iter().map(|a| t.dims[*a].clone()).collect();
        Ok((pick(&all[..batch.len()]), pick(&all[batch.len()..]), without(&t.dims, &all, false)))
    };
    let (xb, xc, xf) = side(&x, &o.lhs_batch, &o.lhs_contract, "lhs_batch and lhs_contract")?;
    let (yb, yc, yf) = side(&y, &o.rhs_batch, &o.rhs_contract, "rhs_batch and rhs_contract")?;
    let batch = unify_all(&xb, &yb, "of the batch")?;
    unify_all(&xc, &yc, "of the contracted dimensions")?;
    let dtype = match o.element_type {
        None => x.dtype,
        Some(t) => {
            let d = t.dtype()?;
            ensure(d.is_float() == x.dtype.is_float() && d != DType::I1, || {
                format!("contracts {} to {}", x.dtype.name(), d.name())
            })?;
            d
        }
    };
    Ok(vec![TensorType { dtype, dims: [batch, xf, yf].concat() }])
}

fn linear(o: &Linear, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let (x, w) = (v.tensor(o.input)?, v.tensor(o.weight)?);
    same_dtype(&x, &w)?;
    ensure(!x.dims.is_empty(), || "needs an input of rank 1 or more".into())?;
    ensure(w.dims.len() == 2, || format!("needs a weight [N, K], has rank {}", w.dims.len()))?;
    let last = x.dims.len() - 1;
    unify(&x.dims[last], &w.dims[1], || "of the input's last dimension and the weight's".into())?;
    if let Some(b) = o.bias {
        let b = v.tensor(b)?;
        same_dtype(&x, &b)?;
        unify_all(&w.dims[..1], &b.dims, "of weight rows and bias")?;
    }
    Ok(vec![TensorType { dtype: x.dtype, dims: [&x.dims[..last], &w.dims[..1]].concat() }])
}

fn matmul(o: &Matmul, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let (x, y) = (v.tensor(o.lhs)?, v.tensor(o.rhs)?);
    same_dtype(&x, &y)?;
    let (m, n) = (x.dims.len(), y.dims.len());
    ensure(m > 0 && n > 0, || "needs operands of rank 1 or more".into())?;
    let contracted = if n == 1 { &y.dims[0] } else { &y.dims[n - 2] };
    unify(&x.dims[m - 1], contracted, || "of the contracted dimensions".into())?;
    let mut dims = broadcast(&x.dims[..m.saturating_sub(2)], &y.dims[..n.saturating_sub(2)])?;
    if m > 1 {
        dims.push(x.dims[m - 2].clone());
    }
    if n > 1 {
        dims.push(y.dims[n - 1].clone());
    }
    Ok(vec![TensorType { dtype: x.dtype, dims }])
}

fn attention(o: &Attention, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let (q, k, w) = (v.tensor(o.query)?, v.tensor(o.key)?, v.tensor(o.value)?);
    for t in [&q, &k, &w] {
        ensure(t.dims.len() == 4, || format!("needs [B, H, S, D], has rank {}", t.dims.len()))?;
        same_dtype(&q, t)?;
        ensure(t.dtype.is_float(), || format!("is not defined on {}", t.dtype.name()))?;
    }
    let batch = unify(&q.dims[0], &k.dims[0], || "of the batch".into())?;
    unify(&batch, &w.dims[0], || "of the batch".into())?;
    let groups = unify(&k.dims[1], &w.dims[1], || "of key and value heads".into())?;
    if let (Some(h), Some(g)) = (q.dims[1].known(), groups.known()) {
        ensure(g > 0 && h % g == 0, || format!("has {h} query heads for {g} key heads"))?;
    }
    let keys = unify(&k.dims[2], &w.dims[2], || "of keys and values".into())?;
    unify(&q.dims[3], &k.dims[3], || "of query and key features".into())?;
    if let Some(b) = o.bias {
        let b = v.tensor(b)?;
        same_dtype(&q, &b)?;
        let scores = [batch.clone(), q.dims[1].clone(), q.dims[2].clone(), keys];
        ensure(b.dims.len() <= 4, || format!("has a bias of rank {}", b.dims.len()))?;
        for (d, s) in b.dims.iter().rev().zip(scores.iter().rev()) {
            ensure(*d == Dim::Known(1) || !d.differs(s), || {
                format!("has a bias of size {d} for scores of size {s}")
            })?;
        }
    }
    for (lengths, name) in [(o.query_lengths, "query_lengths"), (o.key_lengths, "key_lengths")] {
        let Some(l) = lengths else { continue };
        let t = v.tensor(l)?;
        ensure(t.dtype.is_int(), || format!("needs integers as {name}, has {}", t.dtype.name()))?;
        unify_all(std::slice::from_ref(&batch), &t.dims, &format!("of the batch and {name}"))?;
    }
    let drops =
        (0.0..1.0).contains(&o.dropout_p) && (o.dropout_p == 0.0 || o.dropout_key.is_some());
    ensure(drops, || {
        format!("needs dropout_p in [0, 1) and a key where it is not 0; has {}", o.dropout_p)
    })?;
    let dims = vec![batch, q.dims[1].clone(), q.dims[2].clone(), w.dims[3].clone()];
    let lse = TensorType {
        dtype: if q.dtype == DType::F64 { DType::F64 } else { DType::F32 },
        dims: dims[..3].to_vec(),
    };
    let result = TensorType { dtype: q.dtype, dims };
    Ok(if o.with_lse { vec![result, lse] } else { vec![result] })
}

fn attention_gradient(o: &AttentionGradient, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let forward = Attention {
        query: o.query,
        key: o.key,
        value: o.value,
        bias: None,
        query_lengths: None,
        key_lengths: None,
        dropout_key: None,
        scale: o.scale,
        causal: o.causal,
        dropout_p: 0.0,
        with_lse: true,
        unsafe_softmax: false,
    };
    let forward = attention(&forward, v)?;
    let [result, lse] = &forward[..] else { return Err("has no log-sum-exp".into()) };
    for (given, like, name) in
        [(o.cotangent, result, "cotangent"), (o.lse, lse, "lse"), (o.delta, lse, "delta")]
    {
        let t = v.tensor(given)?;
        ensure(t.dtype == like.dtype, || {
            format!("needs {} as {name}, has {}", like.dtype.name(), t.dtype.name())
        })?;
        unify_all(&like.dims, &t.dims, &format!("of queries and {name}"))?;
    }
    let of = |given: Value| v.tensor(given);
    Ok(if o.by_keys { vec![of(o.key)?, of(o.value)?] } else { vec![of(o.query)?] })
}
