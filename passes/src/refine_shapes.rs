//! `kiln-refine-shapes`: propagates static and symbolic dimensions into types and size operands.
//!
//! Why: every later pass decides by types. A shape contradiction is reported here, at the op, and
//! not in a kernel. Upstream refines shapes of its own dialects only.
//!
//! Facts come from argument types, `kiln.bind_shape`, the shape rule of each op, and elementwise
//! ops, whose operands have equal shapes. `kiln.dim` folds to a constant or a symbol. Values of
//! region ops and calls keep their types, through a `kiln.reshape` where needed.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  kiln.bind_shape %x, [3, 4] : tensor<?x?xf32>   %0 = kiln.exp %x : tensor<?x?xf32>
//! after:   %x: tensor<3x4xf32>                            %0 = kiln.exp %x : tensor<3x4xf32>
//! ```
mod analysis;
mod apply;

use crate::pass::{Numerics, Pass};
pub use analysis::Facts;
use kiln_dialects::{
    Result,
    ir::*,
    rules::{GRAPH_LEVELS, Level},
};
use std::collections::HashSet;

crate::pass_options! {
    /// The pass.
    pub struct RefineShapes {
        /// Most rounds of propagation; facts also flow backwards, so one round may miss some
        pub rounds: usize = 8,
    }
}

impl Pass for RefineShapes {
    const FLAG: &'static str = "kiln-refine-shapes";
    const SUMMARY: &'static str =
        "Propagates static and symbolic dimensions into types and size operands";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let ops = walk(root);
        let called: HashSet<String> = ops
            .iter()
            .filter(|o| o.isa::<func::Call>())
            .filter_map(|o| o.attr("callee").and_then(Attr::as_symbol))
            .collect();
        // Collected first: the rewrite erases ops that a lazy filter would still visit.
        let functions: Vec<Op> = ops.into_iter().filter(|o| o.isa::<func::Func>()).collect();
        for func in functions {
            let facts = Facts::of(func, self.rounds)?;
            let open = func.symbol().is_none_or(|s| !called.contains(&s));
            apply::apply(func, &facts, open)?;
        }
        Ok(())
    }
}
