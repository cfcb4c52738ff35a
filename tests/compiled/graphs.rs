//! Compiled programs against the interpreter: written cases and random graphs.
//!
//! Tolerance: the error of a compiled result is at most twice that of op-by-op rounding, plus the
//! dtype's tolerance, since the compiler reassociates and keeps more bits. The interpreter rounds a
//! sum once, so a sum that nearly cancels has a tighter bound than its summation order would give.
use super::*;
use crate::{
    random_graph::{Material, Recipe, one_graph},
    support::{cases, functions, greatest_error, inputs, inputs_of_sizes, relative_error, run},
};
use kiln::runtime::Store;
use kiln::{
    dialects::{
        interp::Mode,
        ir::Context,
        value::{DType, Data},
    },
    tolerance,
};
use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// Graphs of a run with `./x test --all`: two minutes on two cores.
const GRAPHS: u64 = 240;
/// Those without `./x test --all`.
const FEW_GRAPHS: u64 = 200;
/// Every n-th graph verifies the IR after each pass, which doubles the cost of the passes.
const VERIFIED: u64 = 10;

const STEPS: &str = "unary unary weight_gradient binary binary compare select clamp convert bitcast splat iota constant broadcast reshape \
    transpose slice pad concat reverse gather scatter dynamic_slice dynamic_update_slice reduce arg cumulative sort dot window random \
    convolution pieces joined control";
pub static COMPILED: Material = Material {
    steps: STEPS,
    dtypes: &DType::ALL,
    sizes: &[4, 3, 5, 16, 1, 17, 15, 16, 1, 17, 0, 2, 7],
    continuous: true,
};

/// Compares a function with the interpreter, compiled for this machine, with one and two threads.
fn check(module: &Module, inputs: &[Tensor], options: &CompileOptions) -> Result<(), String> {
    against(module, inputs, |name| {
        let program = native_with(
            &module.duplicate(),
            name,
            &|g| Err(format!("@{g} has no value")),
            options,
        )?;
        Ok(move |inputs: &[Tensor]| {
            [1, 2].into_iter().map(|threads| call(&program, inputs, threads)).collect()
        })
    })
}

/// Compares a function with the interpreter. `compile` returns a caller that runs it once or
/// several times and returns the results of each call.
pub fn against<C: Fn(&[Tensor]) -> Result<Vec<Vec<Tensor>>, String>>(
    module: &Module,
    inputs: &[Tensor],
    compile: impl FnOnce(&str) -> Result<C, String>,
) -> Result<(), String> {
    against_with(module, inputs, tolerance::for_dtype, compile)
}

/// An error of a result against the exact one.
type Measure<'a> = &'a dyn Fn(&Tensor, &Tensor) -> f64;

