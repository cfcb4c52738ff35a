//! Normalisations that give or update statistics, and those without an op of their own.
use super::{
    Args, Cx, Outcome, Row, Val,
    distances::distance,
    formula::value,
    formula::*,
    norm::{
        affine, group_norm, grouped, layer_norm, rms_epsilon, rms_norm, root_mean_square,
        statistics, variance,
    },
    promote::promote,
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.native_layer_norm.default",
        arguments: "input, normalized_shape, weight, bias, eps",
        build: native_layer_norm,
    },
    Row {
        name: "aten._fused_rms_norm.default",
        arguments: "input, normalized_shape, weight, eps",
        build: fused_rms_norm,
    },
    Row {
        name: "aten.native_group_norm.default",
        arguments: "input, weight, bias, N, C, HxW, group, eps",
        build: native_group_norm,
    },
    Row {
        name: "aten.batch_norm.default",
        arguments: "input, weight, bias, running_mean, running_var, training, momentum, eps",
        build: |cx, a| {
            let x = cx.tensor(a, "input")?;
            if x.ty().dims().iter().any(|n| n.known() == Some(0)) {
                // Of any rank, and without an update.
                return cx.one(x);
            }
            let n = batch_norm(cx, a, a.flag("training", false)?)?;
            n.update(cx, a)?;
            cx.one(n.y)
        },
    },
    Row {
        name: "aten.native_batch_norm.default",
        arguments: "input, weight, bias, running_mean, running_var, training, momentum, eps",
        build: |cx, a| {
            let n = batch_norm(cx, a, a.flag("training", false)?)?;
            n.update(cx, a)?;
            let (mean, scale) = n.saved(cx)?;
            cx.many(&[n.y, mean, scale])
        },
    },
    Row {
        name: "aten._native_batch_norm_legit.default",
        arguments: "input, weight, bias, running_mean, running_var, training, momentum, eps",
        build: |cx, a| {
            let n = batch_norm(cx, a, a.flag("training", false)?)?;
            n.update(cx, a)?;
            let (mean, scale) = n.saved(cx)?;
            cx.many(&[n.y, mean, scale])
        },
    },
    Row {
        name: "aten._native_batch_norm_legit.no_stats",
        arguments: "input, weight, bias, training, momentum, eps",
        build: |cx, a| {
            let n = batch_norm(cx, a, true)?;
            let (mean, scale) = n.saved(cx)?;
            cx.many(&[n.y, mean, scale])
        },
    },
    Row {
        name: "aten._native_batch_norm_legit_no_training.default",
        arguments: "input, weight, bias, running_mean, running_var, momentum, eps",
        build: |cx, a| {
            let n = batch_norm(cx, a, false)?;
            let (mean, scale) = n.saved(cx)?;
            cx.many(&[n.y, mean, scale])
        },
    },
    Row {
        name: "aten._native_batch_norm_legit_functional.default",
        arguments: "input, weight, bias, running_mean, running_var, training, momentum, eps",
        build: |cx, a| {
            let n = batch_norm(cx, a, a.flag("training", false)?)?;
            let (mean, scale) = n.saved(cx)?;
            let (new_mean, new_variance) = n.updated(cx, a)?;
            cx.many(&[n.y, mean, scale, new_mean, new_variance])
        },
    },
    Row {
        name: "aten._batch_norm_with_update.default",
        arguments: "input, weight, bias, running_mean, running_var, momentum, eps",
        build: |cx, a| {
            let n = batch_norm(cx, a, true)?;
            n.update(cx, a)?;
            let (mean, scale) = n.saved(cx)?;
            let reserve = cx.b.splat(DType::UI8, &[Size::Static(0)], 0.0)?;
            cx.many(&[n.y, mean, scale, reserve])
        },
    },
    Row {
        name: "aten._batch_norm_with_update_functional.default",
        arguments: "input, weight, bias, running_mean, running_var, momentum, eps",
        build: |cx, a| {
            let n = batch_norm(cx, a, true)?;
            let (mean, scale) = n.saved(cx)?;
            let (new_mean, new_variance) = n.updated(cx, a)?;
            let reserve = cx.b.splat(DType::UI8, &[Size::Static(0)], 0.0)?;
            cx.many(&[n.y, mean, scale, reserve, new_mean, new_variance])
        },
    },
    Row {
        name: "aten._batch_norm_no_update.default",
        arguments: "input, weight, bias, running_mean, running_var, momentum, eps",
        build: |cx, a| {
            let n = batch_norm(cx, a, !a.has("running_mean"))?;
            let (mean, scale) = n.saved(cx)?;
            let reserve = cx.b.splat(DType::UI8, &[Size::Static(0)], 0.0)?;
            cx.many(&[n.y, mean, scale, reserve])
        },
    },
    Row {
        name: "aten.instance_norm.default",
        arguments: "input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled",
        build: instance_norm,
    },
    Row {
        name: "aten._weight_norm.default",
        arguments: "v, g, dim=0",
        build: |cx, a| {
            let (w, _) = weight_norm(cx, a)?;
            cx.one(w)
        },
    },
    Row {
        name: "aten._weight_norm_interface.default",
        arguments: "v, g, dim=0",
        build: |cx, a| {
            let (w, norm) = weight_norm(cx, a)?;
            cx.many(&[w, norm])
        },
    },
    Row {
        name: "aten.cosine_similarity.default",
        arguments: "x1, x2, dim=1, eps=1e-8",
        build: cosine_similarity,
    },
    Row {
        name: "aten.pairwise_distance.default",
        arguments: "x1, x2, p=2, eps=1e-6, keepdim=False",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "x1", "x2")?;
            let p = a.float("p", Some(2.0))?;
            let (eps, keepdim) = (a.float("eps", Some(1e-6))?, a.flag("keepdim", false)?);
            let d = distance(cx, x, y, p, eps, keepdim)?;
            cx.one(d)
        },
    },
];

