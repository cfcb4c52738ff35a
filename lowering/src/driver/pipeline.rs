//! The pipeline table: the passes that lower the IR from each level to the next, and why they are
//! in this order.
use crate::{
    cpu::{HOST_TO_LLVM, KERNEL_TO_LLVM},
    driver::pass_options::{PassOptions, chip_options, pass_options},
    gpu::KERNEL_TO_NVVM,
    target::{Chip, Relaxed, Target},
};
use kiln_dialects::{Result, rules::Level};

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
pub enum For {
    /// Every target.
    All,
    /// CPUs.
    Host,
    /// NVIDIA GPUs.
    Cuda,
}

impl For {
    /// Whether a step applies to this GPU, or to CPUs for `None`.
    pub fn has(self, chip: Option<Chip>) -> bool {
        match self {
            For::All => true,
            For::Host => chip.is_none(),
            For::Cuda => chip.is_some(),
        }
    }
}

/// One pass of the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The module's level before the pass.
    pub from: Level,
    /// The targets that it applies to.
    pub target: For,
    /// The anchor.
    pub on: On,
    /// The pass with its options, in textual pipeline syntax.
    pub pass: &'static str,
    /// Why the pass is at this position.
    pub why: &'static str,
}

const fn step(from: Level, on: On, pass: &'static str, why: &'static str) -> Step {
    Step { from, target: For::All, on, pass, why }
}
const fn host(from: Level, on: On, pass: &'static str, why: &'static str) -> Step {
    Step { from, target: For::Host, on, pass, why }
}
const fn cuda(from: Level, on: On, pass: &'static str, why: &'static str) -> Step {
    Step { from, target: For::Cuda, on, pass, why }
}

