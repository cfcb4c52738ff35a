//! Losses.
use super::{
    Args, Cx, Outcome, Row,
    formula::*,
    moments::{distance, wide},
    special::value,
    tools::*,
    window::along,
};
use kiln_dialects::{ir::*, ops::*, value::DType};
use std::f64::consts::PI;

/// A row of an elementwise loss of two tensors.
macro_rules! elementwise {
    ($name:literal, $x:literal, $y:literal, $arguments:literal, $loss:expr) => {
        Row {
            name: $name,
            arguments: $arguments,
            build: |cx, a| {
                let loss: for<'f> fn(&Args<'_>, Term<'f>, Term<'f>) -> Result<Term<'f>> = $loss;
                of_two(cx, a, [$x, $y], loss)
            },
        }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    elementwise!(
        "aten.l1_loss.default",
        "self",
        "target",
        "self, target, reduction=1",
        |_, x, y| { Ok((x - y).abs()) }
    ),
    elementwise!(
        "aten.smooth_l1_loss.default",
        "self",
        "target",
        "self, target, reduction=1, beta=1",
        |a, x, y| {
            let (beta, d) = (a.float("beta", Some(1.0))?, (x - y).abs());
            if beta < 0.0 {
                return Err("smooth_l1_loss does not support negative values for beta.".into());
            }
            Ok(d.lt(beta).select(d * d * 0.5 / beta, d - 0.5 * beta))
        }
    ),
    elementwise!(
        "aten.huber_loss.default",
        "self",
        "target",
        "self, target, reduction=1, delta=1",
        |a, x, y| {
            let (delta, d) = (a.float("delta", Some(1.0))?, (x - y).abs());
            if delta <= 0.0 {
                return Err("huber_loss does not support non-positive values for delta.".into());
            }
            Ok(d.le(delta).select(d * d * 0.5, (d - 0.5 * delta) * delta))
        }
    ),
    elementwise!(
        "aten.kl_div.default",
        "self",
        "target",
        "self, target, reduction=1, log_target=False",
        |a, x, t| {
            if a.flag("log_target", false)? {
                return Ok(t.exp() * (t - x));
            }
            let entropy = t.eq(0.0).select(0.0, t * t.ln());
            Ok(t.is_nan().select(t, entropy) - t * x)
        }
    ),
    elementwise!(
        "aten.soft_margin_loss.default",
        "self",
        "target",
        "self, target, reduction=1",
        |_, x, t| Ok((-t * x).exp().ln_1p())
    ),
    elementwise!(
        "aten.hinge_embedding_loss.default",
        "self",
        "target",
        "self, target, margin=1, reduction=1",
        |a, x, t| {
            let room = (a.float("margin", Some(1.0))? - x).max(0.0);
            Ok(t.eq(1.0).select(0.0, room) + t.eq(-1.0).select(0.0, x))
        }
    ),
    elementwise!(
        "aten.poisson_nll_loss.default",
        "input",
        "target",
        "input, target, log_input, full, eps, reduction",
        |a, x, t| {
            let loss = if a.flag("log_input", true)? {
                x.exp() - t * x
            } else {
                x - t * (x + a.float("eps", Some(1e-8))?).ln()
            };
            if !a.flag("full", false)? {
                return Ok(loss);
            }
            let stirling = t * t.ln() - t + (t * (2.0 * PI)).ln() * 0.5;
            Ok(loss + t.le(1.0).select(0.0, stirling))
        }
    ),
    Row {
        name: "aten.binary_cross_entropy.default",
        arguments: "self, target, weight=None, reduction=1",
        build: |cx, a| {
            let (x, t, narrow) = pair(cx, a, ["self", "target"])?;
            let v = value(cx, |f| {
                let (x, t) = (f.of(x), f.of(t));
                (t - 1.0) * (-x).ln_1p().max(-100.0) - t * x.ln().max(-100.0)
            })?;
            weighted(cx, a, v, narrow)
        },
    },
    Row {
        name: "aten.binary_cross_entropy_with_logits.default",
        arguments: "self, target, weight=None, pos_weight=None, reduction=1",
        build: |cx, a| {
            let (x, t, narrow) = pair(cx, a, ["self", "target"])?;
            let positive = match cx.optional(a, "pos_weight")? {
                Some(p) => Some(cx.convert(p, dtype_of(x)?)?),
                None => None,
            };
            let v = value(cx, |f| {
                let (x, t) = (f.of(x), f.of(t));
                let tail = (-x.abs()).exp().ln_1p() + (-x).max(0.0);
                match positive {
                    Some(p) => (1.0 - t) * x + ((f.of(p) - 1.0) * t + 1.0) * tail,
                    None => (1.0 - t) * x + tail,
                }
            })?;
            weighted(cx, a, v, narrow)
        },
    },
    Row {
        name: "aten.margin_ranking_loss.default",
        arguments: "input1, input2, target, margin=0, reduction=1",
        build: |cx, a| {
            let (x, y, narrow) = pair(cx, a, ["input1", "input2"])?;
            let t = cx.operand(a, "target", dtype_of(x)?)?;
            let margin = a.float("margin", Some(0.0))?;
            let v = value(cx, |f| (margin - f.of(t) * (f.of(x) - f.of(y))).max(0.0))?;
            finish(cx, a, v, narrow)
        },
    },
    Row {
        name: "aten.cosine_embedding_loss.default",
        arguments: "input1, input2, target, margin=0, reduction=1",
        build: |cx, a| {
            let (x, y, narrow) = pair(cx, a, ["input1", "input2"])?;
            let target = cx.tensor(a, "target")?;
            let dim = i64::from(rank_of(target) == 1);
            let t = cx.convert(target, dtype_of(x)?)?;
            let margin = a.float("margin", Some(0.0))?;
            let (x, y) = cx.broadcast(x, y)?;
            let v = value(cx, |f| {
                const EPSILON: f64 = 1e-12;
                let (x, y, t) = (f.of(x), f.of(y), f.of(t));
                let product = sum(x * y, dim)
                    / ((sum(x * x, dim) + EPSILON) * (sum(y * y, dim) + EPSILON)).sqrt();
                let apart = (product - margin).max(0.0);
                t.eq(1.0).select(1.0 - product, 0.0) + t.eq(-1.0).select(apart, 0.0)
            })?;
            finish(cx, a, v, narrow)
        },
    },
    Row {
        name: "aten.triplet_margin_loss.default",
        arguments: "anchor, positive, negative, margin=1, p=2, eps=1e-6, swap=False, reduction=1",
        build: |cx, a| {
            let (x, positive) = cx.promoted(a, "anchor", "positive")?;
            let negative = cx.operand(a, "negative", dtype_of(x)?)?;
            let (p, eps) = (a.float("p", Some(2.0))?, a.float("eps", Some(1e-6))?);
            let near = distance(cx, x, positive, p, eps, false)?;
            let mut far = distance(cx, x, negative, p, eps, false)?;
            if a.flag("swap", false)? {
                let other = distance(cx, positive, negative, p, eps, false)?;
                far = cx.binary(BinaryKind::Min, far, other)?;
            }
            let margin = a.float("margin", Some(1.0))?;
            let v = value(cx, |f| (f.of(near) - f.of(far) + margin).max(0.0))?;
            let narrow = dtype_of(x)?;
            finish(cx, a, v, narrow)
        },
    },
    Row {
        name: "aten.nll_loss_nd.default",
        arguments: "self, target, weight=None, reduction=1, ignore_index=-100",
        build: |cx, a| {
            let (v, _) = nll(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.nll_loss.default",
        arguments: "self, target, weight=None, reduction=1, ignore_index=-100",
        build: |cx, a| {
            let (v, _) = nll(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.nll_loss2d.default",
        arguments: "self, target, weight=None, reduction=1, ignore_index=-100",
        build: |cx, a| {
            let (v, _) = nll(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.nll_loss_forward.default",
        arguments: "self, target, weight, reduction, ignore_index",
        build: |cx, a| {
            let (v, total) = nll(cx, a)?;
            cx.many(&[v, total])
        },
    },
    Row {
        name: "aten.nll_loss2d_forward.default",
        arguments: "self, target, weight, reduction, ignore_index",
        build: |cx, a| {
            let (v, total) = nll(cx, a)?;
            cx.many(&[v, total])
        },
    },
    Row {
        name: "aten.multi_margin_loss.default",
        arguments: "self, target, p=1, margin=1, weight=None, reduction=1",
        build: multi_margin,
    },
    Row {
        name: "aten.multilabel_margin_loss.default",
        arguments: "self, target, reduction=1",
        build: |cx, a| {
            let (v, _) = multilabel_margin(cx, a)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.multilabel_margin_loss_forward.default",
        arguments: "self, target, reduction",
        build: |cx, a| {
            let (v, is_target) = multilabel_margin(cx, a)?;
            cx.many(&[v, is_target])
        },
    },
    Row {
        name: "aten._safe_softmax.default",
        arguments: "self, dim, dtype=None",
        build: |cx, a| {
            let mut x = cx.tensor(a, "self")?;
            if let Some(d) = a.dtype("dtype")? {
                x = cx.convert(x, d)?;
            }
            let axis = wrap(a.int("dim", None)?, rank_of(x))? as i64;
            let y = cx.b.add(&Softmax { input: x, axis })?;
            // A row without a finite score has no weights.
            let v = value(cx, |f| {
                let masked = f.of(x).eq(f64::NEG_INFINITY);
                masked.reduce(ReduceKind::All, &[axis], true).select(0.0, f.of(y))
            })?;
            cx.one(v)
        },
    },
];

fn sum(x: Term<'_>, dim: i64) -> Term<'_> {
    x.reduce(ReduceKind::Sum, &[dim], false)
}

/// Two arguments in the dtype in which losses are computed, and the result's dtype.
fn pair(cx: &mut Cx, a: &Args<'_>, names: [&str; 2]) -> Result<(Value, Value, DType)> {
    let (x, y) = cx.promoted(a, names[0], names[1])?;
    let narrow = match dtype_of(x)? {
        d if d.is_float() => d,
        _ => DType::F32,
    };
    Ok((cx.convert(x, wide(narrow))?, cx.convert(y, wide(narrow))?, narrow))
}

fn of_two(
    cx: &mut Cx,
    a: &Args<'_>,
    names: [&str; 2],
    loss: for<'f> fn(&Args<'_>, Term<'f>, Term<'f>) -> Result<Term<'f>>,
) -> Result<Outcome> {
    let (x, y, narrow) = pair(cx, a, names)?;
    let f = Formula::new(cx);
    let term = loss(a, f.of(x), f.of(y))?;
    let v = f.end(term)?;
    finish(cx, a, v, narrow)
}

/// PyTorch's reduction of losses: 0 none, 1 the mean, 2 the sum.
fn reduced(cx: &Cx, a: &Args<'_>, v: Value) -> Result<Value> {
    let dims: Vec<i64> = (0..rank_of(v) as i64).collect();
    match a.int("reduction", Some(1))? {
        0 => Ok(v),
        1 => Ok(cx.b.add(&Mean { input: v, dims, keep_dims: false })?),
        2 => {
            let kind = ReduceKind::Sum;
            Ok(cx.b.add(&Reduce { kind, input: v, dims, maybe_empty: false })?)
        }
        other => Err(format!("{other} is not a valid value for reduction").into()),
    }
}

fn finish(cx: &mut Cx, a: &Args<'_>, v: Value, narrow: DType) -> Result<Outcome> {
    let v = reduced(cx, a, v)?;
    let v = cx.convert(v, narrow)?;
    cx.one(v)
}

/// Multiplied by the argument `weight`, then reduced.
fn weighted(cx: &mut Cx, a: &Args<'_>, v: Value, narrow: DType) -> Result<Outcome> {
    let v = match cx.optional(a, "weight")? {
        Some(w) => cx.binary(BinaryKind::Mul, v, cx.convert(w, dtype_of(v)?)?)?,
        None => v,
    };
    finish(cx, a, v, narrow)
}

/// `x[.., index, ..]` along `axis`, one index for each of the other dimensions.
pub(super) fn pick(cx: &Cx, x: Value, axis: usize, index: Value) -> Result<Value> {
    let sizes = cx.b.sizes_of(index)?;
    let mut indices = (0..rank_of(index))
        .map(|d| cx.iota(DType::I64, sizes.clone(), d))
        .collect::<Result<Vec<_>, _>>()?;
    indices.insert(axis, index);
    let dims = (0..rank_of(x) as i64).collect();
    cx.b.add(&Gather { input: x, indices, dims })
}

/// Weights of the chosen classes in the shape of `target`, 0 where it is ignored, and target with
/// a class that exists in ignored places.
pub(super) fn chosen(
    cx: &Cx,
    target: Value,
    weight: Option<Value>,
    ignored: i64,
    d: DType,
) -> Result<(Value, Value)> {
    let target = cx.convert(target, DType::I64)?;
    let counts = cx.compare(CompareKind::Ne, target, cx.integer(DType::I64, ignored)?)?;
    let safe = cx.select(counts, target, cx.integer(DType::I64, 0)?)?;
    let weights = match weight {
        Some(w) => {
            let taken = cx.b.add(&Gather { input: w, indices: vec![safe], dims: vec![0] })?;
            let taken = cx.convert(taken, d)?;
            cx.select(counts, taken, cx.number(d, 0.0)?)?
        }
        None => cx.convert(counts, d)?,
    };
    Ok((safe, weights))
}

/// The loss and the total weight, which is 0 without a reduction.
fn nll(cx: &mut Cx, a: &Args<'_>) -> Result<(Value, Value)> {
    let (x, target) = (cx.tensor(a, "self")?, cx.tensor(a, "target")?);
    let weight = cx.optional(a, "weight")?;
    let axis = usize::from(rank_of(x) > 1);
    if rank_of(x) == 0 || rank_of(target) + 1 != rank_of(x) {
        return Err(format!(
            "wants a target of one dimension less than the input, which has rank {}",
            rank_of(x)
        )
        .into());
    }
    let narrow = dtype_of(x)?;
    let d = wide(narrow);
    let (safe, weights) = chosen(cx, target, weight, a.int("ignore_index", Some(-100))?, d)?;
    let picked = pick(cx, x, axis, safe)?;
    let picked = cx.convert(picked, d)?;
    let dims: Vec<i64> = (0..rank_of(target) as i64).collect();
    let reduction = a.int("reduction", Some(1))?;
    let losses = value(cx, |f| {
        let (x, w) = (f.of(picked), f.of(weights));
        w.eq(0.0).select(0.0, -(x * w))
    })?;
    let none = reduction == 0;
    let total = if none {
        cx.number(d, 0.0)?
    } else {
        value(cx, |f| f.of(weights).reduce(ReduceKind::Sum, &dims, false))?
    };
    let v = match reduction {
        0 => losses,
        1 => value(cx, |f| f.of(losses).reduce(ReduceKind::Sum, &dims, false) / f.of(total))?,
        _ => value(cx, |f| f.of(losses).reduce(ReduceKind::Sum, &dims, false))?,
    };
    Ok((cx.convert(v, narrow)?, cx.convert(total, narrow)?))
}

/// The input as [N, C], and whether it was [C].
fn rows(cx: &Cx, x: Value) -> Result<(Value, bool)> {
    match rank_of(x) {
        2 => Ok((x, false)),
        n if n < 2 => {
            let count = if n == 0 { Size::Static(1) } else { cx.b.size_of(x, 0)? };
            Ok((cx.reshape(x, vec![Size::Static(1), count])?, true))
        }
        n => Err(format!("wants an input of rank 1 or 2, has rank {n}").into()),
    }
}

fn multi_margin(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, target) = (cx.tensor(a, "self")?, cx.tensor(a, "target")?);
    let (x, one_row) = rows(cx, x)?;
    let narrow = dtype_of(x)?;
    let x = cx.convert(x, wide(narrow))?;
    let sizes = cx.b.sizes_of(x)?;
    let n = cx.b.size_of(x, 0)?;
    let target = cx.reshape(cx.convert(target, DType::I64)?, vec![n])?;
    let picked = pick(cx, x, 1, target)?;
    let (own, index) = (along(cx, picked, vec![0], &sizes)?, along(cx, target, vec![0], &sizes)?);
    let classes = cx.iota(DType::I64, sizes.clone(), 1)?;
    let (p, margin) = (a.int("p", Some(1))?, a.float("margin", Some(1.0))?);
    if ![1, 2].contains(&p) {
        return Err("only p == 1 and p == 2 supported".into());
    }
    let count = cx.b.size_as_tensor(cx.b.size_of(x, 1)?, dtype_of(x)?)?;
    let weight = match cx.optional(a, "weight")? {
        Some(w) => {
            let w = cx.b.add(&Gather { input: w, indices: vec![target], dims: vec![0] })?;
            Some(cx.convert(w, dtype_of(x)?)?)
        }
        None => None,
    };
    let v = value(cx, |f| {
        let room = (f.of(x) - f.of(own) + margin).max(0.0);
        let room = if p == 2 { room * room } else { room };
        let others = f.of(classes).eq(f.of(index)).select(0.0, room);
        let sum = others.reduce(ReduceKind::Sum, &[1], false) / f.of(count);
        weight.map_or(sum, |w| sum * f.of(w))
    })?;
    let v = if one_row { cx.reshape(v, vec![])? } else { v };
    finish(cx, a, v, narrow)
}

/// The loss, and whether each class is among the targets, in the dtype of the input.
fn multilabel_margin(cx: &mut Cx, a: &Args<'_>) -> Result<(Value, Value)> {
    let (input, target) = (cx.tensor(a, "self")?, cx.tensor(a, "target")?);
    let (x, one_row) = rows(cx, input)?;
    let (target, _) = rows(cx, target)?;
    let narrow = dtype_of(x)?;
    let x = cx.convert(x, wide(narrow))?;
    let target = cx.convert(target, DType::I64)?;
    // Targets end at the first negative one.
    let least = cx.b.add(&Cumulative { kind: CumulativeKind::Min, input: target, axis: 1 })?;
    let valid = cx.compare(CompareKind::Ge, least, cx.integer(DType::I64, 0)?)?;
    let safe = cx.select(valid, target, cx.integer(DType::I64, 0)?)?;
    let (n, c) = (cx.b.size_of(x, 0)?, cx.b.size_of(x, 1)?);
    // [N, target k, class j]
    let cube = [n, c, c];
    let rows = cx.iota(DType::I64, vec![n, c], 0)?;
    let picked = cx.b.add(&Gather { input: x, indices: vec![rows, safe], dims: vec![0, 1] })?;
    let over_k = |v: Value| along(cx, v, vec![0, 1], &cube);
    let (valid, safe, picked) = (over_k(valid)?, over_k(safe)?, over_k(picked)?);
    let classes = cx.iota(DType::I64, cube.to_vec(), 2)?;
    let is_target = value(cx, |f| {
        let same = f.of(valid) & f.of(safe).eq(f.of(classes));
        same.reduce(ReduceKind::Any, &[1], false)
    })?;
    let others = along(cx, is_target, vec![0, 2], &cube)?;
    let scores = along(cx, x, vec![0, 2], &cube)?;
    let count = cx.b.size_as_tensor(c, dtype_of(x)?)?;
    let v = value(cx, |f| {
        let room = (1.0 - (f.of(picked) - f.of(scores))).max(0.0);
        let counts = f.of(valid) & !f.of(others);
        counts.select(room, 0.0).reduce(ReduceKind::Sum, &[1, 2], false) / f.of(count)
    })?;
    let v = if one_row { cx.reshape(v, vec![])? } else { v };
    let v = reduced(cx, a, v)?;
    let is_target = cx.convert(is_target, narrow)?;
    let is_target = cx.reshape(is_target, cx.b.sizes_of(input)?)?;
    Ok((cx.convert(v, narrow)?, is_target))
}

/// Cross entropy against class probabilities, in the shape and dtype of `x` [N, C, ..] or [C].
pub(super) fn against_probabilities(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, target) = (cx.tensor(a, "self")?, cx.tensor(a, "target")?);
    let narrow = dtype_of(x)?;
    let x = cx.convert(x, wide(narrow))?;
    let target = cx.convert(target, dtype_of(x)?)?;
    let axis = i64::from(rank_of(x) > 1);
    let sizes = cx.b.sizes_of(x)?;
    let logs = cx.b.add(&LogSoftmax { input: x, axis })?;
    let weight = match cx.optional(a, "weight")? {
        Some(w) => Some(along(cx, cx.convert(w, dtype_of(x)?)?, vec![axis], &sizes)?),
        None => None,
    };
    let smoothing = a.float("label_smoothing", Some(0.0))?;
    let classes = cx.b.size_as_tensor(cx.b.size_of(x, axis as usize)?, dtype_of(x)?)?;
    let v = value(cx, |f| {
        let t = f.of(target);
        let t = if smoothing > 0.0 { t * (1.0 - smoothing) + smoothing / f.of(classes) } else { t };
        let terms = f.of(logs) * t;
        let terms = weight.map_or(terms, |w| terms * f.of(w));
        -terms.reduce(ReduceKind::Sum, &[axis], false)
    })?;
    finish(cx, a, v, narrow)
}
