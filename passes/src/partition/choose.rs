//! Which values the backward pass is given, and which ops it computes again.
use super::{
    Kinds,
    cost::Costs,
    flow::{INFINITE, Network},
};
use crate::differentiate::inputs_of;
use kiln_dialects::{ir::*, ops::OpKind};
use std::collections::{HashMap, HashSet};

/// A function of forward results and gradients.
pub(super) struct Joint<'a> {
    pub(super) block: Block,
    pub(super) primals: &'a [Value],
    pub(super) cotangents: &'a [Value],
    pub(super) results: &'a [Value],
    pub(super) gradients: &'a [Value],
}

/// What the backward pass is given.
pub(super) struct Plan {
    /// In the order of the function: arguments first.
    pub(super) saved: Vec<Value>,
    /// Bytes of those that are no arguments.
    pub(super) bytes: u64,
    /// The same if nothing were computed again.
    pub(super) most: u64,
    pub(super) flops: u64,
    /// Ops that only the backward pass can compute.
    pub(super) backward: HashSet<Op>,
    /// Ops that both functions compute, but for those of sizes.
    pub(super) again: usize,
}

/// The ops that values are computed by, within a block and up to `leaves`.
pub(super) fn makers(values: &[Value], leaves: &HashSet<Value>, block: Block) -> HashSet<Op> {
    let (mut seen, mut stack) = (HashSet::new(), values.to_vec());
    while let Some(v) = stack.pop() {
        let Some(op) = v.def().filter(|o| o.block() == Some(block) && !leaves.contains(&v)) else {
            continue;
        };
        if seen.insert(op) {
            stack.extend(inputs_of(op));
        }
    }
    seen
}

/// What does not change between choices.
struct Graph<'a> {
    joint: &'a Joint<'a>,
    costs: &'a Costs,
    ops: Vec<Op>,
    /// Ops that only the backward pass computes.
    backward: HashSet<Op>,
    never: HashSet<Op>,
}

/// Chooses by a minimum cut. Heavy ops are given up, those with the fewest flops for a byte first,
/// until the saved bytes are within the budget: this share of the way from the least to the most.
pub(super) fn choose(joint: &Joint<'_>, costs: &Costs, kinds: &Kinds, budget: f64) -> Result<Plan> {
    let ops: Vec<Op> = joint.block.ops().into_iter().filter(|o| o.result_count() > 0).collect();
    let forward = makers(joint.results, &HashSet::new(), joint.block);
    // Without cotangents nothing but the forward pass's own ops can be computed ahead.
    let mut late: HashSet<Value> = joint.cotangents.iter().copied().collect();
    let mut backward = HashSet::new();
    let is_tensor = |op: &&Op| costs.bytes(op.result(0)).is_some();
    for op in ops.iter().filter(|o| !forward.contains(*o)).filter(is_tensor) {
        if joint.cotangents.is_empty() || inputs_of(*op).iter().any(|v| late.contains(v)) {
            backward.insert(*op);
            late.extend(op.results());
        }
    }
    let is_late = |op: &&Op| inputs_of(**op).iter().any(|v| joint.cotangents.contains(v));
    if let Some(op) = forward.iter().find(is_late) {
        return Err(Error::at(*op, "depends on a cotangent, but a forward result on it"));
    }
    let is_heavy = |op: &Op| {
        let Some(kind) = op.kind().filter(|k| kinds.heavy.contains(k)) else { return false };
        let (read, made) = (costs.elements(op.operand(0)), costs.elements(op.result(0)));
        kind != OpKind::Reduce || read >= made.saturating_mul(4)
    };
    // Of other dialects there are sizes, and calls.
    let is_never = |op: &Op| match op.kind() {
        Some(kind) => kinds.never.contains(&kind),
        None => costs.bytes(op.result(0)).is_some(),
    };
    let mut heavy: Vec<Op> = ops.iter().copied().filter(is_heavy).collect();
    let per_byte = |op: &Op| {
        let bytes: u64 = op.results().into_iter().filter_map(|v| costs.bytes(v)).sum();
        costs.flops(*op) as f64 / bytes.max(1) as f64
    };
    heavy.sort_by(|a, b| per_byte(b).total_cmp(&per_byte(a)));
    let never = ops.iter().copied().filter(is_never).collect();
    let graph = Graph { joint, costs, ops, backward, never };

    let (most, least) = (graph.plan(&heavy)?, graph.plan(&[])?);
    let allowed = least.bytes as f64 + budget * most.bytes.saturating_sub(least.bytes) as f64;
    if most.bytes as f64 <= allowed {
        return Ok(most);
    }
    // How many of the heaviest are kept; fewer kept save no more bytes.
    let (mut low, mut high, mut best) = (0, heavy.len(), least);
    while low + 1 < high {
        let middle = low.midpoint(high);
        let plan = graph.plan(&heavy[..middle])?;
        if plan.bytes as f64 <= allowed {
            (low, best) = (middle, plan);
        } else {
            high = middle;
        }
    }
    Ok(best)
}

