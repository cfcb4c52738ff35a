//! Reductions and sorts.
use super::{
    indexed::{along_axis, scatter_add},
    rule::Rule,
};
use crate::decompose::tools::{accumulator_type, dtype};
use kiln_dialects::{ir::*, ops::*};

pub(super) fn reduce(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Reduce>()?, r.cotangent()?);
    if !r.wants(o.input) {
        return Ok(());
    }
    let (m, wide) = (&r.m, accumulator_type(dtype(o.input)?));
    let back = |v: Value| m.broadcast_back(v, &o.dims, o.input);
    let count = |mask: Value| m.reduce(ReduceKind::Sum, m.convert(mask, wide)?, &o.dims);
    let v = match o.kind {
        ReduceKind::Sum => back(g)?,
        // Equal elements share the gradient evenly, as torch.amax.
        ReduceKind::Max | ReduceKind::Min => {
            let equal = m.compare(CompareKind::Eq, o.input, back(r.op.result(0))?)?;
            let share = back(r.formula([g, count(equal)?], |[g, n]| g / n)?)?;
            m.select(equal, share, r.zeros_like(share)?)?
        }
        // The product of the others: of all that are not 0 if an element is the only 0.
        ReduceKind::Prod => {
            let zero = m.compare(CompareKind::Eq, o.input, r.zeros_like(o.input)?)?;
            let factors = m.select(zero, m.full_like(o.input, 1.0)?, o.input)?;
            let others = m.reduce(ReduceKind::Prod, factors, &o.dims)?;
            let own = m.convert(zero, wide)?;
            let all = [back(g)?, back(count(zero)?)?, back(others)?, own, factors];
            r.formula(all, |[g, n, p, own, x]| n.eq(own).select(g * p / x, 0.0))?
        }
        ReduceKind::Any | ReduceKind::All => return Ok(()),
    };
    r.give(o.input, v)
}

pub(super) fn sort(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<Sort>()?;
    back_to(r, o.input, o.axis)
}

pub(super) fn top_k(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<TopK>()?;
    back_to(r, o.input, o.axis)
}

/// The gradient of values at the indices that are the second result.
fn back_to(r: &mut Rule<'_>, input: Value, axis: i64) -> Result<()> {
    let Some(g) = r.cotangent_of(0).filter(|_| r.wants(input)) else { return Ok(()) };
    let indices = along_axis(&r.m, r.op.result(1), axis as usize)?;
    let dims = (0..indices.len() as i64).collect();
    let v = scatter_add(&r.m, input, g, indices, dims)?;
    r.give(input, v)
}
