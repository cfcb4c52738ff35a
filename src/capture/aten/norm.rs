//! Normalisations, softmax, dropout, losses.
use super::{Args, Cx, Outcome, Row, Val, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.layer_norm.default",
        arguments: "input, normalized_shape, weight=None, bias=None, eps=1e-5",
        build: |cx, a| {
            let v = layer_norm(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.native_layer_norm.default",
        arguments: "input, normalized_shape, weight, bias, eps",
        build: |cx, a| {
            let v = layer_norm(cx, a)?;
            first_of_three(cx, v)
        },
    },
    Row {
        name: "aten.rms_norm.default",
        arguments: "input, normalized_shape, weight=None, eps=None",
        build: rms_norm,
    },
    Row {
        name: "aten.group_norm.default",
        arguments: "input, num_groups, weight=None, bias=None, eps=1e-5",
        build: |cx, a| {
            let v = group_norm(cx, a, "num_groups")?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.native_group_norm.default",
        arguments: "input, weight, bias, N, C, HxW, group, eps",
        build: |cx, a| {
            let v = group_norm(cx, a, "group")?;
            first_of_three(cx, v)
        },
    },
    Row {
        name: "aten.batch_norm.default",
        arguments: "input, weight, bias, running_mean, running_var, training, momentum, eps",
        build: |cx, a| {
            let v = batch_norm(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten._native_batch_norm_legit_no_training.default",
        arguments: "input, weight, bias, running_mean, running_var, momentum, eps",
        build: |cx, a| {
            let v = batch_norm(cx, a)?;
            first_of_three(cx, v)
        },
    },
    Row {
        name: "aten.softmax.int",
        arguments: "self, dim, dtype=None",
        build: |cx, a| softmax(cx, a, false),
    },
    Row {
        name: "aten._softmax.default",
        arguments: "self, dim, half_to_float",
        build: |cx, a| softmax(cx, a, false),
    },
    Row {
        name: "aten.log_softmax.int",
        arguments: "self, dim, dtype=None",
        build: |cx, a| softmax(cx, a, true),
    },
    Row {
        name: "aten._log_softmax.default",
        arguments: "self, dim, half_to_float",
        build: |cx, a| softmax(cx, a, true),
    },
    Row { name: "aten.dropout.default", arguments: "input, p, train", build: dropout },
    Row { name: "aten.feature_dropout.default", arguments: "input, p, train", build: dropout },
    Row {
        name: "aten.cross_entropy_loss.default",
        arguments: "self, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0",
        build: cross_entropy,
    },
    Row {
        name: "aten.mse_loss.default",
        arguments: "self, target, reduction=1",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "self", "target")?;
            let d = cx.binary(BinaryKind::Sub, x, y)?;
            let v = cx.binary(BinaryKind::Mul, d, d)?;
            let dims = (0..rank_of(v) as i64).collect();
            let v = match a.int("reduction", Some(1))? {
                0 => v,
                1 => cx.b.add(&Mean { input: v, dims, keep_dims: false })?,
                _ => {
                    cx.b.add(&Reduce { kind: ReduceKind::Sum, input: v, dims, maybe_empty: false })?
                }
            };
            cx.one(v)
        },
    },
];

/// An op whose second and third results exist for the backward pass only.
fn first_of_three(cx: &mut Cx, v: Value) -> Result<Outcome, String> {
    Ok(Outcome::Many(vec![Val::Tensor(cx.store.fresh(v)), Val::None, Val::None]))
}

fn layer_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Value, String> {
    let (input, weight, bias) =
        (cx.tensor(a, "input")?, cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    Ok(cx.b.add(&LayerNorm {
        input,
        weight,
        bias,
        rank: a.sizes("normalized_shape")?.len() as i64,
        epsilon: a.float("eps", Some(1e-5))?,
    })?)
}

fn rms_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome, String> {
    let (input, weight) = (cx.tensor(a, "input")?, cx.optional(a, "weight")?);
    // By default, PyTorch uses the machine epsilon of the compute dtype.
    let machine =
        if dtype_of(input)? == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let v = cx.b.add(&RmsNorm {
        input,
        weight,
        rank: a.sizes("normalized_shape")?.len() as i64,
        epsilon: a.float("eps", Some(machine))?,
    })?;
    cx.one(v)
}

fn group_norm(cx: &mut Cx, a: &Args<'_>, groups: &str) -> Result<Value, String> {
    let (input, weight, bias) =
        (cx.tensor(a, "input")?, cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    Ok(cx.b.add(&GroupNorm {
        input,
        weight,
        bias,
        groups: a.int(groups, None)?,
        epsilon: a.float("eps", Some(1e-5))?,
    })?)
}

fn batch_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Value, String> {
    if a.flag("training", false)? {
        return Err("in training is not supported; export the model in eval mode".into());
    }
    let (input, weight, bias) =
        (cx.tensor(a, "input")?, cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    let (mean, variance) = (cx.tensor(a, "running_mean")?, cx.tensor(a, "running_var")?);
    Ok(cx.b.add(&BatchNorm {
        input,
        mean,
        variance,
        weight,
        bias,
        epsilon: a.float("eps", Some(1e-5))?,
    })?)
}

fn softmax(cx: &mut Cx, a: &Args<'_>, log: bool) -> Result<Outcome, String> {
    let mut x = cx.tensor(a, "self")?;
    if let Some(d) = a.dtype("dtype")? {
        x = cx.convert(x, d)?;
    } else if a.flag("half_to_float", false)? {
        x = cx.convert(x, DType::F32)?;
    }
    let axis = wrap(a.int("dim", None)?, rank_of(x))? as i64;
    let v = if log {
        cx.b.add(&LogSoftmax { input: x, axis })?
    } else {
        cx.b.add(&Softmax { input: x, axis })?
    };
    cx.one(v)
}

fn dropout(_: &mut Cx, a: &Args<'_>) -> Result<Outcome, String> {
    if a.flag("train", true)? && a.float("p", Some(0.5))? > 0.0 {
        return Err("in training is not supported; export the model in eval mode".into());
    }
    Ok(Outcome::One(Val::Tensor(a.alias("input")?)))
}

fn cross_entropy(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome, String> {
    let (logits, target, weight) =
        (cx.tensor(a, "self")?, cx.tensor(a, "target")?, cx.optional(a, "weight")?);
    if dtype_of(target)?.is_float() {
        return Err("with class probabilities is not supported".into());
    }
    let reduction = match a.int("reduction", Some(1))? {
        0 => LossReduction::None,
        1 => LossReduction::Mean,
        _ => LossReduction::Sum,
    };
    let (ignore_index, label_smoothing) =
        (a.int("ignore_index", Some(-100))?, a.float("label_smoothing", Some(0.0))?);
    let v = cx.b.add(&CrossEntropy {
        reduction,
        logits,
        target,
        weight,
        ignore_index,
        label_smoothing,
    })?;
    cx.one(v)
}
