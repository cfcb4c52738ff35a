//! Contractions: which dimension is which.
use crate::kernel::{Kernel, Plan};

/// What the dimensions of a contraction are.
#[derive(Clone, Debug)]
pub struct Roles {
    /// The stage that sums products.
    pub stage: usize,
    /// Those that both operands have.
    pub batch: Vec<usize>,
    /// Those that only the first operand has.
    pub rows: Vec<usize>,
    /// Those that only the second operand has.
    pub columns: Vec<usize>,
    /// Those that are summed over.
    pub depth: Vec<usize>,
}

/// The roles, if a kernel is one sum of products of two tensors of floats, with or without stages on the result and beside it.
pub fn contraction(k: &Kernel, plan: &Plan) -> Option<Roles> {
    let nest = plan.main()?;
    let [stage] = nest.stages.as_slice() else { return None };
    let s = k.stages.get(*stage)?;
    let ([out], [a, b]) = (s.outputs.as_slice(), s.inputs.as_slice()) else { return None };
    let combine = out.combine.as_ref().filter(|c| c.op.is("arith.addf"))?;
    combine.other.def().filter(|p| p.is("arith.mulf"))?;
    if !s.captured.is_empty() || !s.indexed.is_empty() || nest.split.is_some() {
        return None;
    }
    let mut r = Roles { stage: *stage, batch: vec![], rows: vec![], columns: vec![], depth: vec![] };
    for d in 0..nest.extents.len() {
        let list = match (nest.reduction[d], a.at.uses(d), b.at.uses(d)) {
            (true, true, true) => &mut r.depth,
            (true, ..) => return None,
            (_, true, true) => &mut r.batch,
            (_, true, false) => &mut r.rows,
            (_, false, true) => &mut r.columns,
            (_, false, false) => return None,
        };
        list.push(d);
    }
    (!r.rows.is_empty() && !r.columns.is_empty() && !r.depth.is_empty()).then_some(r)
}
