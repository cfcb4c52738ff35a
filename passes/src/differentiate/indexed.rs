//! Gathers, scatters and slices at run-time offsets.
use super::rule::Rule;
use crate::decompose::tools::*;
use kiln_dialects::{ir::*, ops::*, value::DType};

pub(super) fn gather(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Gather>()?, r.cotangent()?);
    if !r.wants(o.input) {
        return Ok(());
    }
    let v = scatter_add(&r.m, o.input, g, o.indices, o.dims)?;
    r.give(o.input, v)
}

pub(super) fn embedding(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Embedding>()?, r.cotangent()?);
    if !r.wants(o.weight) {
        return Ok(());
    }
    let v = scatter_add(&r.m, o.weight, g, vec![o.indices], vec![0])?;
    r.give(o.weight, v)
}

/// Zeros of the shape of `like` with updates added at indices, in f32 for 16-bit floats.
pub(super) fn scatter_add(
    m: &Math<'_>,
    like: Value,
    updates: Value,
    indices: Vec<Value>,
    dims: Vec<i64>,
) -> Result<Value> {
    let narrow = dtype(updates)?;
    let wide = accumulator_type(narrow);
    let input = m.b.splat(wide, &m.sizes_of(like)?, 0.0)?;
    let updates = m.convert(updates, wide)?;
    let sum = m.b.add(&Scatter { kind: ScatterKind::Add, input, updates, indices, dims })?;
    m.convert(sum, narrow)
}

/// Index tensors for `gather` and `scatter` that are `at` along one axis, and an element's own
/// position along the others.
pub(super) fn along_axis(m: &Math<'_>, at: Value, axis: usize) -> Result<Vec<Value>> {
    let sizes = m.sizes_of(at)?;
    (0..rank(at)).map(|d| if d == axis { Ok(at) } else { m.iota(&sizes, d) }).collect()
}

pub(super) fn scatter(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Scatter>()?, r.cotangent()?);
    match o.kind {
        ScatterKind::Add => {
            r.give(o.input, g)?;
            let v = taken(r, &o, g)?;
            r.give(o.updates, v)
        }
        ScatterKind::Assign => assign(r, &o, g),
        ScatterKind::Mul => product(r, &o, g),
        ScatterKind::Max | ScatterKind::Min => extremum(r, &o, g),
    }
}

/// Elements of `x` at the indices of a scatter, in the shape of its updates.
fn taken(r: &Rule<'_>, o: &Scatter, x: Value) -> Result<Value> {
    let v = r.m.b.add(&Gather { input: x, indices: o.indices.clone(), dims: o.dims.clone() })?;
    r.m.retype_like(v, o.updates)
}

/// The input has no part in what was assigned; of updates at one index the last has the gradient.
fn assign(r: &mut Rule<'_>, o: &Scatter, g: Value) -> Result<()> {
    if r.wants(o.input) {
        let zeros = r.zeros_like(o.updates)?;
        let v = r.m.b.add(&Scatter { input: g, updates: zeros, ..o.clone() })?;
        r.give(o.input, v)?;
    }
    if !r.wants(o.updates) {
        return Ok(());
    }
    let m = &r.m;
    let Some(first) = o.indices.first() else { return Err("has no indices".into()) };
    // Numbers each update, assigns the numbers, and sees which are still there.
    let shape = m.sizes_of(*first)?;
    let count = m.product(&shape)?;
    let number = m.reshape(m.iota(&[count], 0)?, &shape)?;
    let sizes = m.sizes_of(o.input)?;
    let places: Vec<Size> = o.dims.iter().map(|d| sizes[*d as usize]).collect();
    let dims: Vec<i64> = (0..places.len() as i64).collect();
    let input = m.b.splat(DType::I64, &places, -1.0)?;
    let indices = o.indices.clone();
    let winners = m.b.add(&Scatter {
        kind: ScatterKind::Assign,
        input,
        updates: number,
        indices: indices.clone(),
        dims: dims.clone(),
    })?;
    let winner = m.b.add(&Gather { input: winners, indices, dims })?;
    let last = m.compare(CompareKind::Eq, winner, number)?;
    let v = taken(r, o, g)?;
    let lead: Vec<i64> = (0..rank(*first) as i64).collect();
    let v = r.m.select(r.m.broadcast_to(last, &lead, v)?, v, r.zeros_like(v)?)?;
    r.give(o.updates, v)
}

