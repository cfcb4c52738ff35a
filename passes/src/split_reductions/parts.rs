//! What a split reduction is made of.
use crate::readers::widens;
use kiln_dialects::{ir::*, ops::OpKind};

/// A split of one dimension, or of neighbours that are merged: the dimensions, the split factor, the
/// size of a part, the remainder. Each index of the `outer` dimensions before it is a part too.
pub(super) struct PartialSplit {
    pub(super) outer: usize,
    pub(super) dim: usize,
    pub(super) merged: usize,
    pub(super) count: i64,
    pub(super) size: i64,
    pub(super) remainder: i64,
}

/// The elementwise producers with no other user, in reverse topological order, and conversions to
/// more bits: a part converts again what all readers read from memory.
pub(super) fn fused_producers(input: Value, reduction: Op) -> Vec<Value> {
    let mut all: Vec<Value> = vec![];
    // Those that nothing but the reduction is computed from.
    let mut own: Vec<Op> = vec![reduction];
    let mut next = vec![input];
    while let Some(v) = next.pop() {
        let Some(op) =
            v.def().filter(|o| o.kind().is_some_and(OpKind::is_arithmetic) && !all.contains(&v))
        else {
            continue;
        };
        let only = v.uses().iter().all(|(user, _)| own.contains(user));
        if only || widens(op) {
            all.push(v);
            next.extend(op.operands());
        }
        if only {
            own.push(op);
        }
    }
    all
}
