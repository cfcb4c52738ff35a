//! Which 16-bit values are rounded where a kernel computes them: see [`kiln_passes::rounding`].
use crate::kernels::{
    fuse::{group::FusionPlan, signature::Outline},
    op_facts::{folding_op, reads},
};
use kiln_dialects::ir::*;
use kiln_passes::rounding::rounds;
use std::collections::HashSet;

impl Outline<'_> {
    /// The 16-bit values that several kernels compute, or that a kernel stores and reads itself.
    pub(super) fn shared(&self, plan: &FusionPlan) -> HashSet<Value> {
        let (mut computed, mut shared) = (HashSet::new(), HashSet::new());
        for g in 0..plan.groups.len() {
            let inside = |v: Value| plan.computes(self.graph, g, v);
            let (mut own, mut stack) = (HashSet::new(), self.results(plan, g));
            while let Some(v) = stack.pop() {
                if self.graph.is_leaf(v) && !inside(v) || !own.insert(v) {
                    continue;
                }
                let operands = v.def().map(reads).unwrap_or_default();
                shared.extend(operands.iter().filter(|o| inside(**o) && self.crossing.contains(o)));
                stack.extend(operands);
            }
            shared.extend(own.iter().filter(|v| computed.contains(*v)));
            computed.extend(own);
        }
        // A contraction that folds a transpose into its store is read through the transpose.
        shared.retain(|v: &Value| {
            v.def().is_some_and(|op| folding_op(op).map_or(rounds(op), rounds))
        });
        shared
    }
}