/// Each factor has the product of the others: of all that are not 0 if it is the only 0.
fn product(r: &mut Rule<'_>, o: &Scatter, g: Value) -> Result<()> {
    let m = &r.m;
    let of = |x: Value| -> Result<[Value; 2]> {
        let zero = m.compare(CompareKind::Eq, x, m.full_like(x, 0.0)?)?;
        let counted = m.convert(zero, accumulator_type(dtype(x)?))?;
        Ok([counted, m.select(zero, m.full_like(x, 1.0)?, x)?])
    };
    let ([none, base], [nones, factors]) = (of(o.input)?, of(o.updates)?);
    let zeros =
        m.b.add(&Scatter { kind: ScatterKind::Add, input: none, updates: nones, ..o.clone() })?;
    let others = m.b.add(&Scatter { input: base, updates: factors, ..o.clone() })?;
    for (x, is_zero, factor, at) in
        [(o.input, none, base, false), (o.updates, nones, factors, true)]
    {
        if !r.wants(x) {
            continue;
        }
        let mut all = [g, zeros, others];
        if at {
            for v in &mut all {
                *v = taken(r, o, *v)?;
            }
        }
        let [g, zeros, others] = all;
        // Without zeros there is nothing to leave out; a zero has the rest if it is alone.
        let v = r.formula([g, zeros, others, is_zero, factor], |[g, n, p, own, x]| {
            n.eq(own).select(g * p / x, 0.0)
        })?;
        r.give(x, v)?;
    }
    Ok(())
}

/// The elements that equal the result share its gradient evenly, as torch's scatter_reduce.
fn extremum(r: &mut Rule<'_>, o: &Scatter, g: Value) -> Result<()> {
    let m = &r.m;
    let y = r.op.result(0);
    let wide = accumulator_type(dtype(y)?);
    let is = |x: Value, y: Value| m.convert(m.compare(CompareKind::Eq, x, y)?, wide);
    let (own, ours) = (is(o.input, y)?, is(o.updates, taken(r, o, y)?)?);
    let count =
        m.b.add(&Scatter { kind: ScatterKind::Add, input: own, updates: ours, ..o.clone() })?;
    let share = r.formula([g, count], |[g, n]| g / n)?;
    let by_input = m.mul(own, share)?;
    let by_updates = m.mul(ours, taken(r, o, share)?)?;
    r.give(o.input, by_input)?;
    r.give(o.updates, by_updates)
}

pub(super) fn dynamic_slice(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<DynamicSlice>()?, r.cotangent()?);
    if !r.wants(o.input) {
        return Ok(());
    }
    let input = r.zeros_like(o.input)?;
    let v = r.m.b.add(&DynamicUpdateSlice { input, update: g, starts: o.starts })?;
    r.give(o.input, v)
}

pub(super) fn dynamic_update_slice(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<DynamicUpdateSlice>()?, r.cotangent()?);
    if r.wants(o.input) {
        let update = r.zeros_like(o.update)?;
        let v = r.m.b.add(&DynamicUpdateSlice { input: g, update, starts: o.starts.clone() })?;
        r.give(o.input, v)?;
    }
    if r.wants(o.update) {
        let sizes = r.m.sizes_of(o.update)?;
        let v = r.m.b.add(&DynamicSlice { input: g, starts: o.starts, sizes })?;
        r.give(o.update, v)?;
    }
    Ok(())
}
