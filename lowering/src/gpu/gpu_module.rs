//! `kiln-gpu-module`: moves a kernel of the llvm dialect into a `gpu.module` with its target chip.
//!
//! Why: upstream's code generator takes a `gpu.module`. LLVM aborts the process on an operation
//! that it cannot select, so every op is first checked against a list.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  llvm.func @k(…) attributes {kiln.threads = 256}
//! after:   gpu.module @gpu [#nvvm.target<O = 3, chip = "sm_90a">] { llvm.func @k(…) attributes {gpu.kernel, nvvm.kernel, nvvm.reqntid = …} }
//! ```
use crate::{
    program::interface::kernel_symbol,
    target::{
        Chip,
        kernel_attrs::{
            GPU_KERNEL, LLVM_ALIGN, LLVM_BYVAL, LLVM_DATA_LAYOUT, NVVM_CLUSTER_DIM,
            NVVM_GRID_CONSTANT, NVVM_KERNEL, NVVM_MINCTASM, NVVM_REQNTID,
        },
        launch::{
            CLUSTER, GRID, LIBRARY, PERSISTENT, RESIDENT, SHARED_BYTES, TENSOR_MAPS, THREADS,
            set_on_module,
        },
    },
};
use kiln_dialects::{
    ir::*,
    rules::{LEVELS, Level},
    value::DType,
};
use kiln_passes::{Numerics, Pass};

/// The data layout of LLVM's NVPTX target machine. Without it the translation aligns i64 to 4 bytes
/// and splits its loads and stores into halves, and the driver then loses lower halves.
const DATA_LAYOUT: &str = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64";

kiln_passes::pass_options! {
    /// The pass.
    pub struct GpuModule {
        /// The chip: sm_80, sm_86, sm_89 or sm_90a
        pub chip: String = "sm_90a".into(),
    }
}

/// LLVM intrinsics that NVPTX can select or expand.
const INTRINSICS: &[&str] = &[
    "abs",
    "bswap",
    "ceil",
    "copysign",
    "ctlz",
    "ctpop",
    "cttz",
    "fabs",
    "floor",
    "fma",
    "fmuladd",
    "masked.gather",
    "masked.scatter",
    "maximum",
    "maxnum",
    "minimum",
    "minnum",
    "round",
    "roundeven",
    "smax",
    "smin",
    "sqrt",
    "trunc",
    "umax",
    "umin",
    "vector.reduce.and",
    "vector.reduce.or",
];
/// Ops of the llvm dialect that are not intrinsics. `frem` is missing: its results are sometimes
/// wrong.
const OPS: &[&str] = &[
    "add",
    "addrspacecast",
    "and",
    "ashr",
    "bitcast",
    "br",
    "cond_br",
    "extractelement",
    "extractvalue",
    "fadd",
    "fcmp",
    "fdiv",
    "fmul",
    "fneg",
    "fpext",
    "fptosi",
    "fptoui",
    "fptrunc",
    "freeze",
    "fsub",
    "func",
    "getelementptr",
    "icmp",
    "insertelement",
    "inline_asm",
    "insertvalue",
    "inttoptr",
    "load",
    "lshr",
    "mlir.addressof",
    "mlir.constant",
    "mlir.global",
    "mlir.poison",
    "mlir.undef",
    "mlir.zero",
    "mul",
    "or",
    "ptrtoint",
    "return",
    "sdiv",
    "select",
    "sext",
    "shl",
    "shufflevector",
    "sitofp",
    "srem",
    "store",
    "sub",
    "switch",
    "trunc",
    "udiv",
    "uitofp",
    "unreachable",
    "urem",
    "xor",
    "zext",
];
const NVVM: &[&str] = &[
    "bar.warp.sync",
    "barrier",
    "barrier0",
    "cluster.arrive",
    "cluster.arrive.relaxed",
    "cluster.wait",
    "cp.async.bulk.commit.group",
    "cp.async.bulk.prefetch",
    "cp.async.bulk.shared.cluster.shared.cta",
    "cp.async.bulk.tensor.global.shared.cta",
    "cp.async.bulk.tensor.shared.cluster.global",
    "cp.async.bulk.wait_group",
    "cp.async.commit.group",
    "cp.async.shared.global",
    "cp.async.wait.group",
    "fence.mbarrier.init",
    "fence.proxy",
    "griddepcontrol",
    "ldmatrix",
    "mapa",
    "mbarrier.arrive",
    "mbarrier.arrive.expect_tx",
    "mbarrier.init",
    "mma.sync",
    "prefetch",
    "read.ptx.sreg.ctaid.x",
    "read.ptx.sreg.nctaid.x",
    "read.ptx.sreg.tid.x",
    "setmaxregister",
    "shfl.sync",
    "stmatrix",
    "vote.sync",
    "wgmma.commit.group.sync.aligned",
    "wgmma.fence.aligned",
    "wgmma.wait.group.sync.aligned",
];

