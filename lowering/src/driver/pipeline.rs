//! The pipeline table: the passes that lower the IR from each level to the next, and why they are
//! in this order.
use crate::{
    cpu::{HOST_TO_LLVM, KERNEL_TO_LLVM},
    gpu::KERNEL_TO_NVVM,
    target::Chip,
};
use kiln_dialects::rules::Level;

/// The anchor of a pipeline step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The whole module.
    Module,
    /// Each kernel separately; the library compiles kernels independently.
    Kernels,
    /// The host function.
    Host,
}

/// The targets of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFilter {
    /// Every target.
    All,
    /// CPUs.
    Host,
    /// NVIDIA GPUs.
    Cuda,
}

impl TargetFilter {
    /// Whether a step applies to this GPU, or to CPUs for `None`.
    pub fn has(self, chip: Option<Chip>) -> bool {
        match self {
            TargetFilter::All => true,
            TargetFilter::Host => chip.is_none(),
            TargetFilter::Cuda => chip.is_some(),
        }
    }
}

/// One pass of the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct PipelineStep {
    /// The module's level before the pass.
    pub from: Level,
    /// The targets that it applies to.
    pub target: TargetFilter,
    /// The anchor.
    pub on: On,
    /// The pass with its options, in textual pipeline syntax.
    pub pass: &'static str,
    /// Why the pass is at this position.
    pub why: &'static str,
}

const fn step(from: Level, on: On, pass: &'static str, why: &'static str) -> PipelineStep {
    PipelineStep { from, target: TargetFilter::All, on, pass, why }
}
const fn host(from: Level, on: On, pass: &'static str, why: &'static str) -> PipelineStep {
    PipelineStep { from, target: TargetFilter::Host, on, pass, why }
}
const fn cuda(from: Level, on: On, pass: &'static str, why: &'static str) -> PipelineStep {
    PipelineStep { from, target: TargetFilter::Cuda, on, pass, why }
}