impl Graph<'_> {
    /// The minimum cut that computes none of `kept` again.
    fn plan(&self, kept: &[Op]) -> Result<Plan> {
        let kept: HashSet<&Op> = kept.iter().collect();
        let mut n = Network::new();
        let (source, sink) = (n.node(), n.node());
        let (mut values, mut places) = (HashMap::new(), HashMap::new());
        for (args, from, cost) in
            [(self.joint.primals, source, 0), (self.joint.cotangents, sink, INFINITE)]
        {
            for v in args {
                let node = n.node();
                n.edge(from, node, cost);
                values.insert(*v, node);
            }
        }
        for op in &self.ops {
            let node = n.node();
            places.insert(*op, node);
            for v in inputs_of(*op) {
                if let Some(value) = values.get(&v) {
                    n.edge(*value, node, INFINITE);
                }
            }
            if self.backward.contains(op) {
                n.edge(node, sink, INFINITE);
            } else if self.never.contains(op) || kept.contains(op) {
                n.edge(source, node, INFINITE);
            }
            for v in op.results() {
                let value = n.node();
                // Sizes are no tensors: they are computed again.
                n.edge(node, value, self.costs.bytes(v).unwrap_or(INFINITE));
                values.insert(v, value);
            }
        }
        for v in self.joint.gradients {
            if let Some(value) = values.get(v) {
                n.edge(*value, sink, INFINITE);
            }
        }
        let after = n.cut(source, sink)?;
        let is_saved = |v: &Value, from: usize| after[values[v]] && !after[from];
        let mut saved: Vec<Value> =
            self.joint.primals.iter().copied().filter(|v| is_saved(v, source)).collect();
        let mut bytes = 0u64;
        for op in &self.ops {
            for v in op.results().iter().filter(|v| is_saved(v, places[op])) {
                saved.push(*v);
                bytes = bytes.saturating_add(self.costs.bytes(*v).unwrap_or(0));
            }
        }
        Ok(self.priced(saved, bytes))
    }

    /// The plan of these saved values.
    fn priced(&self, saved: Vec<Value>, bytes: u64) -> Plan {
        let leaves: HashSet<Value> = saved.iter().chain(self.joint.cotangents).copied().collect();
        let late = makers(self.joint.gradients, &leaves, self.joint.block);
        let again = |op: &&Op| late.contains(*op) && !self.backward.contains(*op);
        let tensors = |op: &&Op| op.operand_count() > 0 && self.costs.bytes(op.result(0)).is_some();
        let repeated: Vec<&Op> = self.ops.iter().filter(again).filter(tensors).collect();
        let flops = repeated.iter().fold(0, |n: u64, op| n.saturating_add(self.costs.flops(**op)));
        let (mut most, mut seen) = (0u64, HashSet::new());
        let args: HashSet<&Value> =
            self.joint.primals.iter().chain(self.joint.cotangents).collect();
        let read = self.backward.iter().flat_map(|op| inputs_of(*op));
        for v in read.chain(self.joint.gradients.iter().copied()) {
            let forward = v.def().is_some_and(|o| !self.backward.contains(&o));
            if forward && !args.contains(&v) && seen.insert(v) {
                most = most.saturating_add(self.costs.bytes(v).unwrap_or(0));
            }
        }
        Plan { saved, bytes, most, flops, backward: self.backward.clone(), again: repeated.len() }
    }
}
