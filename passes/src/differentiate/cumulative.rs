//! Cumulative sums, products, maxima and minima.
use super::{
    indexed::{along_axis, scatter_add},
    rule::Rule,
};
use crate::decompose::tools::*;
use kiln_dialects::{ir::*, ops::*};

pub(super) fn cumulative(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Cumulative>()?, r.cotangent()?);
    if !r.wants(o.input) {
        return Ok(());
    }
    let v = match o.kind {
        CumulativeKind::Sum => from_end(&r.m, g, o.axis)?,
        CumulativeKind::Prod => product(r, &o, g)?,
        CumulativeKind::Max | CumulativeKind::Min => extremum(r, &o, g)?,
    };
    r.give(o.input, v)
}

/// The sums of `x[i..]`.
fn from_end(m: &Math<'_>, x: Value, axis: i64) -> Result<Value> {
    let turned = m.b.add(&Reverse { input: x, dims: vec![axis] })?;
    let sum = m.b.add(&Cumulative { kind: CumulativeKind::Sum, input: turned, axis })?;
    m.b.add(&Reverse { input: sum, dims: vec![axis] })
}

/// `sum over i >= k of g[i] y[i] / x[k]` for elements before the first 0. The first 0 has the
/// products without it up to the second 0; elements after it have none.
fn product(r: &Rule<'_>, o: &Cumulative, g: Value) -> Result<Value> {
    let (m, x) = (&r.m, o.input);
    let zero = m.compare(CompareKind::Eq, x, m.full_like(x, 0.0)?)?;
    let own = m.convert(zero, accumulator_type(dtype(x)?))?;
    let sum = Cumulative { kind: CumulativeKind::Sum, input: own, axis: o.axis };
    let zeros = m.b.add(&sum)?;
    let factors = m.select(zero, m.full_like(x, 1.0)?, x)?;
    let others = m.b.add(&Cumulative { input: factors, ..o.clone() })?;
    let none = m.full_like(x, 0.0)?;
    let part = |count: f64| -> Result<Value> {
        let here = m.compare(CompareKind::Eq, zeros, m.full_like(zeros, count)?)?;
        from_end(m, m.select(here, m.mul(g, others)?, none)?, o.axis)
    };
    let (before, at) = (part(0.0)?, part(1.0)?);
    r.formula([before, at, zeros, own, factors], |[before, at, n, own, x]| {
        let first = (n.eq(1.0) & own.eq(1.0)).select(at, 0.0);
        n.eq(0.0).select(before / x, first)
    })
}

/// The gradient goes to the last element so far that equals the extremum, as in PyTorch.
fn extremum(r: &Rule<'_>, o: &Cumulative, g: Value) -> Result<Value> {
    let (m, axis) = (&r.m, o.axis as usize);
    let position = m.iota(&m.sizes_of(o.input)?, axis)?;
    let record = m.compare(CompareKind::Eq, o.input, r.op.result(0))?;
    let input = m.select(record, position, m.full_like(position, 0.0)?)?;
    let at = m.b.add(&Cumulative { kind: CumulativeKind::Max, input, axis: o.axis })?;
    let indices = along_axis(m, at, axis)?;
    let dims = (0..indices.len() as i64).collect();
    scatter_add(m, o.input, g, indices, dims)
}
