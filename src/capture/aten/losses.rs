//! Losses of two tensors.
use super::{
    Args, Cx, Outcome, Row, arithmetic::default_float, distances::distance, formula::value,
    formula::*, tools::*,
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
    Row {
        name: "aten.huber_loss.default",
        arguments: "self, target, reduction=1, delta=1",
        build: |cx, a| {
            // The result has the input's dtype, whatever the target's.
            let own = dtype_of(cx.tensor(a, "self")?)?;
            let (x, y, narrow) = pair(cx, a, ["self", "target"])?;
            let delta = a.float("delta", Some(1.0))?;
            if delta <= 0.0 {
                return Err("huber_loss does not support non-positive values for delta.".into());
            }
            let v = value(cx, |f| {
                let d = (f.of(x) - f.of(y)).abs();
                d.le(delta).select(d * d * 0.5, (d - 0.5 * delta) * delta)
            })?;
            finish(cx, a, v, if own.is_float() { own } else { narrow })
        },
    },
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
    Row {
        name: "aten.soft_margin_loss.default",
        arguments: "self, target, reduction=1",
        build: |cx, a| {
            // The result has the input's dtype, whatever the target's.
            let (x, t) = (cx.tensor(a, "self")?, cx.tensor(a, "target")?);
            let d = dtype_of(x)?;
            let (x, t) = (cx.convert(x, statistics_dtype(d))?, cx.convert(t, statistics_dtype(d))?);
            let v = value(cx, |f| (-f.of(t) * f.of(x)).exp().ln_1p())?;
            finish(cx, a, v, d)
        },
    },
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
            // The result has the target's dtype, whatever the input's.
            let own = dtype_of(cx.tensor(a, "target")?)?;
            let (x, t, narrow) = pair(cx, a, ["self", "target"])?;
            let narrow = if own.is_float() { own } else { narrow };
            let logits = dtype_of(cx.tensor(a, "self")?)?;
            let positive = match cx.optional(a, "pos_weight")? {
                Some(p) => Some(cx.convert(p, dtype_of(x)?)?),
                None => None,
            };
            let v = value(cx, |f| {
                let (x, t) = (f.of(x), f.of(t));
                // The logarithm of the sigmoid is rounded to the input's dtype.
                let tail = (-x.abs()).exp().ln_1p() + (-x).max(0.0);
                let tail = if logits == own { tail } else { tail.rounded(logits) };
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
            let narrow = default_float(dtype_of(x)?);
            let wide = statistics_dtype(narrow);
            let near = distance(cx, x, positive, p, eps, false)?;
            let mut far = distance(cx, x, negative, p, eps, false)?;
            if a.flag("swap", false)? {
                let other = distance(cx, positive, negative, p, eps, false)?;
                far = cx.binary(BinaryKind::Min, far, other)?;
            }
            let margin = a.float("margin", Some(1.0))?;
            let v = value(cx, |f| {
                let near = (f.of(near).to(wide) + margin).rounded(narrow);
                (near - f.of(far).to(wide)).rounded(narrow).max(0.0)
            })?;
            finish(cx, a, v, narrow)
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
            let y = cx.b.add(&Softmax { safe: true, input: x, axis })?;
            cx.one(y)
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
    Ok((cx.convert(x, statistics_dtype(narrow))?, cx.convert(y, statistics_dtype(narrow))?, narrow))
}

fn of_two(
    cx: &mut Cx,
    a: &Args<'_>,
    names: [&str; 2],
    loss: for<'f> fn(&Args<'_>, Term<'f>, Term<'f>) -> Result<Term<'f>>,
) -> Result<Outcome> {
    let (x, y, narrow) = pair(cx, a, names)?;
    let f = Formula::new(&cx.b);
    let term = loss(a, f.of(x), f.of(y))?;
    let v = f.end(term)?;
    finish(cx, a, v, narrow)
}

/// PyTorch's reduction of losses: 0 none, 1 the mean, 2 the sum.
pub(super) fn reduced(cx: &Cx, a: &Args<'_>, v: Value) -> Result<Value> {
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

pub(super) fn finish(cx: &mut Cx, a: &Args<'_>, v: Value, narrow: DType) -> Result<Outcome> {
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
