//! Losses against classes: negative log-likelihood, cross entropy, margins.
use super::{
    Args, Cx, Outcome, Row,
    formula::*,
    losses::{finish, reduced},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.nll_loss_nd.default",
        arguments: "self, target, weight=None, reduction=1, ignore_index=-100",
        build: nll_loss,
    },
    Row {
        name: "aten.nll_loss.default",
        arguments: "self, target, weight=None, reduction=1, ignore_index=-100",
        build: nll_loss,
    },
    Row {
        name: "aten.nll_loss2d.default",
        arguments: "self, target, weight=None, reduction=1, ignore_index=-100",
        build: nll_loss,
    },
    Row {
        name: "aten.nll_loss_forward.default",
        arguments: "self, target, weight, reduction, ignore_index",
        build: nll_loss_forward,
    },
    Row {
        name: "aten.nll_loss2d_forward.default",
        arguments: "self, target, weight, reduction, ignore_index",
        build: nll_loss_forward,
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
];

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

fn nll_loss(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (v, _) = nll(cx, a)?;
    cx.one(v)
}

fn nll_loss_forward(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (v, total) = nll(cx, a)?;
    cx.many(&[v, total])
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
    let d = statistics_dtype(narrow);
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
    let x = cx.convert(x, statistics_dtype(narrow))?;
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
    let x = cx.convert(x, statistics_dtype(narrow))?;
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
    let x = cx.convert(x, statistics_dtype(narrow))?;
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
