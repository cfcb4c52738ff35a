//! In-register transposes of a nest that loads along one dimension and stores along another: vector
//! loads, shuffles, vector stores.
//!
//! Why: a gather loads element by element, and takes about ten times as long as a square's share of
//! loads and shuffles.
use crate::{
    analysis::{Access, Init},
    emit::{
        body::ForwardedElements,
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::{FixedDims, Loops},
    },
    strategies::cpu::common::transposed::shuffled,
};
use kiln_dialects::ir::*;

/// Operands to transpose, which are contiguous along the dimension `rows`. `None` if something does
/// not fit squares of vectors.
pub fn across(loops: &Loops<'_>, rows: usize) -> Option<Vec<Access>> {
    let vector = loops.vector.filter(|_| loops.lanes.is_power_of_two() && loops.lanes >= 4)?;
    let along = |a: &&Access| {
        let near = a.at.coefficient(rows).known() == Some(1)
            && !matches!(a.at.coefficient(vector).known(), Some(0 | 1));
        near && !a.at.in_division(rows) && !a.at.in_division(vector)
    };
    let kernel = loops.scope.kernel;
    let stages = || loops.nest.all().filter_map(|s| kernel.stages.get(s));
    // Overlapping squares would accumulate twice.
    if loops.nest.reduction.contains(&true)
        || stages().flat_map(|s| &s.outputs).any(|o| matches!(o.init, Init::Load(_)))
    {
        return None;
    }
    let mut all: Vec<Access> = stages().flat_map(|s| s.reads()).filter(along).cloned().collect();
    all.sort();
    all.dedup();
    let narrow =
        |a: &Access| kernel.buffers[a.buffer].element.dtype().is_ok_and(|d| d.byte_size() == 4);
    // An intermediate of the nest is not in memory.
    let stored = |a: &Access| loops.scope.memory.get(a.buffer).copied().flatten().is_some();
    (!all.is_empty() && all.iter().all(|a| narrow(a) && stored(a))).then_some(all)
}

/// One square: as many rows as lanes from `first` on, by one vector of columns from `start` on.
pub fn emit(
    c: Code,
    loops: &Loops<'_>,
    fixed: &FixedDims,
    start: Value,
    (rows, first): (usize, Value),
    across: &[Access],
) -> Result<()> {
    let (scope, n) = (loops.scope, loops.lanes);
    let vector = loops.vector.ok_or("has no vector dimension")?;
    let all = Lanes { count: n, mask: None };
    let mut transposed: Vec<(&Access, Vec<Value>)> = vec![];
    for a in across {
        let mut lines = vec![];
        for lane in 0..n {
            let mut at = fixed.clone();
            at[vector] = Some(c.add(start, c.index(lane as i64)?)?);
            let mut dims = loops.dims(c, &at, None)?;
            dims[rows] = LaneValue::Strided(first, 1);
            let line = scope.read(c, a, &dims, all, &ForwardedElements::new())?;
            lines.push(all.vector(c, line)?);
        }
        transposed.push((a, shuffled(c, lines)?));
    }
    for row in 0..n {
        let mut at = fixed.clone();
        at[rows] = Some(c.add(first, c.index(row as i64)?)?);
        let dims = loops.dims(c, &at, Some(loops.lane(c, start, 0)?))?;
        let mut passed: ForwardedElements =
            transposed.iter().map(|(a, t)| ((*a).clone(), LaneValue::Vector(t[row]))).collect();
        scope.iteration(c, &loops.nest.stages, &dims, all, &mut [], &mut passed)?;
    }
    Ok(())
}