/// As [`against`], with a tolerance per dtype.
pub fn against_with<C: Fn(&[Tensor]) -> Result<Vec<Vec<Tensor>>, String>>(
    module: &Module,
    inputs: &[Tensor],
    tolerance: impl Fn(DType) -> f64,
    compile: impl FnOnce(&str) -> Result<C, String>,
) -> Result<(), String> {
    let func = functions(module)[0];
    let exact = run(module, func, Mode::Exact, inputs).map_err(|e| e.to_string());
    // An undefined value, such as a maximum over no elements, is an interpreter error. Compiled
    // code returns an error or any value (docs/limits.md), so it is called too.
    let none = |e: &str| {
        ["no elements", "out of range", "outside", "does not fit", "has size 0"]
            .iter()
            .any(|part| e.contains(part))
    };
    let empty = inputs.iter().any(|t| t.shape().contains(&0));
    let exact = match exact {
        Err(e) if !(empty && none(&e)) => return Err(e),
        other => other.ok(),
    };
    let name = func.symbol().expect("a name");
    let call = compile(&name)?;
    let Some(exact) = exact else {
        let _ = call(inputs);
        return Ok(());
    };
    let rounded = run(module, func, Mode::Rounded, inputs).map_err(|e| e.to_string())?;
    let narrowed = crate::tolerance::from_narrower(func);
    for (turn, have) in call(inputs)?.iter().enumerate() {
        for (i, ((have, exact), rounded)) in have.iter().zip(&exact).zip(&rounded).enumerate() {
            let computed = if narrowed[i] { DType::F32 } else { exact.dtype() };
            let floor = tolerance(exact.dtype()).max(tolerance(computed));
            // Terms that cancel exactly leave only rounding errors, which have no relative size: as
            // many as the order of a sum makes, in units of the largest input.
            let cancels = greatest(exact) == 0.0 && greatest(rounded) > 0.0;
            let scale = inputs.iter().map(greatest).fold(0.0, f64::max);
            let of_inputs = |have: &Tensor, _: &Tensor| greatest(have) / scale;
            let errors: &[Measure<'_>] = match cancels && scale > 0.0 {
                true => &[&of_inputs],
                // Law 5: by the norm, and by the largest error relative to the largest element.
                false => &[&relative_error, &greatest_error],
            };
            for error in errors {
                let allowed = 2.0 * error(rounded, exact) + floor;
                let off = error(have, exact);
                // Where rounding alone overflows or changes an integer, there is no bound to check.
                if allowed.is_finite() && off > allowed {
                    let all = format!(
                        "have {:?}\nexact {:?}\nrounded {:?}",
                        have.data(),
                        exact.data(),
                        rounded.data()
                    );
                    return Err(format!(
                        "result {i}, call {}: off by {off:e}, {allowed:e} is allowed\n{all}",
                        turn + 1
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The largest magnitude of a finite element; 0 of integers.
fn greatest(t: &Tensor) -> f64 {
    let Data::F(values) = t.data() else { return 0.0 };
    values.iter().filter(|v| v.is_finite()).fold(0.0, |m, v| m.max(v.abs()))
}

#[test]
fn cases_as_interpreted() {
    let mut wrong = vec![];
    let target = Target::host().expect("this machine");
    let options = CompileOptions {
        target,
        workers: 2,
        cache: None,
        verify: true,
        salt: "test",
        schedules: &Default::default(),
        progress: &|_, _| (),
        on_kernel: &|_, _| (),
        cancellation: Default::default(),
        debug: Default::default(),
    };
    for case in cases(include_str!("ops.mlir")) {
        let c = Context::new();
        let (module, _) = Module::parse(c.ctx(), case.text.as_bytes(), "tests/compiled/ops.mlir")
            .unwrap_or_else(|e| panic!("{e}"));
        let func = functions(&module)[0];
        for seed in 0..2 {
            wrong.extend(
                check(&module, &inputs(func, seed), &options)
                    .err()
                    .map(|e| format!("{}: {e}", case.name)),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Random arguments of a graph; symbols are small or at vector-width boundaries.
pub fn graph_inputs(func: Op, recipe: &Recipe) -> Vec<Tensor> {
    let sizes = [1, 15, 16, 17, 5, 4, 0, 2];
    let size = |i: usize| sizes[(recipe.sizes as usize + i) % sizes.len()];
    inputs_of_sizes(
        func,
        3,
        &HashMap::from([("s".to_string(), size(0)), ("t".to_string(), size(1))]),
    )
}

/// `KILN_GRAPHS=FIRST..END`, or the default range.
pub fn graph_range(usual: &str) -> Range<u64> {
    let text = std::env::var("KILN_GRAPHS").unwrap_or(usual.into());
    let number = |t: &str| {
        t.parse::<u64>().unwrap_or_else(|e| panic!("KILN_GRAPHS is '{text}', not FIRST..END: {e}"))
    };
    let (first, end) =
        text.split_once("..").unwrap_or_else(|| panic!("KILN_GRAPHS is '{text}', not FIRST..END"));
    number(first)..number(end)
}

/// Checks graphs on two threads; reports progress on stderr if asked.
fn random_graphs(range: Range<u64>, threads: usize, progress: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    // Graphs share many kernels.
    let store = Store::open(folder.path()).expect("a cache");
    let target = Target::host().expect("this machine");
    let (next, failed) = (AtomicU64::new(range.start), Mutex::new(vec![]));
    let start = Instant::now();
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= range.end || failed.lock().expect("a list").len() >= 10 {
                return;
            }
            let verify = number.is_multiple_of(VERIFIED);
            let options = CompileOptions {
                target: target.clone(),
                workers: 1,
                cache: Some(&store),
                verify,
                salt: "test",
                schedules: &Default::default(),
                progress: &|_, _| (),
                on_kernel: &|_, _| (),
                cancellation: Default::default(),
                debug: Default::default(),
            };
            let outcome = one_graph(&COMPILED, number, 500, |module, recipe| {
                let func = functions(module)[0];
                check(module, &graph_inputs(func, recipe), &options)
            });
            if let Err(e) = outcome {
                eprintln!("{e}");
                failed.lock().expect("a list").push(e);
            }
            let done = number + 1 - range.start;
            if progress && done.is_multiple_of(100) {
                let (seconds, all) = (start.elapsed().as_secs_f64(), range.end - range.start);
                eprintln!(
                    "{done} of {all} graphs, {seconds:.0} s, {:.0} s to go",
                    seconds / done as f64 * (all - done) as f64
                );
            }
        }
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let failed = failed.into_inner().expect("a list");
    assert!(failed.is_empty(), "{} graphs fail; the first:\n{}", failed.len(), failed[0]);
}

#[test]
fn random_graphs_as_interpreted() {
    random_graphs(0..if crate::support::all() { GRAPHS } else { FEW_GRAPHS }, 2, false);
}

/// `KILN_GRAPHS=FIRST..END`, default 50,000, on `KILN_GRAPH_THREADS` threads, default one per CPU.
/// Needs only this binary; `--nocapture` shows progress.
#[test]
#[ignore = "takes hours"]
fn many_random_graphs_as_interpreted() {
    let threads = std::env::var("KILN_GRAPH_THREADS")
        .ok()
        .map(|t| t.parse().expect("KILN_GRAPH_THREADS is a number"));
    let threads =
        threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    random_graphs(graph_range("0..50000"), threads, true);
}
