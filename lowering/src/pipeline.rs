//! The pipeline table: which passes take the IR from each level to the next, and why there.
use kiln_dialects::rules::Level;

/// One pass of the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The level that the module has before.
    pub from: Level,
    /// The pass with its options, as it stands in a textual pipeline.
    pub pass: &'static str,
    /// Why here.
    pub why: &'static str,
}

/// All steps in order. A level's steps run when the pipeline starts at it and goes on beyond it.
pub const STEPS: &[Step] = &[
    Step { from: Level::Graph, pass: "kiln-refine-shapes", why: "what later passes ask of sizes is then in the types" },
    Step { from: Level::Graph, pass: "kiln-simplify", why: "identities are easier to see on composites" },
    Step { from: Level::Graph, pass: "canonicalize", why: "folds sizes and drops dead pure ops" },
    Step { from: Level::Graph, pass: "cse", why: "captured graphs repeat masks, positions and casts" },
    Step { from: Level::Graph, pass: "kiln-decompose", why: "from here on there are prims only" },
    Step { from: Level::Graph, pass: "kiln-refine-shapes", why: "the expansions ask for sizes by kiln.dim; here they become symbols" },
    Step { from: Level::Graph, pass: "kiln-simplify", why: "cleans up what the expansions wrote without looking" },
    Step { from: Level::Graph, pass: "canonicalize", why: "drops what became dead" },
    Step { from: Level::Graph, pass: "cse", why: "expansions of neighbours share scalars and broadcasts" },
    Step { from: Level::Graph, pass: "symbol-dce", why: "globals that nothing reads any more need no memory" },
    Step { from: Level::Graph, pass: "kiln-verify-level", why: "a composite that was left behind is found here" },
    Step { from: Level::Prims, pass: "kiln-decompose{keep=none}", why: "no host kernel takes a composite whole yet" },
    Step { from: Level::Prims, pass: "kiln-expose-padding", why: "padding is written once, by a kernel, not tested in a window loop" },
    Step { from: Level::Prims, pass: "kiln-refine-shapes", why: "the expansions ask for sizes by kiln.dim" },
    Step { from: Level::Prims, pass: "kiln-simplify", why: "cleans up what the expansions wrote without looking" },
    Step { from: Level::Prims, pass: "canonicalize", why: "drops what became dead" },
    Step { from: Level::Prims, pass: "cse", why: "one value is one node of the graph that fusion looks at" },
    Step { from: Level::Prims, pass: "kiln-fuse", why: "sees the whole graph, so that every value that crosses kernels is one that has to" },
    Step { from: Level::Prims, pass: "symbol-dce", why: "a weight that was only computed with at compile time is gone" },
    Step { from: Level::Kernels, pass: "kiln-to-linalg", why: "what is computed, without how" },
    Step { from: Level::Linalg, pass: "kiln-schedule", why: "strategy and sizes, before anything depends on them" },
    Step { from: Level::Scheduled, pass: "kiln-tile", why: "loops and vectors on memory, as the schedule says" },
    Step { from: Level::Tiled, pass: "kiln-plan", why: "lifetimes are final: no launch is added or moved any more" },
];

/// The steps from one level to another.
pub fn steps(from: Level, to: Level) -> Vec<Step> {
    STEPS.iter().filter(|s| s.from >= from && s.from < to).copied().collect()
}

/// The textual pipeline from one level to another; an error if it would go backwards.
pub fn pipeline_text(from: Level, to: Level) -> Result<String, String> {
    if to < from {
        return Err(format!("level {} comes before level {}", to.name(), from.name()));
    }
    Ok(format!("builtin.module({})", steps(from, to).iter().map(|s| s.pass).collect::<Vec<_>>().join(",")))
}
