//! `kiln-tile`: lowers scheduled kernels to tiled, vectorised loops on memrefs.
//!
//! Why: a kernel writes its results in place (destination-passing style); each thread computes its
//! own block of the tasks. Upstream has tiling, a vectoriser and one-shot bufferization for this,
//! but they take most of the compile time of a small kernel, the vectoriser fails on many dynamic
//! sizes, and the result contains copies that have to be removed again. Here loops are generated
//! once, from the plan.
//!
//! Numerics: reassociates; reductions have several partial results, in an order that depends on the
//! schedule but not on the number of threads. With the schedules `dot` and `amx`, two bf16 products
//! are added to each other before they are added to the accumulator, and subnormals are flushed to
//! zero.
//!
//! ```text
//! before:  func.func @k0(%x: tensor<4x8xf32>) -> tensor<4x8xf32>  linalg.generic …
//! after:   func.func @k0(%x: memref<4x8xf32>, %out: memref<4x8xf32>, %tid: index, %nth: index)  scf.for … vector.load … vector.store
//! ```
use crate::{
    analysis::{SCRATCH, kernels_of},
    emit::{
        code::Code,
        function::{self, Scratch},
    },
    strategies::{Analysis, Device, Emission, table::scheduled},
};
use kiln_dialects::{ir::*, rules::Level, sym::Dim};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct Tile {}
}

impl Pass for Tile {
    const FLAG: &'static str = "kiln-tile";
    const SUMMARY: &'static str =
        "Lowers scheduled kernels to loops over vectors; each thread has its block of tasks";
    const LEVELS: &'static [Level] = &[Level::Scheduled];
    const LOWERS_TO: Option<Level> = Some(Level::Tiled);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Reassociates;
    const DIALECTS: &'static [&'static str] =
        &["affine", "amx", "arith", "math", "memref", "scf", "vector", "x86vector"];

    fn run(&self, root: Op) -> Result<()> {
        for func in kernels_of(root) {
            let (row, schedule) = scheduled(func, Device::Cpu)?;
            let nested = Analysis::of(func)?
                .nests(row.nesting())
                .ok_or_else(|| Error::at(func, row.mismatch()))?;
            let (mut kernel, plan) = (nested.0.clone(), &nested.1);
            let index = Type::index(func.ctx());
            let stack = |c: Code, element: Type, count: i64| {
                let ty = Type::memref(element, &[Dim::Known(count)]);
                memref::Alloca::new(c, &[], &[], ty).alignment(64).result()
            };
            let how = Scratch { allocate: &stack, max_bytes: SCRATCH };
            function::emit(&mut kernel, plan, &[index, index], &how, &mut |c, scope, arguments| {
                row.emit(&Emission { c, scope, plan, arguments }, schedule)
            })
            .at(func)?;
            func.erase();
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Tiled.name()));
        Ok(())
    }
}
