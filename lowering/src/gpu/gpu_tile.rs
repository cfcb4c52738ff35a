//! `kiln-gpu-tile`: scheduled kernels become what one thread of a block does, on memory.
//!
//! Why: as `kiln-tile` for the host. Neighbouring threads take neighbouring elements, 16 bytes at
//! once where every address is a multiple of that; threads that share a row exchange partial
//! results by shuffles and through shared memory, in an order that the schedule fixes.
//!
//! Numerics: reassociates; the order of a reduction depends on the schedule, not on how many blocks
//! run.
//!
//! ```text
//! before:  func.func @k0(%x: tensor<4x8xf32>) -> tensor<4x8xf32>  linalg.generic …
//! after:   func.func @k0(%x: memref<4x8xf32>, %out: memref<4x8xf32>)  gpu.block_id … scf.for … vector.load … vector.store
//! ```
use crate::{
    analysis::kernels_of,
    emit::{
        code::{Code, Made},
        function::{self, Scratch},
    },
    gpu::gpu_schedule,
    strategies::gpu::{
        attention::emit as attention_emit, column_reduction::emit as column_reduction_emit,
        common::grid_stride, depthwise::emit as depthwise_emit, mma_gemm::emit as mma_gemm_emit,
        naive_contraction::emit as naive_contraction_emit,
        register_rows::emit as register_rows_emit, row_reduction::emit as row_reduction_emit,
        scan::emit as scan_emit, simt_gemm::emit as simt_gemm_emit,
        skinny_gemm::emit as skinny_gemm_emit, split_attention::emit as split_attention_emit,
        transpose::emit as transpose_emit, wgmma_gemm::emit as wgmma_gemm_emit,
    },
    target::launch::SHARED,
};
use kiln_dialects::{ir::*, rules::Level};
use kiln_passes::{Failure, Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct GpuTile {}
}

impl Pass for GpuTile {
    const FLAG: &'static str = "kiln-gpu-tile";
    const SUMMARY: &'static str =
        "Writes scheduled kernels as what one thread of a GPU's block does";
    const LEVELS: &'static [Level] = &[Level::Scheduled];
    const LOWERS_TO: Option<Level> = Some(Level::Tiled);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Reassociates;
    const DIALECTS: &'static [&'static str] =
        &["arith", "gpu", "llvm", "math", "memref", "nvvm", "scf", "vector"];

    fn run(&self, root: Op) -> Result<(), Failure> {
        for func in kernels_of(root) {
            let schedule = gpu_schedule::of(func).map_err(|e| Failure::at(func, e))?;
            let threads = gpu_schedule::threads(&schedule).map_err(|e| Failure::at(func, e))?;
            let further = match schedule.strategy.as_str() {
                "wgmma" | "attention" => {
                    wgmma_gemm_emit::parameters(func).map_err(|e| Failure::at(func, e))?
                }
                _ => vec![],
            };
            let (mut k, plan) = gpu_schedule::planned(func, &schedule.strategy)?;
            let groups = schedule.get("groups").max(1) as i64;
            // A place for each of the block's groups, at a distance that keeps wide accesses
            // aligned.
            let shared = |c: Code, element: Type, count: i64| -> Made<Value> {
                shared(c, element, groups * ((count + 15) / 16 * 16))
            };
            let how = Scratch { make: &shared, most: SHARED };
            function::emit(&mut k, &plan, &further, &how, &mut |c, scope, further| match schedule
                .strategy
                .as_str()
            {
                "wgmma" => wgmma_gemm_emit::emit(c, scope, &plan, &schedule, further),
                "attention" => attention_emit::emit(c, scope, &schedule, further),
                "split_attention" => split_attention_emit::emit(c, scope, &schedule),
                "contract" => naive_contraction_emit::emit(c, scope, &plan, &schedule, threads),
                "depthwise" => depthwise_emit::emit(c, scope, &plan, &schedule, threads),
                "transpose" => transpose_emit::emit(c, scope, &plan, &schedule, threads),
                "mma" => mma_gemm_emit::emit(c, scope, &plan, &schedule),
                "fma" => simt_gemm_emit::emit(c, scope, &plan, &schedule, threads),
                "few" => skinny_gemm_emit::emit(c, scope, &plan, &schedule),
                "registers" => register_rows_emit::emit(c, scope, &plan, &schedule),
                "scan" => scan_emit::emit(c, scope, &plan, &schedule),
                "columns" => plan
                    .nests
                    .iter()
                    .try_for_each(|n| column_reduction_emit::emit(c, scope, &plan, n, &schedule)),
                "rows" => row_reduction_emit::emit(
                    c,
                    scope,
                    &plan,
                    &plan.nests.iter().collect::<Vec<_>>(),
                    &schedule,
                ),
                "reduce" => plan
                    .nests
                    .iter()
                    .try_for_each(|n| row_reduction_emit::emit(c, scope, &plan, &[n], &schedule)),
                _ if plan.dependent => {
                    Err("has stages that depend on each other, which strategy loops cannot compute"
                        .into())
                }
                _ => plan.nests.iter().try_for_each(|n| {
                    grid_stride::grid(c, scope, &plan, n, threads, schedule.get("vector"))
                }),
            })
            .map_err(|e| Failure::at(func, e))?;
            func.erase();
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Tiled.name()));
        Ok(())
    }
}

/// Flat shared memory.
pub(crate) fn shared(c: Code, element: Type, count: i64) -> Made<Value> {
    let text = format!("memref<{count}x{element}, 3>");
    let ty = Type::parse(c.ctx(), &text).ok_or_else(|| format!("'{text}' is no type"))?;
    let attrs = [
        ("operandSegmentSizes", Attr::i32s(c.ctx(), &[0, 0])),
        ("alignment", Attr::i64(c.ctx(), 16)),
    ];
    c.op("memref.alloca", &[], ty, &attrs)
}