/// All steps in order. A level's steps run if the pipeline starts at or before the level and ends
/// after it.
pub const STEPS: &[Step] = &[
    host(
        Level::Graph,
        On::Module,
        "kiln-ptx-calls",
        "before everything, so that what stands in its place is simplified and fused",
    ),
    cuda(
        Level::Graph,
        On::Module,
        "kiln-ptx-calls{keep=true}",
        "before everything, since its region is not looked at",
    ),
    step(
        Level::Graph,
        On::Module,
        "kiln-refine-shapes",
        "what later passes ask of sizes is then in the types",
    ),
    step(
        Level::Graph,
        On::Module,
        "kiln-fold-indices",
        "masks that hide nothing, before they are simplified away; running sums are ops here still",
    ),
    step(Level::Graph, On::Module, "kiln-simplify", "identities are easier to see on composites"),
    step(Level::Graph, On::Module, "canonicalize", "folds sizes and drops dead pure ops"),
    step(Level::Graph, On::Module, "cse", "captured graphs repeat masks, positions and casts"),
    step(Level::Graph, On::Module, "kiln-decompose", "from here on there are prims only"),
    step(
        Level::Graph,
        On::Module,
        "kiln-refine-shapes",
        "the expansions ask for sizes by kiln.dim; here they become symbols",
    ),
    step(
        Level::Graph,
        On::Module,
        "kiln-simplify",
        "cleans up what the expansions wrote without looking",
    ),
    step(Level::Graph, On::Module, "canonicalize", "drops what became dead"),
    step(Level::Graph, On::Module, "cse", "expansions of neighbours share scalars and broadcasts"),
    step(
        Level::Graph,
        On::Module,
        "symbol-dce",
        "globals that nothing reads any more need no memory",
    ),
    step(
        Level::Graph,
        On::Module,
        "kiln-verify-level",
        "a composite that was left behind is found here",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-outline-control",
        "behind what sees through control flow; everything below sees functions that run from the first op to the last",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-argument-order",
        "before the passes that move transposes and layouts about",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-decompose{keep=kernels}",
        "one kernel computes attention where the target can, of other composites their parts",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-expand-random",
        "there is no library of functions; before fusion, with whose kernels they fuse",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-expand-scans",
        "as random numbers; a kernel's loops compute them, which fusion has to know",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-expand-sorts",
        "as random numbers; the parts of each are one kernel or few",
    ),
    cuda(Level::Prims, On::Module, "kiln-expand-scatters", "as sorts"),
    cuda(Level::Prims, On::Module, "kiln-expand-updates", "as sorts"),
    step(
        Level::Prims,
        On::Module,
        "kiln-expose-padding",
        "padding is written once, by a kernel, not tested in a window loop",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-sink-concats",
        "a rotation of halves is one kernel; before what turns the sizes that it asks for into symbols",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-refine-shapes",
        "the expansions ask for sizes by kiln.dim",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-hoist-gathers",
        "a cross entropy would store all of its logarithms",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-hoist-reshapes",
        "over the sizes of what follows a matmul, that can be its epilogue",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-simplify",
        "cleans up what the expansions wrote without looking",
    ),
    step(Level::Prims, On::Module, "kiln-reciprocals", "before reciprocals of weights are frozen"),
    step(
        Level::Prims,
        On::Module,
        "kiln-powers",
        "before fusion, which recomputes products but not powers",
    ),
    step(Level::Prims, On::Module, "canonicalize", "drops what became dead"),
    step(
        Level::Prims,
        On::Module,
        "cse",
        "one value is one node of the graph that fusion looks at",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-fold-scales",
        "sees channels where convolutions have them; before weights are packed",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-space-to-depth",
        "behind what would see through its movements; the layout then finds them with channels last",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-layout",
        "for the whole graph, and behind what would undo its transposes",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-expose-padding",
        "what the layout has left with channels first, no copy engine pads",
    ),
    host(
        Level::Prims,
        On::Module,
        "kiln-pack",
        "behind what would see through the movements of a packed weight",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-pack{channels-last=true}",
        "what a product sums lies side by side, in both operands",
    ),
    step(Level::Prims, On::Module, "cse", "a weight that several contractions read is packed once"),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-split-reductions",
        "behind what would sink the splits below the elementwise ops in front of a reduction; fusion then sees two",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-pad-products",
        "behind what would see through zeros, before products are split by their depth",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-split-products",
        "behind what sees through reshapes of a product's operands; fusion then sees a sum",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-require-bounds",
        "what nobody reads is gone, and kernels do not ask",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-freeze",
        "what is computed once is no op that fusion has to place",
    ),
    cuda(
        Level::Prims,
        On::Module,
        "kiln-prologues",
        "behind what splits or moves products and what they read; fusion then takes it along",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-split-concats",
        "right before fusion: no pass in between has to know of tensors that are written on",
    ),
    step(
        Level::Prims,
        On::Module,
        "kiln-fuse",
        "sees the whole graph, so that every value that crosses kernels is one that has to",
    ),
    step(
        Level::Prims,
        On::Module,
        "symbol-dce",
        "a weight that was only computed with at compile time is gone",
    ),
    step(Level::Kernels, On::Module, "kiln-to-linalg", "what is computed, without how"),
    host(
        Level::Kernels,
        On::Module,
        "kiln-in-place",
        "the host function plans memory by it, apart from the kernels' bodies",
    ),
    host(
        Level::Linalg,
        On::Kernels,
        "kiln-schedule",
        "strategy and sizes, before anything depends on them",
    ),
    cuda(
        Level::Linalg,
        On::Kernels,
        "kiln-online-reductions",
        "in front of the schedule, which counts nests; rows in registers are read once as they are",
    ),
    cuda(
        Level::Linalg,
        On::Kernels,
        "kiln-gpu-schedule",
        "strategy and sizes, before anything depends on them",
    ),
    host(
        Level::Scheduled,
        On::Kernels,
        "kiln-tile",
        "loops and vectors on memory, as the schedule says",
    ),
    cuda(
        Level::Scheduled,
        On::Kernels,
        "kiln-gpu-tile",
        "what a thread does on memory, as the schedule says",
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
        "before the general expansions, since the hardware has better ones of these",
    ),
    host(
        Level::Tiled,
        On::Kernels,
        "kiln-expand-math",
        "a call of the C library per element would cost more than the rest of a kernel",
    ),
    cuda(
        Level::Tiled,
        On::Kernels,
        "kiln-expand-math{keep=math.exp2 approximations=true}",
        "there is no library of functions; 2^x is an instruction",
    ),
    step(
        Level::Tiled,
        On::Kernels,
        "canonicalize",
        "tiles of one step are no loops; behind the expansions, since it folds atan2(0, 0) to NaN",
    ),
    step(
        Level::Tiled,
        On::Host,
        "kiln-plan",
        "lifetimes are final: no launch is added or moved any more",
    ),
    host(
        Level::Program,
        On::Host,
        "kiln-host-abi",
        "memory is planned, so that a launch is a call",
    ),
    cuda(
        Level::Program,
        On::Host,
        "kiln-verify-level{level=target}",
        "the runtime launches kernels from what is planned",
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
    cuda(
        Level::Target,
        On::Kernels,
        "kiln-gpu-module",
        "all that could end the process in LLVM is refused here",
    ),
    cuda(
        Level::Target,
        On::Kernels,
        "gpu-module-to-binary{format=isa}",
        "PTX; the driver makes code for the card of it",
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
        "what no conversion took is found here",
    ),
];