/// The dtype of saved statistics: that of the input, or of wider parameters.
fn saved_dtype(x: Value, parameters: [Option<Value>; 2]) -> Result<DType> {
    match parameters.into_iter().flatten().next() {
        Some(p) => dtype_of(p),
        None => dtype_of(x),
    }
}

fn native_layer_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, weight, bias) =
        (cx.tensor(a, "input")?, cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    let y = layer_norm(cx, a)?;
    let rank = a.sizes("normalized_shape")?.len() as i64;
    let n = rank_of(x) as i64;
    let dims: Vec<i64> = (n - rank..n).collect();
    let (mean, scale) = statistics(cx, x, &dims, a.float("eps", Some(1e-5))?)?;
    // Wide on GPUs whatever the input is.
    let wide = statistics_dtype(dtype_of(x)?);
    let d = match cx.declared.get(1).and_then(|d| d.dtype) {
        Some(d) if d == wide => wide,
        _ => saved_dtype(x, [weight, bias])?,
    };
    let (mean, scale) = (cx.convert(mean, d)?, cx.convert(scale, d)?);
    cx.many(&[y, mean, scale])
}

fn fused_rms_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "input")?;
    let y = rms_norm(cx, a)?;
    let rank = a.sizes("normalized_shape")?.len() as i64;
    let n = rank_of(x) as i64;
    let wide = cx.convert(x, statistics_dtype(dtype_of(x)?))?;
    let epsilon = rms_epsilon(a, x)?;
    let scale = root_mean_square(cx, wide, &(n - rank..n).collect::<Vec<_>>(), epsilon)?;
    let Outcome::One(y) = y else { return Err("has more than one result".into()) };
    let scale = Val::Tensor(cx.store.fresh(scale));
    Ok(Outcome::Many(vec![y, scale]))
}

