//! The cases of the passes that write code of a GPU's threads: kernels that `kiln-gpu-tile` has
//! tiled, against upstream's serial loops of the same linalg, and functions with
//! `kiln-gpu-math`'s instructions, against the interpreter.
use super::*;
use crate::{
    passes::{execution, functions, pipeline, sizes},
    support::{Case, cases},
};
use kiln::{
    dialects::ir::{Context, Module},
    lowering::{RunOptions, run_pipeline},
};
use std::sync::LazyLock;

pub static SUITE: Suite = Suite {
    name: "passes",
    count: || ALL.len() as u64,
    label: |item| ALL[item as usize].label.clone(),
    check,
    whole: true,
    emulated: 1,
};

/// The passes' files.
const FILES: &[&str] = &[
    include_str!("../../passes/gpu_tile.mlir"),
    include_str!("../../passes/lower_tiles.mlir"),
    include_str!("../../passes/gpu_math.mlir"),
];

struct Item {
    label: String,
    text: String,
    pipeline: String,
}

/// All cases that run.
static ALL: LazyLock<Vec<Item>> = LazyLock::new(|| {
    let of = |file: &'static str| {
        let usual = pipeline(file).expect("a pipeline");
        let item = move |c: Case| Item {
            pipeline: pipeline(&c.text).unwrap_or(usual).into(),
            label: c.name,
            text: c.text,
        };
        let runs =
            |c: &Case| !["// expected-error", "// NO-RUN"].iter().any(|w| c.text.contains(w));
        cases(file).into_iter().filter(runs).map(item)
    };
    FILES.iter().copied().flat_map(of).collect()
});

/// Whether a case with code of a GPU's threads is one of these.
pub fn has(text: &str) -> Result<(), String> {
    match ALL.iter().any(|i| i.text == text) {
        true => Ok(()),
        false => Err("nothing runs it: tests/gpu/card/passes.rs has other files".into()),
    }
}

fn check(item: u64) -> Outcome {
    if device() == "cpu" {
        // No processor runs this code.
        return Outcome::Agrees;
    }
    let item = &ALL[item as usize];
    let context = Context::new();
    let parsed = Module::parse(context.ctx(), item.text.as_bytes(), &item.label);
    let (module, _) = parsed.unwrap_or_else(|e| panic!("{e}"));
    let options = options();
    let done = if functions::are_of_upstream(&module) {
        let after = module.duplicate();
        let passes = format!("builtin.module({})", item.pipeline);
        run_pipeline(&after, &passes, &RunOptions::default(), &|_, _, _| ())
            .map_err(|e| e.to_string())
            .and_then(|_| functions::same_results(&module, &after, functions::On::Gpu, &options))
    } else {
        sizes(&item.text)
            .and_then(|s| execution::same_results(&module, &item.pipeline, &options, &s))
    };
    match done {
        // As far as a machine without a driver gets.
        Err(e) if device() == "ptx" && e.contains("driver") => Outcome::Agrees,
        Err(e) => Outcome::Wrong(e),
        Ok(()) => Outcome::Agrees,
    }
}
