//! Recognises reductions that few of their iterations contribute to: `select(index == key, x,
//! identity)`, where the index depends on the reduction and the key is a parallel loop.
use crate::analysis::{Body, Kernel, LinearExpr, Nest, Stage};
use crate::emit::body::backward_slice;
use kiln_dialects::ir::*;

/// The key of a reduction.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The stage that reduces.
    pub stage: usize,
    /// The parallel loop whose index is the key.
    pub key: usize,
    /// The loop of the reduction.
    pub over: usize,
    /// The index that an iteration contributes to: a value of the stage's body, an integer that
    /// depends on `over` alone.
    pub index: Value,
}

impl Key {
    /// The key of a nest: one reduction over one loop, of which every contribution is masked by an
    /// equality with a parallel loop. Of several such loops the longest.
    pub fn of(k: &Kernel, nest: &Nest) -> Option<Key> {
        let [stage] = nest.stages[..] else { return None };
        let s = k.stages.get(stage)?;
        let Body::Block(block) = s.body else { return None };
        let mut reductions = (0..nest.extents.len()).filter(|d| nest.reduction[*d]);
        let (Some(over), None) = (reductions.next(), reductions.next()) else { return None };
        let [output] = &s.outputs[..] else { return None };
        let combine = output.combine.filter(|_| output.reduces && !s.merges)?;
        let select = combine.other.def().filter(|op| op.isa::<arith::Select>())?;
        let masked = select.block() == Some(block)
            && neutral(combine.identity()?, select.operand(2))
            && nest.split.is_none();
        let found = conjuncts(select.operand(0)).into_iter().filter_map(|c| {
            let equal = c.def().filter(|op| op.isa::<arith::CmpI>())?;
            let equal = equal.dyn_cast::<arith::CmpI>()?;
            if equal.predicate()? != CmpIPredicate::Eq {
                return None;
            }
            let sides = [(equal.lhs(), equal.rhs()), (equal.rhs(), equal.lhs())];
            sides.into_iter().find_map(|(index, key)| {
                let key = key_loop(s, key).filter(|d| !nest.reduction[*d])?;
                depends_on(s, block, index, over).then_some(Key { stage, key, over, index })
            })
        });
        let length = |key: &Key| nest.extents[key.key].known().unwrap_or(i64::MAX);
        found.filter(|_| masked).max_by_key(length)
    }
}

/// Whether a value of the body is the constant that leaves an accumulator as it is. Either zero
/// leaves a sum as it is, since the sum begins at an initial value.
fn neutral(identity: Attr, v: Value) -> bool {
    let constant = v.def().and_then(|op| op.dyn_cast::<arith::Constant>()).and_then(|c| c.value());
    constant.is_some_and(|c| match (c.as_f64(), identity.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => c == identity,
    })
}

/// The terms of a conjunction.
fn conjuncts(v: Value) -> Vec<Value> {
    match v.def().filter(|op| op.isa::<arith::AndI>()) {
        Some(and) => and.operands().into_iter().flat_map(conjuncts).collect(),
        None => vec![v],
    }
}

/// The loop of the nest whose index a value is.
fn key_loop(s: &Stage, v: Value) -> Option<usize> {
    let op = v.def()?;
    if op.isa::<arith::IndexCast>() {
        return key_loop(s, op.operand(0));
    }
    s.dims.get(op.dyn_cast::<linalg::Index>()?.dim()? as usize).and_then(LinearExpr::as_dim)
}

/// Whether a value of the body follows from one loop's index and from memory at it.
fn depends_on(s: &Stage, block: Block, v: Value, over: usize) -> bool {
    let only = |at: &LinearExpr, n: usize| (0..n).all(|d| d == over || !at.uses(d));
    let loops = s.extents.len();
    backward_slice(block, v).into_iter().all(|v| match (v.block_arg(), v.def()) {
        (Some((_, i)), _) => s.inputs.get(i).is_some_and(|a| only(&a.at, loops)),
        (None, Some(op)) => match op.dyn_cast::<linalg::Index>() {
            Some(index) => {
                let dim = index.dim().and_then(|d| s.dims.get(d as usize));
                dim.is_some_and(|at| only(at, loops))
            }
            None => op.regions().is_empty(),
        },
        _ => false,
    })
}
