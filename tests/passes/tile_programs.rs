//! Graphs lowered to tile programs, which the interpreter runs, against the graphs. Cases of passes
//! with tile programs run in `mod.rs`.
use super::execution;
use crate::{
    gpu::card::kernels,
    support::{self, *},
    tolerance,
};
use kiln::{
    dialects::{interp::Mode, ir::*, rules::Level},
    lowering::{Chip, RunOptions, pipeline_text, run_pipeline},
};
use std::collections::BTreeSet;

/// Derivatives of attention: by query, and by key and value; of heads that share keys.
const GRADIENTS: &str = "// CASE: by_query
func.func @main(%q: tensor<1x4x100x64xbf16>, %k: tensor<1x2x72x64xbf16>, %v: tensor<1x2x72x64xbf16>, %c: tensor<1x4x100x64xbf16>, %l: tensor<1x4x100xf32>, %d: tensor<1x4x100xf32>) -> tensor<1x4x100x64xbf16> {
  %r = kiln.attention_gradient %q, %k, %v, %c, %l, %d : tensor<1x4x100x64xbf16>, tensor<1x2x72x64xbf16>, tensor<1x2x72x64xbf16>, tensor<1x4x100x64xbf16>, tensor<1x4x100xf32>, tensor<1x4x100xf32>
  return %r : tensor<1x4x100x64xbf16>
}
// -----
// CASE: by_query_causal
func.func @main(%q: tensor<1x2x200x64xf16>, %k: tensor<1x2x200x64xf16>, %v: tensor<1x2x200x64xf16>, %c: tensor<1x2x200x64xf16>, %l: tensor<1x2x200xf32>, %d: tensor<1x2x200xf32>) -> tensor<1x2x200x64xf16> {
  %r = kiln.attention_gradient %q, %k, %v, %c, %l, %d causal : tensor<1x2x200x64xf16>, tensor<1x2x200x64xf16>, tensor<1x2x200x64xf16>, tensor<1x2x200x64xf16>, tensor<1x2x200xf32>, tensor<1x2x200xf32>
  return %r : tensor<1x2x200x64xf16>
}
// -----
// CASE: by_keys
func.func @main(%q: tensor<1x4x100x64xbf16>, %k: tensor<1x2x72x64xbf16>, %v: tensor<1x2x72x64xbf16>, %c: tensor<1x4x100x64xbf16>, %l: tensor<1x4x100xf32>, %d: tensor<1x4x100xf32>) -> (tensor<1x2x72x64xbf16>, tensor<1x2x72x64xbf16>) {
  %r, %s = kiln.attention_gradient by_keys %q, %k, %v, %c, %l, %d : tensor<1x4x100x64xbf16>, tensor<1x2x72x64xbf16>, tensor<1x2x72x64xbf16>, tensor<1x4x100x64xbf16>, tensor<1x4x100xf32>, tensor<1x4x100xf32>
  return %r, %s : tensor<1x2x72x64xbf16>, tensor<1x2x72x64xbf16>
}
// -----
// CASE: by_keys_causal
func.func @main(%q: tensor<1x2x200x64xf16>, %k: tensor<1x2x200x64xf16>, %v: tensor<1x2x200x64xf16>, %c: tensor<1x2x200x64xf16>, %l: tensor<1x2x200xf32>, %d: tensor<1x2x200xf32>) -> (tensor<1x2x200x64xf16>, tensor<1x2x200x64xf16>) {
  %r, %s = kiln.attention_gradient by_keys %q, %k, %v, %c, %l, %d causal : tensor<1x2x200x64xf16>, tensor<1x2x200x64xf16>, tensor<1x2x200x64xf16>, tensor<1x2x200x64xf16>, tensor<1x2x200xf32>, tensor<1x2x200xf32>
  return %r, %s : tensor<1x2x200x64xf16>, tensor<1x2x200x64xf16>
}
";

/// Cases of `tests/gpu/cases.txt` with products, by how they begin.
const PRODUCTS: [&str; 7] =
    ["attention", "batched", "conv", "linear", "matmul", "product", "prologue"];
/// Lengths, of which the whole suite has those after the second too.
const LENGTHS: [i64; 6] = [65, 200, 1, 17, 64, 72];

/// A program lowered for Hopper, if all of its kernels are tile programs.
fn lowered(name: &str, module: &Module) -> Option<Module> {
    let tiled = module.duplicate();
    let passes = pipeline_text(Level::Graph, Level::Tiled, Some(Chip::Sm90a)).expect("a pipeline");
    run_pipeline(&tiled, &passes, &RunOptions::default(), &|_, _, _| ())
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    execution::is_interpreted(&tiled).then_some(tiled)
}

/// Whether a program computes what its graph does.
fn same_as_graph(name: &str, module: &Module, tiled: &Module) -> Result<(), String> {
    let func = functions(module)[0];
    let inputs = inputs_of_sizes(func, 0, &symbol_values(func));
    let results = |m: &Module, mode| {
        run(m, functions(m)[0], mode, &inputs).map_err(|e| format!("{name}: {e}"))
    };
    let (exact, rounded) = (results(module, Mode::Exact)?, results(module, Mode::Rounded)?);
    let found = results(tiled, Mode::Rounded)?;
    for ((found, rounded), exact) in found.iter().zip(&rounded).zip(&exact) {
        tolerance::compare(found, rounded, exact).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

#[test]
fn programs_compute_what_their_graphs_do() {
    let mut all: Vec<(String, String)> =
        cases(GRADIENTS).into_iter().map(|c| (c.name, c.text)).collect();
    for case in cases(include_str!("../gpu/cases.txt")) {
        if !PRODUCTS.iter().any(|p| case.name.starts_with(p)) {
            continue;
        }
        let text = &case.text[case.text.find("func.func").expect("a function")..];
        for n in LENGTHS.into_iter().take(if support::all() { LENGTHS.len() } else { 2 }) {
            all.push((format!("{} of {n}", case.name), kernels::module(text, Some(n))));
        }
    }
    let (mut ran, mut wrong) = (BTreeSet::new(), vec![]);
    for (name, text) in all {
        crate::watchdog::arm();
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), text.as_bytes(), &name)
            .unwrap_or_else(|e| panic!("{e}\n{text}"));
        if let Some(tiled) = lowered(&name, &module) {
            wrong.extend(same_as_graph(&name, &module, &tiled).err());
            ran.insert(name.split(" of ").next().unwrap_or_default().to_string());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // Others have kernels of threads too.
    assert!(ran.len() >= 28, "only {} are tile programs: {ran:?}", ran.len());
}

/// What is compared is what the program computes.
#[test]
fn other_numbers_are_found() {
    let context = Context::new();
    let case = cases(GRADIENTS).into_iter().next().expect("a case");
    let (module, _) =
        Module::parse(context.ctx(), case.text.as_bytes(), &case.name).expect("a module");
    let tiled = lowered(&case.name, &module).expect("a tile program");
    let text = tiled.print(PrintOptions::default());
    let same = |text: &str| {
        let (tiled, _) = Module::parse(context.ctx(), text.as_bytes(), "m.mlir").expect("a module");
        same_as_graph(&case.name, &module, &tiled)
    };
    assert_eq!(same(&text), Ok(()));
    for (from, to) in [("math.exp2", "math.exp"), ("arith.subf", "arith.addf")] {
        assert!(same(&text.replace(from, to)).is_err(), "{to} for {from}");
    }
}
