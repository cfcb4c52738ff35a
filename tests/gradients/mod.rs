//! Gradients of `kiln-differentiate` against central differences in f64, which the interpreter
//! computes without rounding: of every op (`cases.mlir`), twice, and of random graphs.
mod api;
mod checkpoint;
mod conventions;
mod graphs;
mod heads;
mod partition;
mod training;
mod vmap;

use crate::support::*;
use kiln::{
    dialects::{
        interp::Mode,
        ir::*,
        ops::OpKind,
        rules::tensor_type,
        value::{DType, Tensor},
    },
    lowering::{RunOptions, run_pipeline},
    passes::differentiate::{Derivative, derivative},
};
use std::collections::BTreeSet;

/// The step of a central difference: its own error and that of f64 are alike.
const STEP: f64 = 1e-5;
/// Allowed error, relative to 1 and the greatest element of the gradient.
const ALLOWED: f64 = 5e-7;
/// Elements of an argument that are looked at.
const ELEMENTS: usize = 12;

const CASES: &str = include_str!("cases.mlir");

/// What a case says behind `// WORD: `.
fn said<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.lines().find_map(|l| l.strip_prefix("// ")?.strip_prefix(word)?.strip_prefix(": "))
}

fn parsed(context: &Context, case: &Case) -> Module {
    let made = Module::parse(context.ctx(), case.text.as_bytes(), "tests/gradients/cases.mlir");
    made.unwrap_or_else(|e| panic!("{}: {e}", case.name)).0
}

/// Arguments in the range that a case states.
fn arguments(func: Op, seed: u64, range: Option<&str>) -> Vec<Tensor> {
    let (low, high) = range
        .and_then(|r| r.split_once(' '))
        .map_or((-2.0, 2.0), |(a, b)| (a.parse().unwrap(), b.parse().unwrap()));
    let within = |t: Tensor| match t.as_f() {
        Ok(values) => {
            let all = values.iter().map(|v| low + (v + 2.0) / 4.0 * (high - low)).collect();
            Tensor::floats(t.dtype(), t.shape().to_vec(), all).unwrap()
        }
        Err(_) => t,
    };
    inputs(func, seed).into_iter().map(within).collect()
}

/// The module with its only function extended by the gradients of these results.
pub fn differentiated(module: &Module, results: &[usize]) -> Result<Module, String> {
    let after = module.duplicate();
    let list = results.iter().map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let pipeline = format!("builtin.module(kiln-differentiate{{results={list} cotangents=true}})");
    run_pipeline(&after, &pipeline, &RunOptions::default(), &|_, _, _| ())
        .map_err(|e| e.to_string())?;
    Ok(after)
}

/// The sum of results times their cotangents.
fn weighted(
    module: &Module,
    inputs: &[Tensor],
    results: &[usize],
    cotangents: &[Tensor],
) -> Result<f64, String> {
    let func = functions(module)[0];
    let all = run(module, func, Mode::Exact, inputs).map_err(|e| e.to_string())?;
    let dot = |(i, c): (&usize, &Tensor)| -> f64 {
        let (y, c) = (all[*i].as_f().unwrap(), c.as_f().unwrap());
        y.iter().zip(c).map(|(y, c)| y * c).sum()
    };
    Ok(results.iter().zip(cotangents).map(dot).sum())
}

/// Compares the gradients of some results of a function by all arguments of floats with central
/// differences. Returns the differentiated module, and the results that are gradients.
pub fn check(
    module: &Module,
    results: &[usize],
    inputs: &[Tensor],
    seed: u64,
) -> Result<(Module, Vec<usize>), String> {
    let after = differentiated(module, results)?;
    let (before, func) = (functions(module)[0], functions(&after)[0]);
    let values = run(module, before, Mode::Exact, inputs).map_err(|e| e.to_string())?;
    let mut random = Random(seed);
    let cotangents: Vec<Tensor> =
        results.iter().map(|i| random.tensor(values[*i].dtype(), values[*i].shape())).collect();
    let given = [inputs, &cotangents].concat();
    let found = run(&after, func, Mode::Exact, &given).map_err(|e| format!("its gradient: {e}"))?;
    for (i, (new, old)) in found.iter().zip(&values).enumerate() {
        if relative_error(new, old) > 0.0 {
            return Err(format!("result {i} is {new:?}, without gradients {old:?}"));
        }
    }
    let gradients: Vec<usize> = (values.len()..found.len()).collect();
    let floats = inputs.iter().enumerate().filter(|(_, t)| t.dtype().is_float());
    for ((i, x), at) in floats.zip(&gradients) {
        let gradient = &found[*at];
        if gradient.shape() != x.shape() || gradient.dtype() != x.dtype() {
            return Err(format!("the gradient by argument {i} is {gradient:?}"));
        }
        let all = gradient.as_f().unwrap();
        let allowed = ALLOWED * (1.0 + all.iter().fold(0.0, |m, v| v.abs().max(m)));
        let count = x.as_f().unwrap().len();
        for e in (0..count).step_by(count.div_ceil(ELEMENTS).max(1)) {
            let moved = |by: f64| {
                let mut values = x.as_f().unwrap().to_vec();
                values[e] += by;
                let mut inputs = inputs.to_vec();
                inputs[i] = Tensor::floats(x.dtype(), x.shape().to_vec(), values).unwrap();
                weighted(module, &inputs, results, &cotangents)
            };
            let difference = (moved(STEP)? - moved(-STEP)?) / (2.0 * STEP);
            let off = (difference - all[e]).abs();
            if off.is_nan() || off > allowed {
                return Err(format!(
                    "the gradient by element {e} of argument {i} is {}, by differences {difference}\n{}",
                    all[e],
                    after.op()
                ));
            }
        }
    }
    Ok((after, gradients))
}

