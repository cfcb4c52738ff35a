//! The Rust tracer: methods against PyTorch, type promotion and broadcasting, errors with
//! locations, symbolic sizes, and `nn`.
mod errors;
#[allow(dead_code)]
#[path = "../../examples/trace.rs"]
mod example;
mod modules;
mod replay;
mod sizes;
mod table;
mod types;

use crate::capture::{differences, lower, root, tensors};
use kiln::{
    capture::Captured,
    dialects::{
        interp::{Interpreter, Mode},
        ir::*,
        value::{self, DType},
    },
    tensor::*,
};
use std::path::Path;

/// Runs a traced program.
fn run(captured: &Captured, inputs: &[value::Tensor]) -> Result<Vec<value::Tensor>, String> {
    let weights = |name: &str, _: &str| Ok(captured.weight(name)?);
    let interpreter = Interpreter { globals: &weights, ..Interpreter::new(Mode::Exact) };
    interpreter.run(captured.module.op(), "main", inputs).map_err(|e| e.to_string())
}

/// Every public method, function and operator of `kiln::tensor` occurs in a test here.
#[test]
fn every_method_is_tested() {
    let read = |folder: &str| {
        let files = std::fs::read_dir(root().join(folder)).expect("a folder").flatten();
        files.filter_map(|e| std::fs::read_to_string(e.path()).ok()).collect::<Vec<_>>().join("\n")
    };
    let folders = ["tracer", "front", "gradients", "training", "run", "gpu/card"];
    let (source, tests) = (read("../src/tensor"), folders.map(read).concat());
    let own = regex::Regex::new(r#"(?m)^    (?:pub fn (\w+)|(\w+) "aten\.)"#).expect("a pattern");
    let names = own
        .captures_iter(&source)
        .filter_map(|c| c.get(1).or(c.get(2)).map(|m| m.as_str().to_string()));
    let used = |name: &str| {
        tests.contains(&format!(".{name}("))
            || tests.contains(&format!(".{name}::<"))
            || tests.contains(&format!("::{name}("))
    };
    let missing: Vec<String> = names.filter(|n| !used(n)).collect();
    assert!(missing.is_empty(), "no test calls {missing:?}");
}

/// The example in the crate's documentation, which `cargo run --example trace` runs.
#[test]
fn the_example_runs() {
    let text = example::run().expect("the example");
    for part in [
        "%batch = kiln.sym @batch {max = 512 : i64, min = 1 : i64}",
        "kiln.linear %add_5, %net.0.weight bias %net.0.bias",
        "%probabilities = kiln.softmax",
        "sums to 1.0000",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}
