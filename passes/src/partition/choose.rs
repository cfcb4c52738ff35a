//! Which values the backward pass is given, and which ops it recomputes.
use super::{
    Kinds,
    cost::Costs,
    flow::{INFINITE, Network},
    peak::{Memory, order},
    stored::{moves, reduces, stored},
};
use crate::differentiate::inputs_of;
use kiln_dialects::{
    ir::*,
    ops::{BindShape, CustomCall, OpKind},
};
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
    /// The same if nothing were recomputed.
    pub(super) most: u64,
    pub(super) flops: u64,
    /// Effects and facts of the forward pass.
    pub(super) forward_roots: Vec<Op>,
    /// The ops of the backward function, in order.
    pub(super) backward: Vec<Op>,
    /// Bytes of saved values, and of what the backward function computes at its peak.
    pub(super) peak: u64,
    /// Of what is recomputed, ops whose values are alive at the peak and for long; and those of
    /// them that no other one is computed from.
    lasting: Vec<Op>,
    tails: Vec<Op>,
    /// How many ops both functions compute, but for those of sizes.
    pub(super) recomputed_ops: usize,
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

/// What ops read.
pub(super) fn read_by(ops: &[Op]) -> Vec<Value> {
    ops.iter().flat_map(|o| inputs_of(*o)).collect()
}

/// Whether an op, or one in its regions, calls code with effects.
fn has_effect(op: Op) -> bool {
    walk(op).into_iter().any(|o| CustomCall::of(o).is_some_and(|c| c.effect))
}

/// What does not change between choices.
struct Graph<'a> {
    joint: &'a Joint<'a>,
    costs: &'a Costs,
    ops: Vec<Op>,
    /// Ops that only the backward pass computes.
    backward: HashSet<Op>,
    never: HashSet<Op>,
    /// Ops that are heavy, and kernels of their own.
    heavy: HashSet<Op>,
    forward_roots: Vec<Op>,
    backward_roots: Vec<Op>,
}