/// All steps in order. A level's steps run if the pipeline starts at or before the level and ends
/// after it.
pub const PIPELINE: &[PipelineStep] = &[
    host(
        Level::Graph,
        On::Module,
        "kiln-ptx-calls",
        "first, so that the inlined region is simplified and fused",
    ),
    cuda(
        Level::Graph,
        On::Module,
        "kiln-ptx-calls{keep=true}",
        "first, since no pass looks into its region",
    ),
    step(
        Level::Graph,
        On::Module,
        "kiln-refine-shapes",
        "puts sizes that later passes need into the types",
    ),
    step(
        Level::Graph,
        On::Module,
        "kiln-fold-indices",
        "recognises masks that hide nothing before kiln-simplify removes them",
    ),
    step(Level::Graph, On::Module, "kiln-simplify", "identities are easier to see on composites"),
    step(Level::Graph, On::Module, "canonicalize", "folds sizes and drops dead pure ops"),
    step(Level::Graph, On::Module, "cse", "captured graphs repeat masks, positions and casts"),
    step(Level::Graph, On::Module, "kiln-raise-attention", "softmax and products are still whole"),
    step(Level::Graph, On::Module, "kiln-decompose", "from here on there are prims only"),
    step(
        Level::Graph,
        On::Module,
        "kiln-refine-shapes",
        "turns the expansions' kiln.dim ops into symbols",
    ),
    step(Level::Graph, On::Module, "kiln-simplify", "cleans up after the expansions"),
    step(Level::Graph, On::Module, "canonicalize", "drops what became dead"),
    step(Level::Graph, On::Module, "cse", "expansions of neighbours share scalars and broadcasts"),
    step(Level::Graph, On::Module, "symbol-dce", "drops unused globals, which would need memory"),
    step(
        Level::Graph,
        On::Module,
        "kiln-verify-level",
        "reports composites that were not expanded",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-bound-sizes",
        "before kiln-outline-control; a host reads its sizes without waiting for a device",
    ),
    cuda(Level::Prims, On::Module, "kiln-fft-calls", "first: its calls stand between programs"),
    step(
        Level::Prims,
        On::Module,
        "kiln-outline-control",
        "after passes that see through control flow; later passes see straight-line functions",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-argument-order",
        "before passes that move transposes and choose layouts",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-decompose{keep=kernels}",
        "keeps attention where the target has a kernel for it; expands other composites",
    ),
    host(
        Level::Prims,
        On::Module,
        "kiln-require-indices",
        "before passes that rewrite gathers; a GPU's arguments are not in the host's memory",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-expand-random",
        "before fusion, so that the expansion fuses",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-expand-ffts",
        "as above; what it expands are products, which fuse",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-expand-scans",
        "as above; fusion must know which ops need loops",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-expand-sorts",
        "as above; each sort becomes one kernel or a few",
    ),
    cuda(Level::Prims, On::Module, "kiln-expand-scatters", "as sorts"),
    cuda(Level::Prims, On::Module, "kiln-expand-updates", "as sorts"),
    step(
        Level::Prims,
        On::Module,
        "kiln-expand-conv1d",
        "before padding is exposed: what pads two dimensions as it loads then pads one",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-merge-groups",
        "before padding is exposed and layouts are chosen, which its mark decides",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-expose-padding",
        "a kernel writes the padding once, instead of a test in the window loop",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-hoist-slices",
        "right before kiln-sink-concats, whose sums then read no stored product",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-sink-concats",
        "fuses rotary embeddings into one kernel; before kiln-refine-shapes, for the sizes it takes",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-refine-shapes",
        "turns the expansions' kiln.dim ops into symbols",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-hoist-gathers",
        "a cross entropy would otherwise store all logarithms",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-hoist-reshapes",
        "lets the ops after a matmul become its epilogue",
    ),
    step(Level::Prims, On::Module, "kiln-simplify", "cleans up after the expansions"),
    host(
        Level::Prims,
        On::Module,
        "kiln-interleave-ffts",
        "after simplification, before dead parts are dropped",
    ),
    step(Level::Prims, On::Module, "kiln-reciprocals", "before reciprocals of weights are frozen"),
    step(
        Level::Prims,
        On::Module,
        "kiln-powers",
        "before fusion, which recomputes products but not powers",
    ),
    step(Level::Prims, On::Module, "canonicalize", "drops what became dead"),
    step(Level::Prims, On::Module, "cse", "fusion's graph has one node per value"),
    step(
        Level::Prims,
        On::Module,
        "kiln-fold-scales",
        "after the expansions, while channels are dimension 1; before weights are packed",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-space-to-depth",
        "after passes that would cancel its movement ops; before kiln-layout, which reads its result",
    ),
    host(
        Level::Prims,
        On::Module,
        "kiln-layout",
        "sees the whole graph; after passes that would cancel its transposes",
    ),
    host(
        Level::Prims,
        On::Module,
        "kiln-winograd",
        "after kiln-layout, whose images have channels last; before kiln-freeze and fusion",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-layout{mutable=true groups=false}",
        "sees the whole graph; cuDNN and naive_contraction take other grouped convolutions as given",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-expose-padding",
        "TMA cannot pad tensors that kiln-layout left channels first",
    ),
    host(
        Level::Prims,
        On::Module,
        "kiln-pack",
        "after passes that would cancel the movement ops of a packed weight",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-pack{channels-last=true}",
        "makes both operands of a GEMM K-major",
    ),
    step(Level::Prims, On::Module, "cse", "a weight that several contractions read is packed once"),
    step(
        Level::Prims,
        On::Module,
        "kiln-drop-barriers",
        "after the last cse, which would join what a checkpoint computes again; before fusion",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-rematerialize",
        "after the last cse, which would join the clones; before reductions are split with their producers",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-split-reductions",
        "after passes that would sink its reshapes; fusion then sees two reductions",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-pad-products",
        "after passes that would remove the zeros; before split-K",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-split-products",
        "after passes that see through reshapes of operands; fusion then sees a sum",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-require-bounds",
        "after dead code elimination; kernels have no checks",
    ),
    host(
        Level::Prims,
        On::Module,
        "kiln-freeze",
        "fusion then does not see ops that run once at load time",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-freeze{either-order=true}",
        "fusion then does not see ops that run once at load time",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-prologues",
        "after passes that rewrite GEMMs and their operands; fusion then keeps the prologue",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-split-concats",
        "right before fusion, so that no other pass handles destination operands",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-fuse",
        "sees the whole graph, so that only necessary values cross kernels",
    ),
    step(
        Level::Prims,
        On::Module,
        "symbol-dce",
        "drops weights that only constant folding has read",
    ),
    step(Level::Kernels, On::Module, "kiln-to-linalg", "what is computed, without how"),
    host(
        Level::Kernels,
        On::Module,
        "kiln-in-place",
        "kiln-plan reads its marks, not the kernels' bodies",
    ),
    cuda(
        Level::Kernels,
        On::Module,
        "kiln-in-place{donated=true}",
        "as on processors, but marked kernels are compiled without noalias",
    ),
    host(Level::Linalg, On::Kernels, "kiln-schedule", "before the passes that read the schedule"),
    cuda(
        Level::Linalg,
        On::Kernels,
        "kiln-online-reductions",
        "before the schedule, which counts nests; rows kept in registers need no rewrite",
    ),
    cuda(
        Level::Linalg,
        On::Kernels,
        "kiln-gpu-schedule",
        "before the passes that read the schedule",
    ),
    host(
        Level::Scheduled,
        On::Kernels,
        "kiln-tile",
        "lowers to loops and vectors, as the schedule says",
    ),
    cuda(
        Level::Scheduled,
        On::Kernels,
        "kiln-gpu-tile",
        "lowers to one thread's code or a tile program, as the schedule says",
    ),
    cuda(
        Level::Tiled,
        On::Kernels,
        "kiln-lower-tiles",
        "before all other passes of threads: nothing else knows tiles in registers",
    ),
    step(
        Level::Tiled,
        On::Kernels,
        "kiln-lower-affine",
        "in front of cse, which then sees the parts that addresses share",
    ),
    step(Level::Tiled, On::Kernels, "cse", "stages of a kernel compute the same addresses"),
    cuda(
        Level::Tiled,
        On::Kernels,
        "kiln-gpu-math",
        "before kiln-expand-math: the hardware has instructions for these",
    ),
    host(
        Level::Tiled,
        On::Kernels,
        "kiln-expand-math",
        "a libm call per element would dominate a kernel",
    ),
    cuda(
        Level::Tiled,
        On::Kernels,
        "kiln-expand-math{keep=math.exp2 approximations=true}",
        "GPUs have no libm; exp2 is an instruction",
    ),
    step(
        Level::Tiled,
        On::Kernels,
        "canonicalize",
        "removes loops of one iteration; after the expansions, since it folds atan2(0, 0) to NaN",
    ),
    step(
        Level::Tiled,
        On::Host,
        "kiln-alias-results",
        "in front of kiln-plan, which keeps other values out of that memory",
    ),
    host(
        Level::Tiled,
        On::Host,
        "kiln-plan",
        "lifetimes are final: no later pass adds or moves launches",
    ),
    cuda(
        Level::Tiled,
        On::Host,
        "kiln-plan{reuse-from=4194304}",
        "launches run in order, and smaller values may stay in L2",
    ),
    host(
        Level::Program,
        On::Host,
        "kiln-host-abi",
        "after memory planning: a launch becomes a call",
    ),
    cuda(
        Level::Program,
        On::Host,
        "kiln-verify-level{level=target}",
        "the runtime launches kernels by the plan",
    ),
    step(
        Level::Target,
        On::Kernels,
        "kiln-kernel-abi",
        "a kernel's signature does not depend on how MLIR passes memrefs",
    ),
    cuda(
        Level::Target,
        On::Kernels,
        "kiln-gpu-abi",
        "upstream's conversion would call a library for math",
    ),
    host(Level::Target, On::Kernels, KERNEL_TO_LLVM, "upstream's conversions"),
    cuda(Level::Target, On::Kernels, KERNEL_TO_NVVM, "upstream's conversions"),
    cuda(Level::Target, On::Kernels, "kiln-gpu-module", "rejects code on which LLVM would abort"),
    cuda(
        Level::Target,
        On::Kernels,
        "gpu-module-to-binary{format=isa}",
        "PTX, which the driver compiles for its GPU",
    ),
    host(
        Level::Target,
        On::Host,
        HOST_TO_LLVM,
        "control flow first, since regions of omp change their types with it",
    ),
    step(
        Level::Target,
        On::Module,
        "kiln-verify-level{level=llvm}",
        "reports ops that no conversion handled",
    ),
];

/// The steps from one level to another, for a GPU, or for CPUs without a chip.
pub fn steps(from: Level, to: Level, chip: Option<Chip>) -> Vec<PipelineStep> {
    PIPELINE
        .iter()
        .filter(|s| s.from >= from && s.from < to && s.target.has(chip))
        .copied()
        .collect()
}
