//! `kiln-fuse`: groups ops into kernels and makes the host function that launches them.
//!
//! Why: a value that stays in registers costs nothing, one that goes through memory costs its bytes
//! twice. Upstream fuses one linalg op into another; it does not see reductions with what is around
//! them, several results, or views, and it leaves no reason for what it does not fuse.
//!
//! What `kiln-prologues` has marked is no value in memory: the product that reads it computes it.
//!
//! A module with attribute [`EACH_OP`] gets a kernel for every op, as a backend may want that fuses
//! nothing.
//!
//! Numerics: exact on this level; an op that several kernels compute again gives the same bits in
//! each.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w …   %1 = kiln.add %0, %b …   return %1
//! after:   %1 = kiln.launch @dot_general_add ins(%x, %w, %b) outs(%e)   return %1
//!          module @dot_general_add { func.func @dot_general_add(%x, %w, %b) { … } }
//! ```
pub(crate) mod gated_pairs;
pub(crate) mod group;
pub mod insert_slice;
pub(crate) mod outline;

use crate::{analysis::sizes::ask_arguments_only, kernels::graph::Graph};
use kiln_dialects::Result;
use kiln_dialects::{
    ir::{Attr, Op, walk},
    rules::{Level, is_driver},
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};

/// The unit attribute of a module whose ops are not fused.
pub const EACH_OP: &str = "kiln.each_op";

kiln_passes::pass_options! {
    /// The pass.
    pub struct Fuse {
        /// Rounds of size propagation
        pub rounds: usize = 8,
        /// Computes two products with one left operand in one kernel, where one expression takes
        /// both; for chips with a kernel for it
        pub pairs: bool = false,
        /// Computes pointwise ops in front of a transpose where it is read; for chips whose kernels
        /// turn tiles in shared memory
        pub turns: bool = false,
    }
}

impl Pass for Fuse {
    const FLAG: &'static str = "kiln-fuse";
    const SUMMARY: &'static str =
        "Groups ops into kernels and makes the host function that launches them";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const LOWERS_TO: Option<Level> = Some(Level::Kernels);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;
    const DIALECTS: &'static [&'static str] = &["tensor"];

    fn run(&self, root: Op) -> Result<()> {
        let functions: Vec<Op> =
            walk(root).into_iter().filter(|o| o.is("func.func") && !is_driver(*o)).collect();
        let mut kernels = outline::Kernels::of(root)?;
        for func in functions {
            let mut facts = Facts::of(func, self.rounds)?;
            if let Some(block) = func.regions().first().and_then(|r| r.first())
                && ask_arguments_only(block, &facts)?
            {
                facts = Facts::of(func, self.rounds)?;
            }
            let alone = root.attr(EACH_OP).is_some();
            let graph = Graph::read(func, &facts, self.turns && !alone)?;
            let how =
                if alone { group::How::EachOp } else { group::How::Fused { pairs: self.pairs } };
            let plan = group::plan(&graph, how);
            outline::apply(func, &graph, &plan, &mut kernels)?;
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Kernels.name()));
        Ok(())
    }
}