fn native_group_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, weight, bias) =
        (cx.tensor(a, "input")?, cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    let y = group_norm(cx, a, "group")?;
    let (groups, epsilon) = (a.int("group", None)?, a.float("eps", Some(1e-5))?);
    let split = grouped(cx, x, groups)?;
    let (mean, scale) = statistics(cx, split, &[2], epsilon)?;
    let d = saved_dtype(x, [weight, bias])?;
    let shape = vec![cx.b.size_of(x, 0)?, Size::Static(groups)];
    let mean = cx.convert(cx.reshape(mean, shape.clone())?, d)?;
    let scale = cx.convert(cx.reshape(scale, shape)?, d)?;
    cx.many(&[y, mean, scale])
}

/// A batch normalisation and the batch's statistics [C], in the wide dtype; none in inference.
struct BatchNormed {
    y: Value,
    statistics: Option<(Value, Value, Size)>,
    /// Mean and variance that inference gives to the backward pass, as it does on GPUs.
    running: Option<(Value, Value)>,
    epsilon: f64,
    saved: DType,
}

/// The dtype of a batch normalisation's saved statistics: wide on GPUs, the parameters' dtype on
/// processors. The graph gives the input's dtype there.
fn saved_statistics(cx: &mut Cx, a: &Args<'_>, x: Value) -> Result<DType> {
    let narrow = dtype_of(x)?;
    let wide = statistics_dtype(narrow);
    if cx.declared.get(1).and_then(|d| d.dtype).is_none_or(|d| d == wide) {
        return Ok(wide);
    }
    for name in ["weight", "bias", "running_mean"] {
        if let Some(p) = cx.optional(a, name)? {
            return dtype_of(p);
        }
    }
    Ok(narrow)
}

/// `kiln.batch_norm`, whose derivative is short; it has no negative epsilon.
fn normalised_by(
    cx: &Cx,
    input: Value,
    (mean, variance): (Value, Value),
    [weight, bias]: [Option<Value>; 2],
    epsilon: f64,
) -> Result<Value> {
    let d = dtype_of(input)?;
    let wide = |p: Option<Value>| p.map(|p| cx.convert(p, d)).transpose();
    let (weight, bias) = (wide(weight)?, wide(bias)?);
    if epsilon >= 0.0 {
        return cx.b.add(&BatchNorm { input, mean, variance, weight, bias, epsilon });
    }
    let sizes = cx.b.sizes_of(input)?;
    let mean = along(cx, mean, vec![1], &sizes)?;
    let variance = along(cx, variance, vec![1], &sizes)?;
    let y = value(cx, |f| (f.of(input) - f.of(mean)) / (f.of(variance) + epsilon).sqrt())?;
    affine(cx, y, weight, bias, &[1])
}

