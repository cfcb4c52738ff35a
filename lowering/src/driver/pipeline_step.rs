//! A row of the pipeline table: a pass, the level and target that it applies to, and why.
use crate::target::Chip;
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

/// A step for every target.
pub(super) const fn step(
    from: Level,
    on: On,
    pass: &'static str,
    why: &'static str,
) -> PipelineStep {
    PipelineStep { from, target: TargetFilter::All, on, pass, why }
}
/// A step for CPUs.
pub(super) const fn host(
    from: Level,
    on: On,
    pass: &'static str,
    why: &'static str,
) -> PipelineStep {
    PipelineStep { from, target: TargetFilter::Host, on, pass, why }
}
/// A step for NVIDIA GPUs.
pub(super) const fn cuda(
    from: Level,
    on: On,
    pass: &'static str,
    why: &'static str,
) -> PipelineStep {
    PipelineStep { from, target: TargetFilter::Cuda, on, pass, why }
}
