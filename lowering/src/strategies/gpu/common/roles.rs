//! Roles of a contraction's dimensions: batch, M, N, K.
use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Stage},
    strategies::gpu::prologue::Prologue,
};
use kiln_dialects::value::DType;

/// Roles of a contraction's dimensions.
#[derive(Clone, Debug)]
pub struct Roles {
    /// The stage that contracts.
    pub stage: usize,
    /// Batch dimensions: both operands have them.
    pub batch: Vec<usize>,
    /// M: only the first operand has them.
    pub rows: Vec<usize>,
    /// N: only the second operand has them.
    pub columns: Vec<usize>,
    /// K: reduction dimensions.
    pub k: Vec<usize>,
}

/// The roles, if a kernel is one contraction of two float tensors with more than one row and
/// column, with or without stages on or beside the result.
pub fn contraction(k: &Kernel, plan: &NestPlan) -> Option<Roles> {
    let several = |r: &Roles| !r.rows.is_empty() && !r.columns.is_empty();
    // A prologue on an operand would also transform the zeros beyond its end.
    let plain = |s: &Stage| s.inputs.len() == 2 && Prologue::of(s).is_none();
    roles(k, plan).filter(|r| several(r) && k.stages.get(r.stage).is_some_and(plain))
}

/// As [`contraction`], where an operand may have a single row.
pub fn roles(k: &Kernel, plan: &NestPlan) -> Option<Roles> {
    let nest = plan.main()?;
    let [stage] = nest.stages.as_slice() else { return None };
    roles_of(k, nest, *stage)
}

/// As [`roles`], of one stage of a nest.
pub fn roles_of(k: &Kernel, nest: &Nest, stage: usize) -> Option<Roles> {
    let s = k.stages.get(stage)?;
    // After the operands there may be an empty tensor that gives a loop its size.
    let (a, b) = match Prologue::of(s) {
        Some(p) => (p.raw(s)?, s.inputs.get(p.right)?),
        None => (s.inputs.first()?, s.inputs.get(1)?),
    };
    if !s.indexed.is_empty() {
        return None;
    }
    s.contraction()?;
    roles_between(nest, (stage, s), [a, b])
}

/// The roles of a nest's dimensions in a stage that contracts these operands.
fn roles_between(nest: &Nest, (stage, s): (usize, &Stage), [a, b]: [&Access; 2]) -> Option<Roles> {
    if !s.captured.is_empty() || nest.split.is_some() {
        return None;
    }
    let mut r = Roles { stage, batch: vec![], rows: vec![], columns: vec![], k: vec![] };
    for d in 0..nest.extents.len() {
        let list = match (nest.reduction[d], a.at.uses(d), b.at.uses(d)) {
            (true, true, true) => &mut r.k,
            (true, ..) => return None,
            (_, true, true) => &mut r.batch,
            (_, true, false) => &mut r.rows,
            (_, false, true) => &mut r.columns,
            (_, false, false) => return None,
        };
        list.push(d);
    }
    (!r.k.is_empty()).then_some(r)
}

/// The contracting stages of a nest, one to `most`, with their roles and their operands' dtype.
/// Each contracts bf16, f16 or f32 over the same loops.
pub fn contractions(k: &Kernel, nest: &Nest, most: usize) -> Option<(Vec<usize>, Roles, DType)> {
    let plain = |s: &Stage| Some((factors(s).filter(|_| s.indexed.is_empty())?, [0, 1]));
    contractions_by(k, nest, most, &plain)
}

/// What a strategy says about a stage that contracts, and the inputs of both factors.
pub type FactorsOf<'a, T> = dyn Fn(&Stage) -> Option<(T, [usize; 2])> + 'a;

/// As [`contractions`], of stages that `of` says the same about.
pub fn contractions_by<T: PartialEq + Clone>(
    k: &Kernel,
    nest: &Nest,
    most: usize,
    of: &FactorsOf<'_, T>,
) -> Option<(Vec<usize>, Roles, T)> {
    let one = |n: &usize| {
        let stage = k.stages.get(*n)?;
        let (said, [a, b]) = of(stage)?;
        let operands = [stage.inputs.get(a)?, stage.inputs.get(b)?];
        Some((roles_between(nest, (*n, stage), operands)?, said))
    };
    let all: Vec<(Roles, T)> = nest.stages.iter().map(one).collect::<Option<_>>()?;
    let ((first, said), others) = all.split_first().filter(|(_, others)| others.len() < most)?;
    let same = |(r, t): &(Roles, T)| {
        t == said
            && r.batch == first.batch
            && r.rows == first.rows
            && r.columns == first.columns
            && r.k == first.k
    };
    others.iter().all(same).then(|| (nest.stages.clone(), first.clone(), said.clone()))
}

/// The dtype of both factors, if a stage contracts 8-bit floats, or int8 with an int32 accumulator.
pub fn factors_of_8_bits(stage: &Stage) -> Option<DType> {
    let c = stage.accumulates_numbers()?;
    let element = c.element()?;
    let fits = match element {
        d if d.is_8_bit_float() => c.product == DType::F32,
        DType::I8 => c.product == DType::I32 && c.accumulator == DType::I32,
        _ => false,
    };
    fits.then_some(element)
}

/// The dtype of both factors, if a stage contracts bf16, f16 or f32 with an f32 accumulator.
pub fn factors(stage: &Stage) -> Option<DType> {
    let c = stage.accumulates().filter(|c| c.product == DType::F32)?;
    c.element().filter(|d| [DType::BF16, DType::F16, DType::F32].contains(d))
}
