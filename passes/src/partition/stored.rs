//! What heavy ops of the backward pass read from memory.
use super::cost::Costs;
use crate::differentiate::inputs_of;
use kiln_dialects::{
    ir::*,
    ops::{Convert, Family, OpKind},
    rules::tensor_type,
};
use std::collections::HashSet;

/// Whether an op only moves elements.
pub(super) fn moves(op: Op) -> bool {
    op.kind().is_some_and(|k| k.family() == Family::Movement)
}

/// Whether an op reduces: its kernel computes what it reads.
pub(super) fn reduces(op: Op) -> bool {
    matches!(op.kind(), Some(OpKind::Reduce | OpKind::Mean | OpKind::Var | OpKind::Std))
}

/// Whether what reads an op's result computes it in its own loads: a movement, or a conversion to
/// no fewer bits.
fn is_load(op: Op) -> bool {
    let bits = |v: Value| tensor_type(v.ty()).map_or(0, |t| t.dtype.byte_size());
    match Convert::of(op) {
        Some(o) => bits(o.input) <= bits(op.result(0)),
        None => moves(op),
    }
}

/// Whether recomputing a value reads several tensors of its size from memory, which heavy ops make
/// or the caller gives: a sum of a residual stream does, an activation does not.
fn reads_several(v: Value, heavy: &HashSet<Op>, block: Block, costs: &Costs) -> bool {
    let (mut stack, mut seen, mut leaves) = (vec![v], HashSet::new(), 0);
    while let Some(from) = stack.pop() {
        if !seen.insert(from) || costs.elements(from) < costs.elements(v) {
            continue;
        }
        match from.def().filter(|op| op.block() == Some(block) && !heavy.contains(op)) {
            Some(op) => stack.extend(inputs_of(op)),
            None => leaves += 1,
        }
        if leaves > 1 {
            return true;
        }
    }
    false
}

/// The ops of the forward pass whose results `heavy` ops of the backward pass read, and whose
/// recomputation reads several tensors. These results would be read and stored once more, which
/// takes more time than the bytes are worth; as `ban_recompute_materialized_backward` of PyTorch's
/// partitioner, which saves activations too.
pub(super) fn stored(
    backward: &HashSet<Op>,
    heavy: &HashSet<Op>,
    block: Block,
    costs: &Costs,
) -> Vec<Op> {
    let readers = backward.iter().filter(|op| heavy.contains(*op) && !reduces(**op));
    let mut stack: Vec<Value> = readers.flat_map(|op| inputs_of(*op)).collect();
    let (mut seen, mut found) = (HashSet::new(), HashSet::new());
    while let Some(v) = stack.pop() {
        let is_tensor = costs.bytes(v).is_some();
        let Some(op) = v.def().filter(|op| is_tensor && op.block() == Some(block)) else {
            continue;
        };
        if backward.contains(&op) || !seen.insert(op) {
            continue;
        }
        if is_load(op) {
            stack.extend(inputs_of(op));
        } else if !heavy.contains(&op) && reads_several(v, heavy, block, costs) {
            found.insert(op);
        }
    }
    block.ops().into_iter().filter(|op| found.contains(op)).collect()
}
