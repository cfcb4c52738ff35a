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
mod ampere;
mod attention;
mod bulk;
mod columns;
mod contract;
mod cooperate;
mod depthwise;
mod few;
mod fma;
mod fragments;
mod items;
mod mma;
mod prologue;
mod ptx;
mod registers;
mod rows;
mod scan;
mod score;
mod split_attention;
mod sums;
mod team;
mod transpose;
mod warps;
mod wgmma;

use crate::{
    emit::{
        code::{Code, Made},
        function::{self, Scratch},
    },
    gpu::{SHARED, gpu_schedule},
    host::kernels_of,
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
                    wgmma::parameters(func).map_err(|e| Failure::at(func, e))?
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
                "wgmma" => wgmma::emit(c, scope, &plan, &schedule, further),
                "attention" => attention::emit(c, scope, &schedule, further),
                "split_attention" => split_attention::emit(c, scope, &schedule),
                "contract" => contract::emit(c, scope, &plan, &schedule, threads),
                "depthwise" => depthwise::emit(c, scope, &plan, &schedule, threads),
                "transpose" => transpose::emit(c, scope, &plan, &schedule, threads),
                "mma" => mma::emit(c, scope, &plan, &schedule),
                "fma" => fma::emit(c, scope, &plan, &schedule, threads),
                "few" => few::emit(c, scope, &plan, &schedule),
                "registers" => registers::emit(c, scope, &plan, &schedule),
                "scan" => scan::emit(c, scope, &plan, &schedule),
                "columns" => {
                    plan.nests.iter().try_for_each(|n| columns::emit(c, scope, &plan, n, &schedule))
                }
                "rows" => {
                    rows::emit(c, scope, &plan, &plan.nests.iter().collect::<Vec<_>>(), &schedule)
                }
                "reduce" => {
                    plan.nests.iter().try_for_each(|n| rows::emit(c, scope, &plan, &[n], &schedule))
                }
                _ if plan.dependent => {
                    Err("has stages that depend on each other, which strategy loops cannot compute"
                        .into())
                }
                _ => plan.nests.iter().try_for_each(|n| {
                    items::grid(c, scope, &plan, n, threads, schedule.get("vector"))
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
fn shared(c: Code, element: Type, count: i64) -> Made<Value> {
    let text = format!("memref<{count}x{element}, 3>");
    let ty = Type::parse(c.ctx(), &text).ok_or_else(|| format!("'{text}' is no type"))?;
    let attrs = [
        ("operandSegmentSizes", Attr::i32s(c.ctx(), &[0, 0])),
        ("alignment", Attr::i64(c.ctx(), 16)),
    ];
    c.op("memref.alloca", &[], ty, &attrs)
}