/// Chooses by a minimum cut. Heavy ops, and with `keeps_stored` what they read in the backward
/// pass, are recomputed, those with the fewest flops for a byte first, until the saved bytes are
/// within the budget: this share of the way from the least to the most.
pub(super) fn choose(
    joint: &Joint<'_>,
    costs: &Costs,
    kinds: &Kinds,
    budget: f64,
    keeps_stored: bool,
) -> Result<Plan> {
    let forward = makers(joint.results, &HashSet::new(), joint.block);
    let is_tensor = |v: &Value| costs.bytes(*v).is_some();
    // The backward function states the sizes of its arguments itself.
    let of_argument =
        |op: Op| BindShape::of(op).is_some_and(|o| joint.cotangents.contains(&o.value));
    let is_root = |op: &Op| {
        op.result_count() == 0 && !op.isa::<func::Return>() && !of_argument(*op) || has_effect(*op)
    };
    let roots: Vec<Op> = joint.block.ops().into_iter().filter(is_root).collect();
    let needed = [joint.results, joint.gradients, &read_by(&roots)].concat();
    let mut live = makers(&needed, &HashSet::new(), joint.block);
    live.extend(&roots);
    let mut ops: Vec<Op> = joint.block.ops().into_iter().filter(|o| live.contains(o)).collect();
    let mut backward_values: HashSet<Value> = joint.cotangents.iter().copied().collect();
    let mut backward = HashSet::new();
    for op in ops.iter().copied().filter(|o| !forward.contains(o)) {
        // Only a derivative makes a barrier that no result needs: in front of a recomputation.
        let is_barrier = op.kind() == Some(OpKind::OptimizationBarrier);
        // Without cotangents all that no result needs is the backward pass's.
        let alone = joint.cotangents.is_empty()
            && !has_effect(op)
            && op.results().first().is_some_and(is_tensor);
        if is_barrier || alone || inputs_of(op).iter().any(|v| backward_values.contains(v)) {
            backward_values.extend(op.results());
            backward.insert(op);
        }
    }
    let (backward_roots, forward_roots) = roots.into_iter().partition(|o| backward.contains(o));
    ops.retain(|o| o.result_count() > 0);
    let is_backward = |op: &&Op| inputs_of(**op).iter().any(|v| joint.cotangents.contains(v));
    if let Some(op) = forward.iter().find(is_backward) {
        return Err(Error::at(*op, "depends on a cotangent, but a forward result on it"));
    }
    let elements = |values: Vec<Value>| values.first().map_or(1, |v| costs.elements(*v));
    let is_heavy = |op: Op| {
        let reduces = reduces(op);
        let kind = if reduces { Some(OpKind::Reduce) } else { op.kind() };
        let (read, made) = (elements(op.operands()), elements(op.results()));
        let listed = kind.is_some_and(|k| kinds.heavy.contains(&k));
        listed && (!reduces || read >= made.saturating_mul(4))
    };
    // With a region, such as a checkpoint's: as heavy as what is in it.
    let is_heavy = |op: &Op| walk(*op).into_iter().any(is_heavy);
    let is_never = |op: &Op| {
        let listed = |o: Op| o.kind().is_some_and(|k| kinds.never.contains(&k));
        // Of other dialects there are sizes, and calls.
        let is_call = op.kind().is_none() && is_tensor(&op.result(0));
        is_call || has_effect(*op) || walk(*op).into_iter().any(listed)
    };
    let mut heavy: Vec<Op> = ops.iter().copied().filter(is_heavy).collect();
    let kernels: HashSet<Op> = heavy.iter().copied().collect();
    if keeps_stored {
        heavy.extend(stored(&backward, &kernels, joint.block, costs));
    }
    let per_byte = |op: &Op| {
        let bytes: u64 = op.results().into_iter().filter_map(|v| costs.bytes(v)).sum();
        costs.flops(*op) as f64 / bytes.max(1) as f64
    };
    heavy.sort_by(|a, b| per_byte(b).total_cmp(&per_byte(a)));
    let never = ops.iter().copied().filter(is_never).collect();
    let graph =
        Graph { joint, costs, ops, backward, never, heavy: kernels, forward_roots, backward_roots };

    let (most, least) = (graph.plan(&heavy)?, graph.plan(&[])?);
    let allowed = least.bytes as f64 + budget * most.bytes.saturating_sub(least.bytes) as f64;
    if most.bytes as f64 <= allowed {
        return graph.lower_peak(most, heavy);
    }
    // How many of the heaviest are not recomputed; fewer of these save no more bytes.
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

/// A value lasts if it is alive at one in so many heavy ops of the backward function, and at two.
const LASTING: usize = 8;
/// How often a plan is improved.
const ROUNDS: usize = 8;

impl Graph<'_> {
    /// Saves what would be recomputed and then be alive for long, if less memory is in use at the
    /// peak then. The 16-bit terms of a residual stream are a smaller cut than its f32 sums, but the
    /// last layer's derivative needs all sums, and the first layer's reads its own at the end.
    fn lower_peak(&self, mut plan: Plan, mut kept: Vec<Op>) -> Result<Plan> {
        for _ in 0..ROUNDS {
            if plan.lasting.is_empty() {
                break;
            }
            // Of a chain of sums all are saved; of what is computed early for one that lasts, that
            // one alone.
            let mut best = None;
            // Where no one is computed from another these are the same.
            let forms = if plan.tails.len() == plan.lasting.len() { 1 } else { 2 };
            for more in [&plan.lasting, &plan.tails].into_iter().take(forms) {
                let keeps = [kept.clone(), more.clone()].concat();
                let other = self.plan(&keeps)?;
                let least = best.as_ref().map_or(plan.peak, |(p, _): &(Plan, _)| p.peak);
                if other.peak < least {
                    best = Some((other, keeps));
                }
            }
            let Some(better) = best else { break };
            (plan, kept) = better;
        }
        Ok(plan)
    }

    /// The minimum cut that recomputes none of `heavy`.
    fn plan(&self, heavy: &[Op]) -> Result<Plan> {
        let heavy: HashSet<&Op> = heavy.iter().collect();
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
            } else if self.never.contains(op) || heavy.contains(op) {
                n.edge(source, node, INFINITE);
            }
            for v in op.results() {
                let value = n.node();
                n.edge(node, value, self.cost_of_saving(*op, v));
                values.insert(v, value);
            }
        }
        for v in self.wanted() {
            if let Some(value) = values.get(&v) {
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

    /// Bytes of a result. A size, which is no tensor, is recomputed; so is what only moves elements
    /// of a tensor that is no larger, which is saved in the layout that the forward pass has made.
    fn cost_of_saving(&self, op: Op, v: Value) -> u64 {
        let Some(bytes) = self.costs.bytes(v) else { return INFINITE };
        match inputs_of(op).first().and_then(|from| self.costs.bytes(*from)) {
            Some(from) if moves(op) && from <= bytes => INFINITE,
            _ => bytes,
        }
    }

    /// What the backward function is for: gradients, and what its effects read.
    fn wanted(&self) -> Vec<Value> {
        [self.joint.gradients, &read_by(&self.backward_roots)].concat()
    }

    /// The plan of these saved values.
    fn priced(&self, saved: Vec<Value>, bytes: u64) -> Plan {
        let leaves: HashSet<Value> = saved.iter().chain(self.joint.cotangents).copied().collect();
        let ops = makers(&self.wanted(), &leaves, self.joint.block);
        let is_recomputed = |op: &&Op| {
            ops.contains(*op)
                && !self.backward.contains(*op)
                && !inputs_of(**op).is_empty()
                && self.costs.bytes(op.result(0)).is_some()
        };
        let recomputed: Vec<&Op> = self.ops.iter().filter(is_recomputed).collect();
        let all: HashSet<Op> = ops.iter().chain(&self.backward_roots).copied().collect();
        let driving = self.backward.iter().chain(&self.backward_roots).copied().collect();
        let backward = order(self.joint.block, &all, &driving);
        let memory = Memory::of(&backward, &self.heavy, self.joint.gradients, self.costs);
        let kernels = backward.iter().filter(|op| self.heavy.contains(op)).count();
        let least = (kernels / LASTING).max(2);
        let lasts = |(op, crossed): &(Op, usize)| *crossed >= least && is_recomputed(&op);
        let lasting: Vec<Op> =
            memory.alive.iter().filter(|alive| lasts(alive)).map(|(op, _)| *op).collect();
        let (mut tails, mut early) = (vec![], HashSet::new());
        for op in backward.iter().rev().filter(|op| is_recomputed(op)) {
            let (is_early, is_lasting) =
                (op.results().iter().any(|v| early.contains(v)), lasting.contains(op));
            if is_lasting && !is_early {
                tails.push(*op);
            }
            if is_lasting || is_early {
                early.extend(inputs_of(*op));
            }
        }
        let flops =
            recomputed.iter().fold(0, |n: u64, op| n.saturating_add(self.costs.flops(**op)));
        let (mut most, mut seen) = (0u64, HashSet::new());
        let args: HashSet<&Value> =
            self.joint.primals.iter().chain(self.joint.cotangents).collect();
        let read = self.backward.iter().flat_map(|op| inputs_of(*op));
        for v in read.chain(self.joint.gradients.iter().copied()) {
            let is_forward = v.def().is_some_and(|o| !self.backward.contains(&o));
            if is_forward && !args.contains(&v) && seen.insert(v) {
                most = most.saturating_add(self.costs.bytes(v).unwrap_or(0));
            }
        }
        Plan {
            saved,
            bytes,
            most,
            flops,
            forward_roots: self.forward_roots.clone(),
            peak: bytes.saturating_add(memory.bytes),
            backward,
            lasting,
            tails,
            recomputed_ops: recomputed.len(),
        }
    }
}
