//! `kiln-fuse`: groups ops into kernels and creates the host function that launches them.
//!
//! Why: a value that stays in registers costs nothing; one that goes through memory is written and
//! read once more. Upstream fuses one linalg op into another. It does not fuse reductions with
//! their neighbours, several results, or views, and it records no reason for what it does not fuse.
//!
//! An op that `kiln-prologues` has marked is not materialised: the GEMM that reads it computes it.
//!
//! A module with attribute [`EACH_OP`] gets one kernel per op, for a backend that fuses nothing.
//!
//! Numerics: exact on this level; an op that several kernels rematerialise gives the same bits in
//! each, for which 16-bit results are marked `kiln.rounded`.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w …   %1 = kiln.add %0, %b …   return %1
//! after:   %1 = kiln.launch @dot_general_add ins(%x, %w, %b) outs(%e)   return %1
//!          module @dot_general_add { func.func @dot_general_add(%x, %w, %b) { … } }
//! ```
pub(crate) mod gated_pairs;
pub(crate) mod group;
pub mod insert_slice;
mod joins;
mod kernel_body;
mod kernel_table;
mod merge;
mod operand_prologues;
mod outline;
mod rounding;
mod sibling_products;
mod siblings;
mod signature;
mod sink_into_readers;
mod small_siblings;
mod updates;

use crate::{
    analysis::sizes::ask_arguments_only,
    kernels::{graph::Graph, marks::EACH_OP},
};
use kiln_dialects::{
    Result,
    ir::*,
    rules::{Level, is_driver, non_drivers},
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};

kiln_passes::pass_options! {
    /// The pass.
    pub struct Fuse {
        /// Rounds of size propagation
        pub rounds: usize = 8,
        /// Fuses two GEMMs with one left operand whose results meet in one expression, and GEMMs
        /// of few rows with one left operand; for chips that have a kernel for it
        pub pairs: bool = false,
        /// Pads pixels of a matmul's result in its kernel, also if no weight of it is packed: a
        /// processor's kernel would pack the weight for each line of pixels
        pub split_rows: bool = true,
        /// Marks weights of products of few rows that no launch writes (`kiln.constant`); for
        /// chips whose kernels load them while the kernel before them ends
        pub constants: bool = false,
        /// Clocks that a launch takes; 0 for processors. Small kernels are joined where that saves a
        /// launch, and the CTAs of products of few rows compute these rows themselves where that
        /// takes less
        pub launch: i64 = 0,
        /// Computes pointwise ops before a transpose in the transpose's reader; for chips whose
        /// kernels transpose tiles in shared memory
        pub fold_transposes: bool = false,
    }
}

impl Pass for Fuse {
    const FLAG: &'static str = "kiln-fuse";
    const SUMMARY: &'static str =
        "Groups ops into kernels and creates the host function that launches them";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const LOWERS_TO: Option<Level> = Some(Level::Kernels);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;
    const DIALECTS: &'static [&'static str] = &["tensor"];

    fn run(&self, root: Op) -> Result<()> {
        // Control flow may give a program the same memory as an argument and as a result.
        let plain = !blocks(root).into_iter().flat_map(|b| b.ops()).any(is_driver);
        let mut kernels = kernel_table::Kernels::of(root)?;
        for func in non_drivers(root) {
            let mut facts = Facts::of(func, self.rounds)?;
            if let Some(block) = func.regions().first().and_then(|r| r.first())
                && ask_arguments_only(block, &facts)?
            {
                facts = Facts::of(func, self.rounds)?;
            }
            let alone = root.attr(EACH_OP).is_some();
            let graph = Graph::read(func, &facts, self.fold_transposes && !alone)?;
            let how = if alone {
                group::FusionMode::EachOp
            } else {
                group::FusionMode::Fused {
                    pairs: self.pairs,
                    split_rows: self.split_rows,
                    launch: self.launch,
                }
            };
            let plan = group::plan(&graph, how);
            let constants = self.constants && plain;
            outline::apply(func, &graph, &plan, constants, &mut kernels)?;
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Kernels.name()));
        Ok(())
    }
}