/// The steps from one level to another, for a GPU, or for CPUs without a chip.
pub fn steps(from: Level, to: Level, chip: Option<Chip>) -> Vec<Step> {
    STEPS.iter().filter(|s| s.from >= from && s.from < to && s.target.has(chip)).copied().collect()
}

fn with(step: &Step, options: &PassOptions) -> String {
    let Some((pass, options)) = options.iter().find(|(pass, _)| *pass == step.pass) else {
        return step.pass.to_string();
    };
    match pass.strip_suffix('}') {
        Some(pass) => format!("{pass} {options}}}"),
        None => format!("{pass}{{{options}}}"),
    }
}

/// The textual pipeline from one level to another. Err: `to` is above `from`.
pub fn pipeline_text(from: Level, to: Level, chip: Option<Chip>) -> Result<String> {
    whole(from, to, chip, &chip.map_or(vec![], |chip| chip_options(chip, Relaxed::default())))
}

/// As [`pipeline_text`], with the pass options of a target.
pub fn pipeline_text_for(from: Level, to: Level, target: &Target) -> Result<String> {
    whole(from, to, target.chip(), &pass_options(target))
}

fn whole(from: Level, to: Level, chip: Option<Chip>, options: &PassOptions) -> Result<String> {
    if to < from {
        return Err(format!("level {} comes before level {}", to.name(), from.name()).into());
    }
    Ok(format!(
        "builtin.module({})",
        all_texts(from, to, chip, options)
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join(",")
    ))
}

/// The steps from one level to another, each with the module's level before it.
fn all_texts(
    from: Level,
    to: Level,
    chip: Option<Chip>,
    options: &PassOptions,
) -> Vec<(Level, String)> {
    // Kiln's passes find the kernels themselves; upstream's are nested on the kernels' modules.
    let text = |s: &Step| match s.on {
        On::Kernels if !s.pass.starts_with("kiln-") => format!("builtin.module({})", s.pass),
        _ => with(s, options),
    };
    steps(from, to, chip).iter().map(|s| (s.from, text(s))).collect()
}

/// The steps from one level to another for a target, each with the level before it.
pub(crate) fn texts(from: Level, to: Level, target: &Target) -> Vec<(Level, String)> {
    all_texts(from, to, target.chip(), &pass_options(target))
}

/// The pipeline of one part: for a module with one kernel, or for a module whose kernels are
/// compiled elsewhere.
pub fn part_text(on: On, from: Level, to: Level, target: &Target) -> String {
    let options = pass_options(target);
    let all: Vec<_> = steps(from, to, target.chip())
        .iter()
        .filter(|s| s.on == on)
        .map(|s| with(s, &options))
        .collect();
    format!("builtin.module({})", all.join(","))
}
