//! Normalisations, softmax, losses.
use super::{
    Args, Cx, Outcome, Row, class_losses::against_probabilities, formula::value, tools::*,
};
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

pub(super) fn layer_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Value> {
    let (input, weight, bias) =
        (cx.tensor(a, "input")?, cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    let (rank, epsilon) = (a.sizes("normalized_shape")?.len(), a.float("eps", Some(1e-5))?);
    if epsilon < 0.0 {
        return by_formula(cx, input, rank, [weight, bias], epsilon, true);
    }
    cx.b.add(&LayerNorm { input, weight, bias, rank: rank as i64, epsilon })
}

/// By default, PyTorch uses the machine epsilon of the compute dtype.
pub(super) fn rms_epsilon(a: &Args<'_>, input: Value) -> Result<f64> {
    let machine =
        if dtype_of(input)? == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    a.float("eps", Some(machine))
}

pub(super) fn rms_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (input, weight) = (cx.tensor(a, "input")?, cx.optional(a, "weight")?);
    let (rank, epsilon) = (a.sizes("normalized_shape")?.len(), rms_epsilon(a, input)?);
    let v = if epsilon < 0.0 {
        by_formula(cx, input, rank, [weight, None], epsilon, false)?
    } else {
        cx.b.add(&RmsNorm { input, weight, rank: rank as i64, epsilon })?
    };
    cx.one(v)
}

/// [N, C, ..] as [N, groups, elements].
pub(super) fn grouped(cx: &mut Cx, x: Value, groups: i64) -> Result<Value> {
    let sizes = cx.b.sizes_of(x)?;
    let (Some(n), Some(rest)) = (sizes.first(), sizes.get(1..)) else {
        return Err("Expected at least 2 dimensions for input tensor".into());
    };
    let all = rest.iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s))?;
    let each = cx.size_div(all, Size::Static(groups))?;
    cx.reshape(x, vec![*n, Size::Static(groups), each])
}

