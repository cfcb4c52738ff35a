//! `kiln-drop-barriers`: removes `kiln.optimization_barrier`.
//!
//! Why: a barrier keeps common-subexpression elimination from joining what a checkpoint computes
//! again with what the forward pass computed. After the last of these passes it has no use, and
//! fusion would not see through it. StableHLO's barrier goes the same way in XLA.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %0 = kiln.optimization_barrier %x   %1 = kiln.exp %0
//! after:   %1 = kiln.exp %x
//! ```
use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::OptimizationBarrier,
    rules::{GRAPH_LEVELS, Level},
};

crate::pass_options! {
    /// The pass.
    pub struct DropBarriers {}
}

impl Pass for DropBarriers {
    const FLAG: &'static str = "kiln-drop-barriers";
    const SUMMARY: &'static str = "Removes optimization barriers";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            if let Some(barrier) = OptimizationBarrier::of(op) {
                op.result(0).replace_uses(barrier.input);
                op.erase();
            }
        }
        Ok(())
    }
}
