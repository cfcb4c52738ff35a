//! Cross entropy.
use super::rule::Rule;
use crate::decompose::tools::*;
use kiln_dialects::{ir::*, ops::*};

/// `a[c] - softmax(x)[c] sum(a)`, where `a[c] = -g ((1 - s) w[t] (c = t) + s/C w[c])` is the
/// gradient by log_softmax(x)[c]: without a scatter. g is divided by the sum of w[t] under a mean,
/// and 0 where t is ignore_index. sum(a) = -g ((1 - s) w[t] + s/C sum(w)). Weights have the
/// derivative of the decomposition.
pub(super) fn cross_entropy(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<CrossEntropy>()?;
    if o.weight.is_some_and(|w| r.wants(w)) {
        return r.decompose();
    }
    let (m, narrow) = (&r.m, dtype(o.logits)?);
    let wide = accumulator_type(narrow);
    let (x, g) = (m.convert(o.logits, wide)?, m.convert(r.cotangent()?, wide)?);
    let target = o.target;
    let ignored = m.b.add(&Splat {
        value: Attr::scalar_int(m.b.ctx, dtype(target)?, o.ignore_index),
        sizes: m.sizes_of(target)?,
    })?;
    let counts = m.compare(CompareKind::Ne, target, ignored)?;
    let class = m.select(counts, target, m.full_like(target, 0.0)?)?;
    let weight = o.weight.map(|w| m.convert(w, wide)).transpose()?;
    let own = match weight {
        Some(w) => m.b.add(&Gather { input: w, indices: vec![class], dims: vec![0] })?,
        None => m.b.splat(wide, &m.sizes_of(class)?, 1.0)?,
    };
    // The weight of each position's target, 0 if it does not count.
    let own = m.select(counts, own, m.full_like(own, 0.0)?)?;
    let mut level =
        if o.reduction == LossReduction::None { g } else { m.broadcast_to(g, &[], own)? };
    if o.reduction == LossReduction::Mean {
        let all: Vec<i64> = (0..rank(own) as i64).collect();
        level = m.div(level, m.reduce_and_broadcast(ReduceKind::Sum, own, &all)?)?;
    }
    let outer = complement(rank(x), &[1]);
    let to_x = |v: Value| m.broadcast_to(v, &outer, x);
    let at = m.compare(CompareKind::Eq, m.iota(&m.sizes_of(x)?, 1)?, to_x(class)?)?;
    let s = o.label_smoothing;
    let hit = r.formula([level, own], |[g, w]| g * w * (s - 1.0))?;
    let mut by_log = m.select(at, to_x(hit)?, m.full_like(x, 0.0)?)?;
    let mut sum = hit;
    if s != 0.0 {
        let counted = m.select(counts, level, m.full_like(level, 0.0)?)?;
        let classes = m.number_like(m.size_of(x, 1)?, counted)?;
        let share = m.div(counted, classes)?;
        let share = m.mul(share, m.full_like(share, s)?)?;
        let (mut spread, mut all) = (to_x(share)?, classes);
        if let Some(w) = weight {
            spread = m.mul(spread, m.broadcast_to(w, &[1], x)?)?;
            all = m.broadcast_to(m.reduce(ReduceKind::Sum, w, &[0])?, &[], share)?;
        }
        by_log = m.sub(by_log, spread)?;
        sum = m.sub(sum, m.mul(share, all)?)?;
    }
    let probabilities = m.b.add(&Softmax { safe: false, input: x, axis: 1 })?;
    let v = m.sub(by_log, m.mul(probabilities, to_x(sum)?)?)?;
    r.give(o.logits, v)
}
