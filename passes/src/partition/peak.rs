//! The order of the backward function, and the memory that its values take.
use super::cost::Costs;
use crate::differentiate::inputs_of;
use kiln_dialects::{
    ir::*,
    ops::{Family, OpKind},
};
use std::collections::{HashMap, HashSet};

/// These ops of a block, those of `driving` in their order, and each other one right before the
/// first op that reads it: a recomputed value lives no longer than it is read. As
/// `reordering_to_mimic_autograd_engine` of PyTorch's partitioner.
pub(super) fn order(block: Block, ops: &HashSet<Op>, driving: &HashSet<Op>) -> Vec<Op> {
    let all: Vec<Op> = block.ops().into_iter().filter(|o| ops.contains(o)).collect();
    let places: HashMap<Op, usize> = all.iter().enumerate().map(|(i, o)| (*o, i)).collect();
    let mut placed = vec![false; all.len()];
    let mut order = Vec::with_capacity(all.len());
    let last = all.iter().filter(|o| !driving.contains(o));
    for op in all.iter().filter(|o| driving.contains(o)).chain(last) {
        let (mut pulled, mut stack) = (vec![], vec![*op]);
        while let Some(op) = stack.pop() {
            let Some(place) = places.get(&op).copied().filter(|place| !placed[*place]) else {
                continue;
            };
            placed[place] = true;
            pulled.push(place);
            stack.extend(inputs_of(op).into_iter().filter_map(Value::def));
        }
        pulled.sort_unstable();
        order.extend(pulled.into_iter().map(|place| all[place]));
    }
    order
}

/// What the values of a function take in memory, if its ops run in an order.
pub(super) struct Memory {
    /// Bytes at the op where they are most.
    pub(super) bytes: u64,
    /// The ops whose values are alive there, with the number of heavy ops for which they are.
    pub(super) alive: Vec<(Op, usize)>,
}

/// Whether a kernel that reads an op's result computes it instead of reading it from memory.
fn is_free(op: Op) -> bool {
    op.kind().is_none_or(|k| {
        matches!(k.family(), Family::Movement | Family::Create) || k == OpKind::Convert
    })
}

impl Memory {
    /// Arguments and `results` are not counted, which the caller allocates before the call, nor is
    /// what is not alive at a heavy op after it: fusion keeps it in registers.
    pub(super) fn of(
        order: &[Op],
        heavy: &HashSet<Op>,
        results: &[Value],
        costs: &Costs,
    ) -> Memory {
        let mut last: HashMap<Value, usize> = results.iter().map(|v| (*v, order.len())).collect();
        let mut ends = vec![0; order.len()];
        for (i, op) in order.iter().enumerate().rev() {
            let read = op.results().into_iter().filter_map(|v| last.get(&v).copied());
            ends[i] = read.max().unwrap_or(i);
            // What an op that takes no memory reads is read where its result is.
            let at = if is_free(*op) { ends[i] } else { i };
            for v in inputs_of(*op) {
                let end = last.entry(v).or_insert(at);
                *end = at.max(*end);
            }
        }
        // How many heavy ops there are up to each op.
        let mut counts = Vec::with_capacity(order.len());
        for op in order {
            counts.push(counts.last().copied().unwrap_or(0) + usize::from(heavy.contains(op)));
        }
        let crossed = |i: usize| counts[ends[i].min(order.len() - 1)] - counts[i];
        let bytes = |i: usize| -> u64 {
            let op = order[i];
            let all = op.results().into_iter().filter_map(|v| costs.bytes(v));
            // Only results are read at the end.
            let elsewhere = is_free(op) || ends[i] == order.len();
            let fused = !heavy.contains(&op) && crossed(i) == 0;
            if elsewhere || fused { 0 } else { all.fold(0, u64::saturating_add) }
        };
        let mut freed: Vec<u64> = vec![0; order.len() + 1];
        let (mut now, mut most, mut at) = (0u64, 0u64, 0);
        for i in 0..order.len() {
            let size = bytes(i);
            now = now.saturating_add(size);
            if now > most {
                (most, at) = (now, i);
            }
            freed[ends[i]] = freed[ends[i]].saturating_add(size);
            now = now.saturating_sub(freed[i]);
        }
        let alive = (0..order.len().min(at + 1)).filter(|i| ends[*i] >= at && bytes(*i) > 0);
        Memory { bytes: most, alive: alive.map(|i| (order[i], crossed(i))).collect() }
    }
}
