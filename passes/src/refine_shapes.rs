//! `kiln-refine-shapes`: propagates sizes, static and symbolic, and writes what became known into
//! types and size operands.
//!
//! Why: types are what every later pass looks at. A contradiction (a size that is provably two
//! things) is an error at the op, here and not in a kernel. Upstream has shape refinement for its
//! own dialects only.
//!
//! Facts come from argument types, `kiln.bind_shape`, every op's shape rule, and elementwise ops,
//! whose operands have one shape. `kiln.dim` becomes a constant or a symbol. Values of region ops,
//! calls and custom calls keep their types, by a `kiln.reshape` where they must.
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
use kiln_dialects::Result;
use kiln_dialects::{
    ir::{Attr, Op, walk},
    rules::{GRAPH_LEVELS, Level},
};
use std::collections::HashSet;

crate::pass_options! {
    /// The pass.
    pub struct RefineShapes {
        /// Most rounds of propagation; facts also flow backwards, so one round may not find all
        pub rounds: usize = 8,
    }
}

impl Pass for RefineShapes {
    const FLAG: &'static str = "kiln-refine-shapes";
    const SUMMARY: &'static str =
        "Propagates sizes, static and symbolic, into types and size operands";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let ops = walk(root);
        let called: HashSet<String> = ops
            .iter()
            .filter(|o| o.is("func.call"))
            .filter_map(|o| o.attr("callee").and_then(Attr::as_symbol))
            .collect();
        // Collected first: the rewrite erases ops that a lazy filter would still look at.
        let functions: Vec<Op> = ops.into_iter().filter(|o| o.is("func.func")).collect();
        for func in functions {
            let facts = Facts::of(func, self.rounds)?;
            let open = func.symbol().is_none_or(|s| !called.contains(&s));
            apply::apply(func, &facts, open)?;
        }
        Ok(())
    }
}