fn batch_norm(cx: &mut Cx, a: &Args<'_>, training: bool) -> Result<BatchNormed> {
    let x = cx.tensor(a, "input")?;
    let epsilon = a.float("eps", Some(1e-5))?;
    let saved = saved_statistics(cx, a, x)?;
    if !training {
        let y = super::norm::batch_norm(cx, a)?;
        let given = cx.declared.get(1).and_then(|d| d.sizes.first().copied());
        let running = match given {
            Some(n) if n != Some(0) => {
                let d = statistics_dtype(dtype_of(x)?);
                let (mean, variance) =
                    (cx.tensor(a, "running_mean")?, cx.tensor(a, "running_var")?);
                Some((cx.convert(mean, d)?, cx.convert(variance, d)?))
            }
            _ => None,
        };
        return Ok(BatchNormed { y, statistics: None, running, epsilon, saved });
    }
    let (weight, bias) = (cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    let n = rank_of(x) as i64;
    if n < 2 {
        return Err(format!("expects an input of rank 2 or more, has rank {n}").into());
    }
    let narrow = dtype_of(x)?;
    let wide = cx.convert(x, statistics_dtype(narrow))?;
    let dims: Vec<i64> = (0..n).filter(|d| *d != 1).collect();
    let mean = cx.b.add(&Mean { input: wide, dims: dims.clone(), keep_dims: true })?;
    let spread = variance(cx, wide, &dims)?;
    let sizes = cx.b.sizes_of(x)?;
    let mut count = Size::Static(1);
    for d in &dims {
        count = cx.size_mul(count, *sizes.get(*d as usize).ok_or("has no such dimension")?)?;
    }
    let channels = vec![cx.b.size_of(x, 1)?];
    let (mean, spread) = (cx.reshape(mean, channels.clone())?, cx.reshape(spread, channels)?);
    let y = normalised_by(cx, wide, (mean, spread), [weight, bias], epsilon)?;
    let y = cx.convert(y, narrow)?;
    let statistics = Some((mean, spread, count));
    Ok(BatchNormed { y, statistics, running: None, epsilon, saved })
}

impl BatchNormed {
    /// Mean and reciprocal standard deviation for the backward pass; empty in inference on
    /// processors.
    fn saved(&self, cx: &Cx) -> Result<(Value, Value)> {
        let d = self.saved;
        let batch = self.statistics.map(|(mean, variance, _)| (mean, variance));
        let Some((mean, variance)) = batch.or(self.running) else {
            let none = cx.b.splat(d, &[Size::Static(0)], 0.0)?;
            return Ok((none, none));
        };
        let scale = value(cx, |f| 1.0 / (f.of(variance) + self.epsilon).sqrt())?;
        Ok((cx.convert(mean, d)?, cx.convert(scale, d)?))
    }
    /// The running statistics after this batch.
    fn updated(&self, cx: &mut Cx, a: &Args<'_>) -> Result<(Value, Value)> {
        let (mean, variance) = (cx.tensor(a, "running_mean")?, cx.tensor(a, "running_var")?);
        let Some((batch_mean, batch_variance, count)) = self.statistics else {
            return Ok((mean, variance));
        };
        let momentum = a.float("momentum", Some(0.1))?;
        let d = dtype_of(batch_mean)?;
        let count = cx.b.size_as_tensor(count, d)?;
        let step = |old: Value, new: Value| {
            let to = dtype_of(old)?;
            let old = cx.convert(old, d)?;
            let v = value(cx, |f| f.of(old) * (1.0 - momentum) + f.of(new) * momentum)?;
            cx.convert(v, to)
        };
        let unbiased = value(cx, |f| {
            let n = f.of(count);
            f.of(batch_variance) * (n / (n - 1.0))
        })?;
        Ok((step(mean, batch_mean)?, step(variance, unbiased)?))
    }
    /// Writes the running statistics, if there are any.
    fn update(&self, cx: &mut Cx, a: &Args<'_>) -> Result<()> {
        let updates = self.statistics.is_some() && a.float("momentum", Some(0.1))? != 0.0;
        if !updates || !a.has("running_mean") || !a.has("running_var") {
            return Ok(());
        }
        let (mean, variance) = self.updated(cx, a)?;
        cx.store.write(&cx.b, a.alias("running_mean")?, mean)?;
        cx.store.write(&cx.b, a.alias("running_var")?, variance)
    }
}

/// Normalises each channel of each element of the batch; running statistics are means over the batch.
fn instance_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    if !a.flag("use_input_stats", true)? {
        let y = super::norm::batch_norm(cx, a)?;
        return cx.one(y);
    }
    let x = cx.tensor(a, "input")?;
    let (weight, bias) = (cx.optional(a, "weight")?, cx.optional(a, "bias")?);
    let narrow = dtype_of(x)?;
    let wide = cx.convert(x, statistics_dtype(narrow))?;
    let n = rank_of(x) as i64;
    let dims: Vec<i64> = (2..n).collect();
    let epsilon = a.float("eps", Some(1e-5))?;
    let mean = cx.b.add(&Mean { input: wide, dims: dims.clone(), keep_dims: true })?;
    let spread = variance(cx, wide, &dims)?;
    let y = value(cx, |f| (f.of(wide) - f.of(mean)) / (f.of(spread) + epsilon).sqrt())?;
    let y = cx.convert(affine(cx, y, weight, bias, &[1])?, narrow)?;
    let momentum = a.float("momentum", Some(0.1))?;
    if momentum != 0.0 && a.has("running_mean") && a.has("running_var") {
        let sizes = cx.b.sizes_of(x)?;
        let pixels = sizes.iter().skip(2).try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s))?;
        let count = cx.b.size_as_tensor(pixels, dtype_of(wide)?)?;
        let channels = vec![cx.b.size_of(x, 1)?];
        let unbiased = value(cx, |f| f.of(spread) * (f.of(count) / (f.of(count) - 1.0)))?;
        for (name, new) in [("running_mean", mean), ("running_var", unbiased)] {
            let over = [vec![0], dims.clone()].concat();
            let new = cx.b.add(&Mean { input: new, dims: over, keep_dims: false })?;
            let new = cx.reshape(new, channels.clone())?;
            let old = cx.tensor(a, name)?;
            let d = dtype_of(old)?;
            let new = cx.convert(new, d)?;
            let v = value(cx, |f| f.of(old) * (1.0 - momentum) + f.of(new) * momentum)?;
            cx.store.write(&cx.b, a.alias(name)?, v)?;
        }
    }
    cx.one(y)
}

