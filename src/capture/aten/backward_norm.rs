//! Derivatives of normalisations.
use super::{Args, Cx, Outcome, Row, Val, formula::value, norm::grouped, tools::*};
use kiln_dialects::{ir::*, ops::*};
use kiln_passes::differentiate::normalised;

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.native_layer_norm_backward.default",
        arguments: "grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask",
        build: |cx, a| layer_norm(cx, a, true),
    },
    Row {
        name: "aten._fused_rms_norm_backward.default",
        arguments: "grad_out, input, normalized_shape, rstd, weight, output_mask",
        build: |cx, a| layer_norm(cx, a, false),
    },
    Row {
        name: "aten.native_group_norm_backward.default",
        arguments: "grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask",
        build: group_norm,
    },
    Row {
        name: "aten.native_batch_norm_backward.default",
        arguments: "grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask",
        build: |cx, a| batch_norm(cx, a, a.flag("train", true)?),
    },
    Row {
        name: "aten.batch_norm_backward.default",
        arguments: "grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask, reserve",
        build: |cx, a| batch_norm(cx, a, a.flag("update", true)?),
    },
];

/// The results that the mask asks for.
pub(super) fn masked(cx: &mut Cx, a: &Args<'_>, all: Vec<Option<Value>>) -> Result<Outcome> {
    let wanted = |k: usize| match a.values.get("output_mask") {
        Some(Val::List(mask)) => !matches!(mask.get(k), Some(Val::Bool(false))),
        _ => true,
    };
    let one = |(k, v): (usize, Option<Value>)| match v.filter(|_| wanted(k)) {
        Some(v) => Val::Tensor(cx.store.fresh(v)),
        None => Val::None,
    };
    Ok(Outcome::Many(all.into_iter().enumerate().map(one).collect()))
}

fn sum(cx: &Cx, v: Value, dims: Vec<i64>) -> Result<Value> {
    cx.b.add(&Reduce { kind: ReduceKind::Sum, input: v, dims, maybe_empty: true })
}

fn layer_norm(cx: &mut Cx, a: &Args<'_>, centred: bool) -> Result<Outcome> {
    let x = cx.tensor(a, "input")?;
    let narrow = dtype_of(x)?;
    let d = statistics_dtype(narrow);
    let (g, scale) = (cx.tensor(a, "grad_out")?, cx.tensor(a, "rstd")?);
    let (x, g, scale) = (cx.convert(x, d)?, cx.convert(g, d)?, cx.convert(scale, d)?);
    let n = rank_of(x) as i64;
    let first = n - a.sizes("normalized_shape")?.len() as i64;
    let (dims, lead): (Vec<i64>, Vec<i64>) = ((first..n).collect(), (0..first).collect());
    let y = if centred {
        let mean = cx.tensor(a, "mean")?;
        let mean = cx.convert(mean, d)?;
        value(cx, |f| (f.of(x) - f.of(mean)) * f.of(scale))?
    } else {
        value(cx, |f| f.of(x) * f.of(scale))?
    };
    let weight = cx.optional(a, "weight")?;
    let by_y = match weight {
        Some(w) => {
            let w = along(cx, cx.convert(w, d)?, dims.clone(), &cx.b.sizes_of(x)?)?;
            cx.binary(BinaryKind::Mul, g, w)?
        }
        None => g,
    };
    let by_x = cx.convert(normalised(&cx.b, by_y, y, scale, &dims, centred)?, narrow)?;
    let by_weight = match weight {
        Some(w) => {
            let v = sum(cx, cx.binary(BinaryKind::Mul, g, y)?, lead.clone())?;
            Some(cx.convert(v, dtype_of(w)?)?)
        }
        None => None,
    };
    if !centred {
        return masked(cx, a, vec![Some(by_x), by_weight]);
    }
    let by_bias = match cx.optional(a, "bias")? {
        Some(bias) => Some(cx.convert(sum(cx, g, lead)?, dtype_of(bias)?)?),
        None => None,
    };
    masked(cx, a, vec![Some(by_x), by_weight, by_bias])
}

