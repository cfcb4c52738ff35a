//! Dropout in all forms, and leaky ReLU of random slope.
use super::{
    Args, Cx, Outcome, Row, Val, cuda_draws,
    formula::{pair, value},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.dropout.default", arguments: "input, p, train", build: dropout },
    Row {
        name: "kiln.dropout",
        arguments: "input, key, p",
        build: |cx, a| {
            let (input, key) = (cx.tensor(a, "input")?, cx.tensor(a, "key")?);
            let v = cx.b.add(&Dropout { input, key, p: probability(a)? })?;
            cx.one(v)
        },
    },
    Row { name: "aten.feature_dropout.default", arguments: "input, p, train", build: of_channels },
    Row { name: "aten.alpha_dropout.default", arguments: "input, p, train", build: alpha },
    Row {
        name: "aten.feature_alpha_dropout.default",
        arguments: "input, p, train",
        build: alpha_of_channels,
    },
    Row { name: "aten.native_dropout.default", arguments: "input, p, train", build: with_mask },
    Row {
        name: "aten.rrelu.default",
        arguments: "self, lower=0.125, upper=0.3333333333333333, training=False",
        build: |cx, a| {
            let (v, _) = random_slope(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.rrelu_with_noise.default",
        arguments: "self, noise, lower=0.125, upper=0.3333333333333333, training=False",
        build: |cx, a| {
            let (v, slopes) = random_slope(cx, a)?;
            let noise = a.alias("noise")?;
            cx.store.write(&cx.b, noise, slopes)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.rrelu_with_noise_functional.default",
        arguments: "self, noise, lower=0.125, upper=0.3333333333333333, training=False",
        build: |cx, a| {
            let (v, slopes) = random_slope(cx, a)?;
            cx.many(&[v, slopes])
        },
    },
];

/// `x > 0 ? x : s x` with s uniform in [lower, upper), outside of training their mean; and the
/// slopes, 1 where x is positive.
fn random_slope(cx: &mut Cx, a: &Args<'_>) -> Result<(Value, Value)> {
    let x = cx.tensor(a, "self")?;
    let bounds = (a.float("lower", Some(0.125))?, a.float("upper", Some(1.0 / 3.0))?);
    let (sizes, d) = (cx.b.sizes_of(x)?, dtype_of(x)?);
    let slopes = if a.flag("training", false)? {
        cx.random_uniform(d, sizes, bounds)?
    } else {
        cx.full_like(x, (bounds.0 + bounds.1) / 2.0)?
    };
    pair(cx, |f| {
        let slopes = f.of(x).gt(0.0).select(1.0, f.of(slopes));
        (f.of(x) * slopes, slopes)
    })
}

fn probability(a: &Args<'_>) -> Result<f64> {
    let p = a.float("p", Some(0.5))?;
    if (0.0..=1.0).contains(&p) {
        return Ok(p);
    }
    Err(format!("dropout probability has to be between 0 and 1, but got {p}").into())
}

/// The probability with which elements are dropped; None if the op is the identity.
fn drops(a: &Args<'_>) -> Result<Option<f64>> {
    let p = probability(a)?;
    let train = a.flag("train", true)?;
    Ok(Some(p).filter(|p| train && *p > 0.0))
}

fn identity(a: &Args<'_>) -> Result<Outcome> {
    Ok(Outcome::One(Val::Tensor(a.alias("input")?)))
}

/// `x / (1 - p)` with probability 1 - p, else 0.
pub(super) fn dropped(cx: &mut Cx, input: Value, p: f64) -> Result<Value> {
    if p == 1.0 {
        return cx.full_like(input, 0.0);
    }
    let key = cx.random_key()?;
    cx.b.add(&Dropout { input, key, p })
}

fn dropout(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let Some(p) = drops(a)? else { return identity(a) };
    let x = cx.tensor(a, "input")?;
    let v = if cx.follows_cuda() { cuda_draws::dropout(cx, x, p)?.0 } else { dropped(cx, x, p)? };
    cx.one(v)
}

/// Whether each element of a shape is kept, for inputs of a dtype.
fn kept(cx: &mut Cx, d: DType, sizes: Vec<Size>, p: f64) -> Result<Value> {
    if cx.follows_cuda() {
        // PyTorch does not draw where it drops all.
        return match p == 1.0 {
            true => cx.b.splat(DType::I1, &sizes, 0.0),
            false => cuda_draws::bernoulli(cx, d, &sizes, 1.0 - p),
        };
    }
    let u = cx.random_uniform(DType::F32, sizes, (0.0, 1.0))?;
    let p = cx.number(DType::F32, p)?;
    cx.compare(CompareKind::Ge, u, p)
}

/// The shape of a mask that holds for whole channels of [N, C, ...].
fn channels(cx: &Cx, x: Value) -> Result<Vec<Size>> {
    let mut sizes = cx.b.sizes_of(x)?;
    if sizes.len() < 2 {
        return Err("Feature dropout requires at least 2 dimensions in the input".into());
    }
    sizes.iter_mut().skip(2).for_each(|s| *s = Size::Static(1));
    Ok(sizes)
}

fn scaled(cx: &mut Cx, x: Value, mask: Value, p: f64) -> Result<Value> {
    let scale = if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
    value(cx, |f| f.of(mask).select(f.of(x) * scale, 0.0))
}

fn of_channels(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let Some(p) = drops(a)? else { return identity(a) };
    let x = cx.tensor(a, "input")?;
    let mask = kept(cx, dtype_of(x)?, channels(cx, x)?, p)?;
    let v = scaled(cx, x, mask, p)?;
    cx.one(v)
}

/// The result and the mask, for a backward pass. `train` may be None, which trains.
fn with_mask(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "input")?;
    let sizes = cx.b.sizes_of(x)?;
    let Some(p) = drops(a)? else {
        let all = cx.b.splat(DType::I1, &sizes, 1.0)?;
        return cx.many(&[x, all]);
    };
    if cx.follows_cuda() {
        let (v, mask) = cuda_draws::dropout(cx, x, p)?;
        return cx.many(&[v, mask]);
    }
    let mask = kept(cx, dtype_of(x)?, sizes, p)?;
    let v = scaled(cx, x, mask, p)?;
    cx.many(&[v, mask])
}

/// Klambauer et al., Self-Normalizing Neural Networks, 2017: dropped elements take SELU's lower
/// limit, and an affine map keeps mean and variance.
fn self_normalising(cx: &mut Cx, x: Value, mask: Value, p: f64) -> Result<Value> {
    const LIMIT: f64 = -1.758_099_340_847_376_6;
    if p == 1.0 {
        return cx.full_like(x, 0.0);
    }
    let scale = 1.0 / ((LIMIT * LIMIT * p + 1.0) * (1.0 - p)).sqrt();
    let shift = -scale * LIMIT * p;
    value(cx, |f| f.of(mask).select(f.of(x), LIMIT) * scale + shift)
}

fn alpha(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let Some(p) = drops(a)? else { return identity(a) };
    let x = cx.tensor(a, "input")?;
    let mask = kept(cx, dtype_of(x)?, cx.b.sizes_of(x)?, p)?;
    let v = self_normalising(cx, x, mask, p)?;
    cx.one(v)
}

fn alpha_of_channels(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let Some(p) = drops(a)? else { return identity(a) };
    let x = cx.tensor(a, "input")?;
    let mask = kept(cx, dtype_of(x)?, channels(cx, x)?, p)?;
    let v = self_normalising(cx, x, mask, p)?;
    cx.one(v)
}