impl Pass for GpuModule {
    const FLAG: &'static str = "kiln-gpu-module";
    const SUMMARY: &'static str = "Wraps a kernel of the llvm dialect in a gpu.module, after checking that the chip has all its instructions";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;
    const REQUIRED: bool = true;
    const DIALECTS: &'static [&'static str] = &["gpu", "llvm", "nvvm"];

    fn run(&self, root: Op) -> Result<()> {
        if !Chip::ALL.iter().any(|c| c.name() == self.chip) {
            return Err(format!("chip is sm_80, sm_86, sm_89 or sm_90a, not {}", self.chip).into());
        }
        root.ctx().register_translations();
        let kernel = |o: &Op| {
            o.isa::<llvm::LLVMFunc>()
                && o.attr(THREADS).is_some()
                && o.parent().is_some_and(|p| p.is("builtin.module"))
        };
        let modules: Vec<Op> =
            walk(root).into_iter().filter(kernel).filter_map(Op::parent).collect();
        for module in modules {
            wrap(module, &self.chip)?;
        }
        Ok(())
    }
}

/// Whether NVPTX can lower an op.
fn is_supported(op: Op) -> bool {
    let name = op.name();
    if let Some(name) = name.strip_prefix("llvm.intr.") {
        // 2^x is an instruction for f32 only; a vector is one instruction per element.
        let single = || {
            op.results()
                .first()
                .map(|r| r.ty())
                .is_some_and(|t| t.element().unwrap_or(t).dtype() == Ok(DType::F32))
        };
        return INTRINSICS.contains(&name) || (name == "exp2" && single());
    }
    name.strip_prefix("llvm.").is_some_and(|n| OPS.contains(&n))
        || name.strip_prefix("nvvm.").is_some_and(|n| NVVM.contains(&n))
}

/// Tensor-map parameters are `grid_constant`: TMA reads the descriptor from the parameter space.
fn tensor_maps(func: Op) -> Option<()> {
    let Some(maps) = func.attr(TENSOR_MAPS).and_then(Attr::as_array) else { return Some(()) };
    let c = func.ctx();
    let mut all = func.attr("arg_attrs").and_then(Attr::as_array)?;
    let bytes = Attr::ty(Type::llvm_array(Type::integer(c, 8), 128));
    let about =
        [(LLVM_ALIGN, Attr::i64(c, 64)), (LLVM_BYVAL, bytes), (NVVM_GRID_CONSTANT, Attr::unit(c))];
    all.iter_mut().rev().take(maps.len()).for_each(|a| *a = Attr::dictionary(c, &about));
    func.set_attr("arg_attrs", Attr::array(c, &all));
    Some(())
}

fn wrap(module: Op, chip: &str) -> Result<()> {
    let inside: Vec<Op> = blocks(module).into_iter().flat_map(|b| b.ops()).collect();
    if let Some(op) = inside.iter().find(|o| {
        (o.attr(TENSOR_MAPS).is_some() || o.attr(CLUSTER).is_some()) && chip != Chip::Sm90a.name()
    }) {
        return Err(Error::at(
            *op,
            format!("uses TMA, wgmma or clusters of sm_90a, which {chip} does not have"),
        ));
    }
    for op in inside.iter().flat_map(|o| walk(*o)) {
        if !is_supported(op) {
            return Err(Error::unsupported(op, format!("has no compiled form yet for {chip}")));
        }
    }
    let Some(first) = inside.first().copied() else { return Ok(()) };
    let c = module.ctx();
    // Only its module says how to launch a kernel that is PTX. The kernels of a program need
    // symbols of their own.
    if let Some(func) = inside.iter().find(|o| o.attr(THREADS).is_some())
        && module.symbol().is_some()
    {
        let symbol = kernel_symbol(module);
        func.set_attr("sym_name", Attr::string(c, &symbol));
        set_on_module(module, *func, &symbol, None);
    }
    let target = Attr::parse(c, &format!("#nvvm.target<O = 3, chip = \"{chip}\">"))
        .ok_or_at(first, "has no nvvm dialect")?;
    let b = Builder::before(first).ok_or_at(first, "is in no module")?;
    let mut fill = |b: Builder, _: Vec<Value>| -> Result<()> {
        for op in &inside {
            let copy = b.clone_op(*op, &|v| v)?;
            if let Some(threads) = copy.attr(THREADS).and_then(Attr::as_i64) {
                copy.set_attr(GPU_KERNEL, Attr::unit(c));
                copy.set_attr(NVVM_KERNEL, Attr::unit(c));
                copy.set_attr(NVVM_REQNTID, Attr::i32s(c, &[threads as i32]));
                // ptxas would rather spill registers than lower the occupancy; with a minimum of
                // one CTA per SM it need not.
                let resident = copy.attr(RESIDENT).and_then(Attr::as_i64).unwrap_or(1);
                copy.set_attr(NVVM_MINCTASM, Attr::scalar_int(c, DType::I32, resident));
                if let Some(blocks) = copy.attr(CLUSTER).and_then(Attr::as_i64) {
                    copy.set_attr(NVVM_CLUSTER_DIM, Attr::i32s(c, &[blocks as i32, 1, 1]));
                }
                tensor_maps(copy).ok_or("has tensor maps that are no parameters")?;
                for name in [
                    THREADS,
                    GRID,
                    CLUSTER,
                    LIBRARY,
                    RESIDENT,
                    PERSISTENT,
                    TENSOR_MAPS,
                    SHARED_BYTES,
                    "kiln.schedule",
                ] {
                    copy.remove_attr(name);
                }
            }
        }
        Ok(())
    };
    gpu::GPUModule::new(b, "gpu")
        .targets(Attr::array(c, &[target]))
        .with_attr(LLVM_DATA_LAYOUT, Attr::string(c, DATA_LAYOUT))
        .body_region((&[], &mut fill))
        .build()
        .at(first)?;
    inside.iter().for_each(|o| o.erase());
    Ok(())
}
