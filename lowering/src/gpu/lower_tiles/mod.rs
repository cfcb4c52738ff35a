//! `kiln-lower-tiles`: writes tile programs (`kiln.tile`) as the code of one thread.
//!
//! Why: a strategy says what warpgroups do with tiles; which registers of which thread hold an
//! element, where a stage lies in shared memory, and which phase of which mbarrier a thread waits
//! for follow from that.
//!
//! Each stage of a pipeline has two mbarriers. TMA's transaction bytes complete `full`; each
//! consumer warp arrives at `empty` when it has read the stage. Where a program waits for `full` once
//! more after its wgmmas, one elected lane per warpgroup would not do: a warp that a refill overtakes
//! before that would wait for a phase that is over. Others say so (`warpgroups`).
//!
//! Numerics: reassociates sums along rows.
//!
//! ```text
//! before:  %s = kiln.tile.mma %q, transposed %k … kiln.tile.mma_wait 0(%s) … kiln.tile.reduce max %s
//! after:   nvvm.wgmma.mma_async … wgmma.wait_group … arith.maxnumf … gpu.shuffle xor
//! ```
mod cluster_reduce;
mod elementwise;
mod epilogue;
mod fragments;
mod lines;
mod loads;
mod map;
mod products;
mod rings;
mod role;
mod staging;
mod store;
mod thread;
mod values;
mod warp_specialisation;
mod wide_loads;

use crate::{
    analysis::kernels_of,
    emit::{
        code::{BranchBody, Code},
        function,
    },
    gpu::lower_tiles::{
        cluster_reduce::Shares,
        fragments::{Lowered, is_elementwise, registers},
        rings::Rings,
        role::Role,
        thread::{Thread, WARPS},
        warp_specialisation::WarpRoles,
    },
    strategies::gpu::common::ptx::Ptx,
    target::launch::{THREADS, WARP},
};
use kiln_dialects::{ir::*, ops::*, rules::Level};
use kiln_passes::{Numerics, Pass};
use std::collections::HashMap;

kiln_passes::pass_options! {
    /// The pass.
    pub struct LowerTiles {}
}

impl Pass for LowerTiles {
    const FLAG: &'static str = "kiln-lower-tiles";
    const SUMMARY: &'static str = "Lowers tile programs to the code of one GPU thread";
    const LEVELS: &'static [Level] = &[Level::Tiled];
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Reassociates;
    const DIALECTS: &'static [&'static str] =
        &["affine", "arith", "gpu", "llvm", "math", "memref", "nvvm", "scf", "vector"];

    fn run(&self, root: Op) -> Result<()> {
        for func in kernels_of(root) {
            let all = |is: &dyn Fn(&Op) -> bool| -> Vec<Op> {
                walk(func).into_iter().filter(|op| is(op)).collect()
            };
            let programs = all(&|op| op.kind() == Some(OpKind::TileWarpSpecialize));
            let [program] = programs.as_slice() else {
                match programs.is_empty() {
                    true => continue,
                    false => return Err(Error::at(func, "has several tile programs")),
                }
            };
            let rings = all(&|op| op.kind() == Some(OpKind::TilePipeline));
            let mut constants = all(&|op| op.isa::<arith::Constant>() && is_elementwise(*op));
            lower(func, *program, &rings, &constants).at(func)?;
            let inside = walk(*program);
            constants.retain(|op| !inside.contains(op));
            program.erase();
            constants.into_iter().for_each(Op::erase);
            rings.into_iter().for_each(Op::erase);
            function::finish(func)?;
        }
        Ok(())
    }
}

/// A left operand of equal elements, as pairs.
fn operand_of(c: Code, ty: Type, value: Value) -> Result<Lowered> {
    let pair = vector::from_elements(c, &[value; 2], Type::vector(value.ty(), 2))?;
    Ok(Lowered::Operand(vec![Ptx(c).bitcast_i32(pair)?; registers(ty)? / 2]))
}

fn lower(func: Op, op: Op, rings: &[Op], constants: &[Op]) -> Result<()> {
    let node = TileWarpSpecialize::of(op).ok_or_malformed(op)?;
    let c = Code(Builder::before(op).ok_or("is in no block")?);
    let mut known = HashMap::new();
    for op in constants {
        let value = op.attr("value").and_then(Attr::splat_value).ok_or("has several elements")?;
        let (ty, value) = (op.result(0).ty(), arith::constant(c, value)?);
        let made = match ty.fragment_layout() {
            Some(FragmentLayout::Operand) => operand_of(c, ty, value)?,
            _ => Lowered::Splat(value),
        };
        known.insert(op.result(0), made);
    }
    let (consumers, inside) = (node.consumers as usize, walk(op));
    let stages =
        |op: &Op| TileEpilogue::of(*op).is_some_and(|epilogue| !epilogue.destinations.is_empty());
    let staged = inside.iter().any(stages);
    let reduces = inside.iter().filter(|op| op.kind() == Some(OpKind::TileClusterReduce));
    let shares = match reduces.map(|op| Shares::of(*op)).collect::<Result<Vec<_>>>()?.as_slice() {
        [] => None,
        [one] => Some(*one),
        _ => return Err("reduces several tiles over its cluster".into()),
    };
    let rings = Rings::of(c, func, rings, (consumers, staged))?;
    let (threads, own) = ((1 + consumers) * WARPS * WARP, func.attr(THREADS));
    if own.and_then(Attr::as_i64) != Some(threads as i64) {
        return Err(
            format!("has roles of {threads} threads, but {THREADS} is another number").into()
        );
    }
    let [produce, consume] = [0, 1].map(|i| op.regions().get(i).and_then(|r| r.first()));
    let (produce, consume) = produce.zip(consume).ok_or("has an empty region")?;
    let registers = node.registers.map(|r| (r[0] as usize, r[1] as usize));
    let run = |c: Code, block: Block, thread: Option<Thread>| {
        let mut role = Role { rings: &rings, consumers, thread, values: known.clone() };
        role.block(c, block).map(drop)
    };
    let mut copied = cluster_reduce::producer_barriers;
    warp_specialisation::emit(
        c,
        WarpRoles {
            registers,
            barriers: &mut |c| {
                node.prefetch.iter().try_for_each(|m| Ptx(c).prefetch_tensor_map(*m))?;
                rings.barriers(c, consumers)?;
                shares.map_or(Ok(()), |s| s.barrier(Ptx(c), &rings))
            },
            copies: &mut |c| run(c, produce, None),
            copied: shares.is_some().then_some(&mut copied as &mut BranchBody<'_>),
            multiplies: &mut |c, group, thread, warp| {
                let thread = Thread::of(c, group, thread, warp)?;
                run(c, consume, Some(thread))?;
                // A CTA must not exit before TMA has read its shared memory.
                match staged {
                    true => {
                        c.if_else(thread.elected, &mut |c| Ptx(c).tma_store_wait(0, true), None)
                    }
                    false => Ok(()),
                }
            },
        },
    )
}