pub(super) fn group_norm(cx: &mut Cx, a: &Args<'_>, groups: &str) -> Result<Value> {
    let (input, weight, bias) =
        (cx.tensor(a, "input")?, cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    let (groups, epsilon) = (a.int(groups, None)?, a.float("eps", Some(1e-5))?);
    if epsilon < 0.0 {
        let split = grouped(cx, input, groups)?;
        let (mean, scale) = statistics(cx, split, &[2], epsilon)?;
        let wide = dtype_of(mean)?;
        let y = value(cx, |f| (f.of(split).to(wide) - f.of(mean)) * f.of(scale))?;
        let y = affine(cx, cx.shaped_as(y, input)?, weight, bias, &[1])?;
        return cx.convert(y, dtype_of(input)?);
    }
    cx.b.add(&GroupNorm { input, weight, bias, groups, epsilon })
}

pub(super) fn batch_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Value> {
    let (input, weight, bias) =
        (cx.tensor(a, "input")?, cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    let (mean, variance) = (cx.tensor(a, "running_mean")?, cx.tensor(a, "running_var")?);
    cx.b.add(&BatchNorm {
        input,
        mean,
        variance,
        weight,
        bias,
        epsilon: a.float("eps", Some(1e-5))?,
    })
}

fn softmax(cx: &mut Cx, a: &Args<'_>, log: bool) -> Result<Outcome> {
    let mut x = cx.tensor(a, "self")?;
    if let Some(d) = a.dtype("dtype")? {
        x = cx.convert(x, d)?;
    } else if a.flag("half_to_float", false)? {
        x = cx.convert(x, DType::F32)?;
    }
    let axis = wrap(a.int("dim", None)?, rank_of(x))? as i64;
    let input = cx.vector(x)?;
    let v = if log {
        cx.b.add(&LogSoftmax { input, axis })?
    } else {
        cx.b.add(&Softmax { safe: false, input, axis })?
    };
    let v = if rank_of(x) == 0 { cx.reshape(v, vec![])? } else { v };
    cx.one(v)
}

fn cross_entropy(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (logits, target, weight) =
        (cx.tensor(a, "self")?, cx.tensor(a, "target")?, cx.optional(a, "weight")?);
    // Of the input's shape: class probabilities.
    if dtype_of(target)?.is_float() {
        return against_probabilities(cx, a);
    }
    let reduction = match a.int("reduction", Some(1))? {
        0 => LossReduction::None,
        1 => LossReduction::Mean,
        _ => LossReduction::Sum,
    };
    let (ignore_index, label_smoothing) =
        (a.int("ignore_index", Some(-100))?, a.float("label_smoothing", Some(0.0))?);
    // One row of classes is a batch of one.
    let one_row = rank_of(logits) == 1;
    let (logits, target) = if one_row {
        let classes = cx.b.size_of(logits, 0)?;
        let target = cx.reshape(target, vec![Size::Static(1)])?;
        (cx.reshape(logits, vec![Size::Static(1), classes])?, target)
    } else {
        (logits, target)
    };
    let mut v = cx.b.add(&CrossEntropy {
        reduction,
        logits,
        target,
        weight,
        ignore_index,
        label_smoothing,
    })?;
    if one_row && rank_of(v) > 0 {
        v = cx.reshape(v, vec![])?;
    }
    cx.one(v)
}

/// Mean and reciprocal standard deviation over dimensions, which stay as size 1; in the wide dtype.
pub(super) fn statistics(cx: &Cx, x: Value, dims: &[i64], epsilon: f64) -> Result<(Value, Value)> {
    let x = cx.convert(x, statistics_dtype(dtype_of(x)?))?;
    let mean = cx.b.add(&Mean { input: x, dims: dims.to_vec(), keep_dims: true })?;
    let variance = variance(cx, x, dims)?;
    let scale = value(cx, |f| 1.0 / (f.of(variance) + epsilon).sqrt())?;
    Ok((mean, scale))
}

/// The biased variance over dimensions, which stay as size 1.
pub(super) fn variance(cx: &Cx, x: Value, dims: &[i64]) -> Result<Value> {
    let (dims, correction) = (dims.to_vec(), 0.0);
    cx.b.add(&Var { input: x, dims, keep_dims: true, correction })
}

/// `x * weight + bias` with parameters along `dims` of `x`, computed wide.
pub(super) fn affine(
    cx: &Cx,
    x: Value,
    weight: Option<Value>,
    bias: Option<Value>,
    dims: &[i64],
) -> Result<Value> {
    let sizes = cx.b.sizes_of(x)?;
    let mut y = x;
    for (p, kind) in [(weight, BinaryKind::Mul), (bias, BinaryKind::Add)] {
        let Some(p) = p else { continue };
        let p = cx.convert(p, dtype_of(x)?)?;
        y = cx.binary(kind, y, along(cx, p, dims.to_vec(), &sizes)?)?;
    }
    Ok(y)
}

/// `(x - mean) / sqrt(var + eps)` by its formula: a negative `eps` gives NaN where the sum is below 0.
pub(super) fn by_formula(
    cx: &Cx,
    x: Value,
    rank: usize,
    parameters: [Option<Value>; 2],
    epsilon: f64,
    centred: bool,
) -> Result<Value> {
    let narrow = dtype_of(x)?;
    let x = cx.convert(x, statistics_dtype(narrow))?;
    let n = rank_of(x) as i64;
    let dims: Vec<i64> = (n - rank as i64..n).collect();
    let y = if centred {
        let (mean, scale) = statistics(cx, x, &dims, epsilon)?;
        value(cx, |f| (f.of(x) - f.of(mean)) * f.of(scale))?
    } else {
        let scale = root_mean_square(cx, x, &dims, epsilon)?;
        value(cx, |f| f.of(x) * f.of(scale))?
    };
    let y = affine(cx, y, parameters[0], parameters[1], &dims)?;
    cx.convert(y, narrow)
}

/// `1 / sqrt(mean x^2 + eps)` over dimensions, which stay as size 1.
pub(super) fn root_mean_square(cx: &Cx, x: Value, dims: &[i64], epsilon: f64) -> Result<Value> {
    let square = cx.binary(BinaryKind::Mul, x, x)?;
    let mean = cx.b.add(&Mean { input: square, dims: dims.to_vec(), keep_dims: true })?;
    value(cx, |f| 1.0 / (f.of(mean) + epsilon).sqrt())
}
