//! `kiln-gpu-tile`: lowers scheduled kernels to the SIMT code of one thread, on memrefs, or to a tile
//! program, which `kiln-lower-tiles` lowers further.
//!
//! Why: as `kiln-tile` for CPUs. Consecutive threads access consecutive elements (coalesced), with
//! 16-byte vectors where every address is aligned to that. Threads that share a row exchange
//! partial results by warp shuffles and through shared memory, in an order that the schedule fixes.
//!
//! Numerics: reassociates; the order of a reduction depends on the schedule, not on the number of
//! CTAs.
//!
//! ```text
//! before:  func.func @k0(%x: tensor<4x8xf32>) -> tensor<4x8xf32>  linalg.generic …
//! after:   func.func @k0(%x: memref<4x8xf32>, %out: memref<4x8xf32>)  gpu.block_id … scf.for … vector.load … vector.store
//! ```
use crate::{
    analysis::kernels_of,
    emit::{
        code::Code,
        function::{self, Scratch},
    },
    strategies::{Analysis, Device, Emission, gpu::common::shared, table::scheduled},
    target::launch::SHARED,
};
use kiln_dialects::{ir::*, rules::Level};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct GpuTile {}
}

impl Pass for GpuTile {
    const FLAG: &'static str = "kiln-gpu-tile";
    const SUMMARY: &'static str =
        "Lowers scheduled kernels to the code of one GPU thread, or to tile programs";
    const LEVELS: &'static [Level] = &[Level::Scheduled];
    const LOWERS_TO: Option<Level> = Some(Level::Tiled);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Reassociates;
    const DIALECTS: &'static [&'static str] =
        &["affine", "arith", "gpu", "llvm", "math", "memref", "nvvm", "scf", "vector"];

    fn run(&self, root: Op) -> Result<()> {
        for func in kernels_of(root) {
            let (row, schedule) = scheduled(func, Device::Gpu)?;
            let types = row.arguments(func).at(func)?;
            let nested = Analysis::of(func)?
                .nests(row.nesting())
                .ok_or_else(|| Error::at(func, row.mismatch()))?;
            let (mut kernel, plan) = (nested.0.clone(), &nested.1);
            let copies = row.scratch_copies(func, schedule)?;
            // Shared scratch for each of the CTA's rows, with a stride that keeps vector accesses
            // aligned.
            let scratch = |c: Code, element: Type, count: i64| -> Result<Value> {
                shared(c, element, copies * ((count + 15) / 16 * 16))
            };
            let how = Scratch { allocate: &scratch, max_bytes: SHARED };
            function::emit(&mut kernel, plan, &types, &how, &mut |c, scope, arguments| {
                row.emit(&Emission { c, scope, plan, arguments }, schedule)
            })
            .at(func)?;
            func.erase();
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Tiled.name()));
        Ok(())
    }
}