/// The results of a case that are differentiated.
fn results_of(case: &Case, module: &Module) -> Vec<usize> {
    if let Some(list) = said(&case.text, "RESULTS") {
        return list.split(',').map(|i| i.parse().unwrap()).collect();
    }
    let block = functions(module)[0].regions()[0].first().unwrap();
    (0..block.terminator().unwrap().operand_count()).collect()
}

#[test]
fn gradients_are_those_of_differences() {
    let mut failures = vec![];
    for case in cases(CASES) {
        let context = Context::new();
        let module = parsed(&context, &case);
        let results = results_of(&case, &module);
        for seed in 0..2 {
            let inputs = arguments(functions(&module)[0], seed, said(&case.text, "RANGE"));
            if let Err(e) = check(&module, &results, &inputs, seed + 7) {
                failures.push(format!("{}: {e}", case.name));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn gradients_have_gradients() {
    let mut failures = vec![];
    for case in cases(CASES).iter().filter(|c| said(&c.text, "KINKS").is_none()) {
        let context = Context::new();
        let module = parsed(&context, case);
        let inputs = arguments(functions(&module)[0], 3, said(&case.text, "RANGE"));
        let twice = || {
            let (once, gradients) = check(&module, &results_of(case, &module), &inputs, 5)?;
            let mut random = Random(11);
            let func = functions(&once)[0];
            let block = func.regions()[0].first().unwrap();
            let mut inputs = inputs.clone();
            let values = run(&module, functions(&module)[0], Mode::Exact, &inputs).unwrap();
            for (value, i) in block.args()[inputs.len()..].iter().zip(results_of(case, &module)) {
                let dtype = tensor_type(value.ty()).unwrap().dtype;
                inputs.push(random.tensor(dtype, values[i].shape()));
            }
            check(&once, &gradients, &inputs, 13).map(|_| ())
        };
        failures.extend(twice().err().map(|e| format!("{}: {e}", case.name)));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_derivative_has_a_case() {
    let (mut kinds, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let pass = include_str!("../passes/differentiate.mlir");
    for (text, seen) in [(CASES, &mut kinds), (pass, &mut refused)] {
        for case in cases(text) {
            let context = Context::new();
            let module = parsed(&context, &case);
            let wanted = text == CASES || !expected_errors(&case.text).is_empty();
            seen.extend(walk(module.op()).into_iter().filter(|_| wanted).filter_map(|o| o.kind()));
        }
    }
    for kind in OpKind::ALL {
        let seen = match derivative(*kind) {
            Derivative::Own(_) | Derivative::Decomposed => kinds.contains(kind),
            // Ops of kernels are on no level that the pass takes.
            Derivative::Refused(why) => why.contains("of kernels") || refused.contains(kind),
            Derivative::Zero => true,
        };
        assert!(seen, "{} has no case", kind.name());
    }
}

/// The gradients of a case whose floats are of another dtype, at numbers that bf16 has; none if the
/// case is of f64 only. The interpreter does not round, so they differ by constants at most.
fn gradients_in(dtype: &str, case: &Case) -> Option<Vec<Tensor>> {
    let text = case.text.replace("f64>", &format!("{dtype}>"));
    let text = text.replace(" : f64", &format!(" : {dtype}"));
    // Attributes of composites are f64 whatever their operands are.
    let attributes =
        format!(r"((?:epsilon|label_smoothing|beta|threshold|correction) = \S+) : {dtype}");
    let text = regex::Regex::new(&attributes).unwrap().replace_all(&text, "$1 : f64");
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "cases.mlir").ok()?;
    let (results, func) = (results_of(case, &module), functions(&module)[0]);
    let narrow = |t: Tensor| match t.as_f() {
        Ok(v) => {
            let v = v.iter().map(|v| DType::BF16.round(*v)).collect();
            Tensor::floats(t.dtype(), t.shape().to_vec(), v).unwrap()
        }
        Err(_) => t,
    };
    let mut given: Vec<Tensor> =
        arguments(func, 1, said(&case.text, "RANGE")).into_iter().map(narrow).collect();
    let values = run(&module, func, Mode::Exact, &given).unwrap();
    let mut random = Random(3);
    for i in &results {
        given.push(narrow(random.tensor(values[*i].dtype(), values[*i].shape())));
    }
    let once = differentiated(&module, &results).unwrap_or_else(|e| panic!("{e}"));
    let all = run(&once, functions(&once)[0], Mode::Exact, &given).unwrap();
    Some(all[values.len()..].to_vec())
}

#[test]
fn narrow_floats_have_narrow_gradients() {
    let mut compared = 0;
    for case in cases(CASES) {
        let Some(narrow) = gradients_in("bf16", &case) else { continue };
        let wide = gradients_in("f64", &case).unwrap();
        compared += 1;
        for (n, w) in narrow.iter().zip(&wide) {
            let values = n.as_f().unwrap().to_vec();
            let error =
                relative_error(&Tensor::floats(DType::F64, n.shape().to_vec(), values).unwrap(), w);
            assert!(n.dtype() == DType::BF16 && error < 0.02, "{}: {error}", case.name);
        }
    }
    assert!(compared > 30, "{compared} cases have a form in bf16");
}