/// `v * g / |v|` and `|v|`, the norm over all dimensions but one.
fn weight_norm(cx: &mut Cx, a: &Args<'_>) -> Result<(Value, Value)> {
    let (v, g) = (cx.tensor(a, "v")?, cx.tensor(a, "g")?);
    let dim = a.int("dim", Some(0))?;
    let rank = rank_of(v);
    let stays = if dim == -1 { None } else { Some(wrap(dim, rank)? as i64) };
    let dims: Vec<i64> = (0..rank as i64).filter(|d| Some(*d) != stays).collect();
    let narrow = dtype_of(v)?;
    let wide = cx.convert(v, statistics_dtype(narrow))?;
    let norm =
        value(cx, |f| (f.of(wide) * f.of(wide)).reduce(ReduceKind::Sum, &dims, true).sqrt())?;
    let gain = cx.convert(g, dtype_of(wide)?)?;
    let w = value(cx, |f| f.of(wide) * (f.of(gain) / f.of(norm)))?;
    // Without a dimension the norm is 0-d.
    let norm = if stays.is_none() { cx.reshape(norm, vec![])? } else { norm };
    Ok((cx.convert(w, narrow)?, cx.convert(norm, dtype_of(g)?)?))
}

/// `x . y / (max(|x|, eps) max(|y|, eps))` along a dimension.
pub(super) fn cosine<'f>(x: Term<'f>, y: Term<'f>, dim: i64, epsilon: f64) -> Term<'f> {
    let unit = |x: Term<'f>| {
        let norm = (x * x).reduce(ReduceKind::Sum, &[dim], true).sqrt();
        x / norm.max(epsilon)
    };
    (unit(x) * unit(y)).reduce(ReduceKind::Sum, &[dim], false)
}

fn cosine_similarity(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    // Of tensors without dimensions too, unlike elementwise ops.
    let (x, y) = (cx.tensor(a, "x1")?, cx.tensor(a, "x2")?);
    let common = promote(dtype_of(x)?, dtype_of(y)?);
    let (x, y) = cx.broadcast(cx.convert(x, common)?, cx.convert(y, common)?)?;
    let rank = rank_of(x);
    let dim = wrap(a.int("dim", Some(1))?, rank)? as i64;
    let (x, y) = (cx.vector(x)?, cx.vector(y)?);
    let epsilon = a.float("eps", Some(1e-8))?;
    let narrow = dtype_of(x)?;
    let (x, y) =
        (cx.convert(x, statistics_dtype(narrow))?, cx.convert(y, statistics_dtype(narrow))?);
    let v = value(cx, |f| cosine(f.of(x), f.of(y), dim, epsilon))?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}
