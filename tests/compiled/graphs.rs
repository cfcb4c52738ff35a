//! Compiled programs against the interpreter: cases in text, and random graphs.
//!
//! The rule: a compiled result is at most twice as far from the exact one as the one with a rounding at each op is, or within the dtype's
//! tolerance, since the compiler reassociates and keeps more bits.
use super::*;
use crate::{
    random_graph::{Material, each_graph_of},
    support::{cases, functions, inputs, inputs_of_sizes, relative_error, run},
};
use kiln::{
    dialects::{interp::Mode, ir::Context, value::DType},
    tolerance,
};
use std::collections::HashMap;

/// Graphs checked by every test run: some 60 seconds on two cores.
const GRAPHS: u32 = 250;

const DTYPES: &[DType] =
    &[DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I16, DType::I8, DType::UI8, DType::I1];
const STEPS: &str = "unary unary unary binary binary compare select clamp convert bitcast splat iota constant broadcast reshape \
    transpose slice pad concat reverse gather scatter dynamic_slice dynamic_update_slice reduce arg cumulative sort dot window random \
    convolution";
static COMPILED: Material = Material { steps: STEPS, dtypes: DTYPES, sizes: &[4, 3, 5, 16, 1, 17, 15, 16, 1, 17], continuous: true };

/// Compares a function with the interpreter.
fn check(module: &Module, inputs: &[Tensor]) -> Result<(), String> {
    let func = functions(module)[0];
    let exact = run(module, func, Mode::Exact, inputs).map_err(|e| e.to_string())?;
    let rounded = run(module, func, Mode::Rounded, inputs).map_err(|e| e.to_string())?;
    let name = func.symbol().expect("a name");
    let program = native(&module.duplicate(), &name, &|g| Err(format!("@{g} has no value")))?;
    for threads in [1, 2] {
        let have = call(&program, inputs, threads)?;
        for (i, ((have, exact), rounded)) in have.iter().zip(&exact).zip(&rounded).enumerate() {
            let allowed = (2.0 * relative_error(rounded, exact)).max(tolerance::of(exact.dtype()));
            let error = relative_error(have, exact);
            // Where rounding alone overflows or changes an integer there is nothing to hold the compiler to.
            if allowed.is_finite() && error > allowed {
                let all = format!("have {:?}\nexact {:?}\nrounded {:?}", have.data(), exact.data(), rounded.data());
                return Err(format!("result {i}, {threads} threads: off by {error:e}, {allowed:e} is allowed\n{all}"));
            }
        }
    }
    Ok(())
}

#[test]
fn cases_as_interpreted() {
    let mut wrong = vec![];
    for case in cases(include_str!("ops.mlir")) {
        let c = Context::new();
        let (module, _) = Module::parse(c.ctx(), case.text.as_bytes(), "tests/compiled/ops.mlir").unwrap_or_else(|e| panic!("{e}"));
        let func = functions(&module)[0];
        for seed in 0..2 {
            wrong.extend(check(&module, &inputs(func, seed)).err().map(|e| format!("{}: {e}", case.name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn random_graphs(count: u32) {
    each_graph_of(&COMPILED, count, |module, recipe| {
        let func = functions(module)[0];
        let sizes = [1, 15, 16, 17, 5, 4];
        let size = |i: usize| sizes[(recipe.sizes as usize + i) % sizes.len()];
        let symbols = HashMap::from([("s".to_string(), size(0)), ("t".to_string(), size(1))]);
        check(module, &inputs_of_sizes(func, 3, &symbols))
    });
}

#[test]
fn random_graphs_as_interpreted() {
    random_graphs(GRAPHS);
}

#[test]
#[ignore = "takes hours"]
fn many_random_graphs_as_interpreted() {
    random_graphs(50_000);
}
