//! Type rules of normalisations, losses and statistics.
use super::types::{Sizes, TensorType, axes_of, axis_of, ensure, unify, unify_all, without};
use crate::{ir::*, ops::*, sym::Dim, value::DType};

fn float(t: &TensorType) -> Result<()> {
    ensure(t.dtype.is_float(), || format!("is not defined on {}", t.dtype.name()))
}

/// An affine parameter of exactly these sizes, in the input's dtype, or f32 for a 16-bit input.
fn parameter(
    v: &dyn Sizes,
    p: Option<Value>,
    x: &TensorType,
    dims: &[Dim],
    name: &str,
) -> Result<()> {
    let Some(p) = p else { return Ok(()) };
    let t = v.tensor(p)?;
    ensure(t.dtype == x.dtype || (t.dtype == DType::F32 && x.dtype.bits() == 16), || {
        format!("has a {name} of {} beside an input of {}", t.dtype.name(), x.dtype.name())
    })?;
    unify_all(dims, &t.dims, &format!("of the input and {name}")).map(|_| ())
}

fn trailing(x: &TensorType, rank: i64) -> Result<&[Dim]> {
    let n = usize::try_from(rank).ok().filter(|n| *n >= 1 && *n <= x.dims.len());
    let n = n.ok_or_else(|| format!("normalises {rank} of {} dimensions", x.dims.len()))?;
    Ok(&x.dims[x.dims.len() - n..])
}

fn channels(x: &TensorType) -> Result<Dim> {
    x.dims
        .get(1)
        .cloned()
        .ok_or_else(|| format!("needs [N, C, ...], has rank {}", x.dims.len()).into())
}

fn positive(epsilon: f64) -> Result<()> {
    ensure(epsilon >= 0.0, || format!("has epsilon {epsilon}, which is negative"))
}

pub(super) fn infer(view: &View, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    match view.kind {
        OpKind::LayerNorm => {
            let o = LayerNorm::read(view)?;
            let x = v.tensor(o.input)?;
            float(&x)?;
            positive(o.epsilon)?;
            let dims = trailing(&x, o.rank)?;
            parameter(v, o.weight, &x, dims, "weight")?;
            parameter(v, o.bias, &x, dims, "bias")?;
            Ok(vec![x])
        }
        OpKind::RmsNorm => {
            let o = RmsNorm::read(view)?;
            let x = v.tensor(o.input)?;
            float(&x)?;
            positive(o.epsilon)?;
            parameter(v, o.weight, &x, trailing(&x, o.rank)?, "weight")?;
            Ok(vec![x])
        }
        OpKind::GroupNorm => {
            let o = GroupNorm::read(view)?;
            let x = v.tensor(o.input)?;
            float(&x)?;
            positive(o.epsilon)?;
            let c = channels(&x)?;
            ensure(o.groups > 0 && c.known().is_none_or(|c| c % o.groups == 0), || {
                format!("divides {c} channels into {} groups", o.groups)
            })?;
            parameter(v, o.weight, &x, std::slice::from_ref(&c), "weight")?;
            parameter(v, o.bias, &x, std::slice::from_ref(&c), "bias")?;
            Ok(vec![x])
        }
        OpKind::BatchNorm => {
            let o = BatchNorm::read(view)?;
            let x = v.tensor(o.input)?;
            float(&x)?;
            positive(o.epsilon)?;
            let c = [channels(&x)?];
            for (p, name) in [
                (Some(o.mean), "mean"),
                (Some(o.variance), "variance"),
                (o.weight, "weight"),
                (o.bias, "bias"),
            ] {
                parameter(v, p, &x, &c, name)?;
            }
            Ok(vec![x])
        }
        OpKind::Softmax | OpKind::LogSoftmax => {
            let (input, axis) = if view.kind == OpKind::Softmax {
                let o = Softmax::read(view)?;
                (o.input, o.axis)
            } else {
                let o = LogSoftmax::read(view)?;
                (o.input, o.axis)
            };
            let x = v.tensor(input)?;
            float(&x)?;
            axis_of(axis, x.dims.len())?;
            Ok(vec![x])
        }
        OpKind::CrossEntropy => {
            let o = CrossEntropy::read(view)?;
            let (x, t) = (v.tensor(o.logits)?, v.tensor(o.target)?);
            float(&x)?;
            let c = channels(&x)?;
            ensure(t.dtype == DType::I64, || {
                format!("needs class numbers in i64, has {}", t.dtype.name())
            })?;
            ensure((0.0..=1.0).contains(&o.label_smoothing), || {
                format!("has label_smoothing {} outside of [0, 1]", o.label_smoothing)
            })?;
            let rest = without(&x.dims, &[1], false);
            let dims = unify_all(&rest, &t.dims, "of logits without their classes, and target")?;
            parameter(v, o.weight, &x, &[c], "weight")?;
            let dims = if o.reduction == LossReduction::None { dims } else { vec![] };
            Ok(vec![TensorType { dtype: x.dtype, dims }])
        }
        OpKind::Dropout => {
            let o = Dropout::read(view)?;
            let (x, key) = (v.tensor(o.input)?, v.tensor(o.key)?);
            float(&x)?;
            ensure(key.dims.len() == 1, || "needs a key of two numbers".into())?;
            unify(&key.dims[0], &Dim::Known(2), || "of the key".into())?;
            ensure((0.0..=1.0).contains(&o.p), || format!("has p {} outside of [0, 1]", o.p))?;
            Ok(vec![x])
        }
        OpKind::Mean | OpKind::Var | OpKind::Std => {
            let (input, dims, keep) = match view.kind {
                OpKind::Mean => {
                    let o = Mean::read(view)?;
                    (o.input, o.dims, o.keep_dims)
                }
                OpKind::Var => {
                    let o = Var::read(view)?;
                    (o.input, o.dims, o.keep_dims)
                }
                _ => {
                    let o = Std::read(view)?;
                    (o.input, o.dims, o.keep_dims)
                }
            };
            let x = v.tensor(input)?;
            float(&x)?;
            let axes = axes_of(&dims, x.dims.len(), "dims")?;
            Ok(vec![TensorType { dims: without(&x.dims, &axes, keep), ..x }])
        }
        other => Err(format!("({}) is not a normalisation", other.name()).into()),
    }
}