fn group_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let input = cx.tensor(a, "input")?;
    let narrow = dtype_of(input)?;
    let d = statistics_dtype(narrow);
    let (g, mean, scale) =
        (cx.tensor(a, "grad_out")?, cx.tensor(a, "mean")?, cx.tensor(a, "rstd")?);
    let (x, g) = (cx.convert(input, d)?, cx.convert(g, d)?);
    let groups = a.int("group", None)?;
    let sizes = cx.b.sizes_of(x)?;
    let statistic = vec![cx.b.size_of(x, 0)?, Size::Static(groups), Size::Static(1)];
    let mean = cx.reshape(cx.convert(mean, d)?, statistic.clone())?;
    let scale = cx.reshape(cx.convert(scale, d)?, statistic)?;
    let weight = cx.optional(a, "weight")?;
    let by_y = match weight {
        Some(w) => {
            let w = along(cx, cx.convert(w, d)?, vec![1], &sizes)?;
            cx.binary(BinaryKind::Mul, g, w)?
        }
        None => g,
    };
    let split = grouped(cx, x, groups)?;
    let y = value(cx, |f| (f.of(split) - f.of(mean)) * f.of(scale))?;
    let by_y = grouped(cx, by_y, groups)?;
    let by_x = normalised(&cx.b, by_y, y, scale, &[2], true)?;
    let by_x = cx.convert(cx.reshape(by_x, sizes.clone())?, narrow)?;
    let others: Vec<i64> = (0..rank_of(x) as i64).filter(|d| *d != 1).collect();
    let y = cx.reshape(y, sizes)?;
    let to = match weight {
        Some(w) => dtype_of(w)?,
        None => narrow,
    };
    let by_weight = sum(cx, cx.binary(BinaryKind::Mul, g, y)?, others.clone())?;
    let by_bias = sum(cx, g, others)?;
    let (by_weight, by_bias) = (cx.convert(by_weight, to)?, cx.convert(by_bias, to)?);
    masked(cx, a, vec![Some(by_x), Some(by_weight), Some(by_bias)])
}

fn batch_norm(cx: &mut Cx, a: &Args<'_>, train: bool) -> Result<Outcome> {
    let input = cx.tensor(a, "input")?;
    let narrow = dtype_of(input)?;
    let d = statistics_dtype(narrow);
    let g = cx.tensor(a, "grad_out")?;
    let (x, g) = (cx.convert(input, d)?, cx.convert(g, d)?);
    let n = rank_of(x) as i64;
    let mut shape = vec![Size::Static(1); rank_of(x)];
    if let Some(channels) = shape.get_mut(1) {
        *channels = cx.b.size_of(x, 1)?;
    }
    let (mean, scale) = if train {
        let scale = if a.has("save_invstd") { "save_invstd" } else { "save_var" };
        let (mean, scale) = (cx.tensor(a, "save_mean")?, cx.tensor(a, scale)?);
        (cx.convert(mean, d)?, cx.convert(scale, d)?)
    } else {
        let (mean, variance) = (cx.tensor(a, "running_mean")?, cx.tensor(a, "running_var")?);
        let (mean, variance) = (cx.convert(mean, d)?, cx.convert(variance, d)?);
        let epsilon = a.float("eps", Some(1e-5))?;
        (mean, value(cx, |f| 1.0 / (f.of(variance) + epsilon).sqrt())?)
    };
    let (mean, scale) = (cx.reshape(mean, shape.clone())?, cx.reshape(scale, shape.clone())?);
    let weight = cx.optional(a, "weight")?;
    let y = value(cx, |f| (f.of(x) - f.of(mean)) * f.of(scale))?;
    let others: Vec<i64> = (0..n).filter(|d| *d != 1).collect();
    // Of a channel the weight is a constant, so that the gradient of x needs no other sums.
    let by_weight = sum(cx, cx.binary(BinaryKind::Mul, g, y)?, others.clone())?;
    let by_bias = sum(cx, g, others.clone())?;
    let scale = match weight {
        Some(w) => {
            let w = cx.reshape(cx.convert(w, d)?, shape.clone())?;
            cx.binary(BinaryKind::Mul, scale, w)?
        }
        None => scale,
    };
    let by_x = if train {
        let sizes = others.iter().map(|i| cx.b.size_of(x, *i as usize));
        let elements = cx.size_product(&sizes.collect::<Result<Vec<_>, _>>()?)?;
        let count = match elements.known() {
            Some(n) => cx.number(d, n as f64)?,
            None => cx.convert(cx.size_value(elements)?, d)?,
        };
        let (along_y, level) = (cx.reshape(by_weight, shape.clone())?, cx.reshape(by_bias, shape)?);
        value(cx, |f| {
            let (along_y, level) = (f.of(along_y) / f.of(count), f.of(level) / f.of(count));
            (f.of(g) - level - f.of(y) * along_y) * f.of(scale)
        })?
    } else {
        cx.binary(BinaryKind::Mul, g, scale)?
    };
    let by_x = cx.convert(by_x, narrow)?;
    let to = match weight {
        Some(w) => dtype_of(w)?,
        None => d,
    };
    let (by_weight, by_bias) = (cx.convert(by_weight, to)?, cx.convert(by_bias, to)?);
    masked(cx, a, vec![Some(by_x), Some(by_weight), Some(by_bias)])
}
