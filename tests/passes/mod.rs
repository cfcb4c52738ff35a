//! Every pass on its test input `tests/passes/<stem>.mlir`, with snapshots `snapshots/<stem>/`.
//!
//! The first line is `// RUN: <pipeline>`, to stand inside of `builtin.module(…)`; a case may have
//! a `// RUN:` of its own. Cases are separated by `// -----`; each has a `// CASE: name`, and may
//! have FileCheck's comments for the IR afterwards (`tests/filecheck.rs`), which accepting a
//! snapshot cannot rewrite. A case with `// expected-error` must fail so and has no snapshot. The
//! functions of all others are run before and after: by the interpreter, as machine code
//! (`execution.rs`), or as samples of upstream's ops (`functions.rs`). Of kernels for GPUs the
//! interpreter runs tile programs. What a case may say of that:
//!
//! - `// NO-RUN: why` leaves it out.
//! - `// NEEDS: feature` leaves it out where the processor has no such feature.
//! - `// SIZES: s = 4, t = 4` are values of symbols.
//! - `// ROUNDED` rounds each op, as an exact pass is compared.
//! - `// FAILS: message` says how it fails when it runs, before and after.
//!
//! `snapshot.rs` says what a snapshot shows.
//!
//! `KILN_PASS` names the only pass to run; `./x bless PASS` sets it.
pub mod execution;
pub mod functions;
mod names;
mod reference;
mod snapshot;
mod tile_faults;
mod tile_programs;

use crate::{filecheck, support::*, tolerance};
use insta::Settings;
use kiln::{
    dialects::{
        interp::{Mode, RunError},
        ir::*,
        rules::Level,
        sym::Dim,
        value::DType,
    },
    lowering::{PassError, RunOptions, Target, passes, run_pipeline},
    passes::{Numerics, PassRow, names as known, pass::level_of},
};
use std::{collections::BTreeSet, path::Path};

#[test]
fn every_pass_matches_its_snapshots() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let only = std::env::var("KILN_PASS").ok().filter(|p| !p.is_empty());
    let chosen = |row: &&PassRow| {
        only.as_ref().is_none_or(|p| {
            [row.flag, row.flag.trim_start_matches("kiln-"), &row.stem()].contains(&p.as_str())
        })
    };
    let rows: Vec<&PassRow> = passes().iter().copied().filter(chosen).collect();
    let flags = || passes().iter().map(|p| p.flag);
    let name = only.clone().unwrap_or_default();
    assert!(!rows.is_empty(), "there is no pass '{name}'{}", known::hint(&name, flags()));
    let mut failures = vec![];
    for row in rows {
        let stem = row.stem();
        let path = root.join(format!("tests/passes/{stem}.mlir"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            failures.push(format!("{} has no tests/passes/{stem}.mlir", row.flag));
            continue;
        };
        failures.extend(run_file(&stem, &text, &root.join("snapshots").join(&stem), row.numerics));
    }
    assert!(
        failures.is_empty(),
        "{}\n\nIf the IR is right as it is now, accept it: ./x bless",
        failures.join("\n\n")
    );
}

pub fn run_file(stem: &str, text: &str, snapshots: &Path, numerics: Numerics) -> Vec<String> {
    let first = text.lines().next().unwrap_or_default();
    let Some(pipeline) = pipeline(first) else {
        return vec![format!("tests/passes/{stem}.mlir does not start with // RUN: <pipeline>")];
    };
    let (mut failures, mut names) = (vec![], BTreeSet::new());
    for case in cases(text) {
        let fail = |what: String| format!("tests/passes/{stem}.mlir, {}: {what}", case.name);
        if case.name.starts_with("case ") || !names.insert(case.name.clone()) {
            failures.push(fail("needs a // CASE: name of its own".into()));
            continue;
        }
        match run_case(pipeline, &case, stem, numerics) {
            Ok(None) => drop(names.remove(&case.name)),
            Ok(Some(snapshot)) => {
                failures.extend(compare(&case.name, &snapshot, snapshots).err().map(fail))
            }
            Err(e) => failures.push(fail(e)),
        }
    }
    let old = std::fs::read_dir(snapshots)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok());
    let stale = old.filter(|f| {
        f.strip_suffix(".snap").is_some_and(|n| !names.iter().any(|name| file_stem(name) == n))
    });
    failures.extend(stale.map(|f| format!("snapshots/{stem}/{f} belongs to no case; delete it")));
    failures
}

/// The first pipeline that a text names.
pub fn pipeline(text: &str) -> Option<&str> {
    said(text, "RUN")
}

/// What a text says behind `// WORD: `.
fn said<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = |l: &'a str| l.strip_prefix("// ")?.strip_prefix(word)?.strip_prefix(": ");
    text.lines().find_map(rest)
}

/// The snapshot; `None` for a case that fails as expected.
fn run_case(
    pipeline: &str,
    case: &Case,
    stem: &str,
    numerics: Numerics,
) -> Result<Option<String>, String> {
    let context = Context::new();
    let file = format!("tests/passes/{stem}.mlir");
    let (module, _) =
        Module::parse(context.ctx(), case.text.as_bytes(), &file).map_err(|e| e.to_string())?;
    let values = names::keep(&module, &case.text);
    let before = module.duplicate();
    let pipeline = self::pipeline(&case.text).unwrap_or(pipeline);
    let outcome = run_pipeline(
        &module,
        &format!("builtin.module({pipeline})"),
        &RunOptions::default(),
        &|_, _, _| (),
    );
    let errors = match &outcome {
        Ok(report) => report.diagnostics.clone(),
        Err(PassError::Failed { diagnostics, .. }) => diagnostics.clone(),
        Err(other) => return Err(other.to_string()),
    };
    let wrong = unmatched(&case.text, &errors);
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    if outcome.is_err() {
        return Ok(None);
    }
    let after = module.print(PrintOptions::default());
    filecheck::check(&case.text, &after)?;
    if said(&case.text, "NO-RUN").is_none() && is_possible(&case.text)? {
        same(&before, &module, pipeline, &Check::of(&case.text, numerics)?)?;
    }
    let printed = |module: &Module| {
        names::settle(module, &values);
        names::print(module, &values)
    };
    let [before, now, plain] =
        [&printed(&before), &printed(&module), &after].map(|t| snapshot::with_maps(t));
    let change = snapshot::Change { before: &before, after: &now, plain: &plain };
    Ok(Some(snapshot::text(pipeline, &change)))
}

/// The values of symbols that a case states.
pub fn sizes(text: &str) -> Result<execution::Sizes, String> {
    let one = |s: &str| {
        let (name, value) = s.split_once(" = ")?;
        Some((name.to_string(), value.parse().ok()?))
    };
    let all = said(text, "SIZES").into_iter().flat_map(|all| all.split(", "));
    all.map(|s| one(s).ok_or_else(|| format!("'{s}' is no size of a symbol"))).collect()
}

/// Whether this machine's processor has what a case needs.
fn is_possible(text: &str) -> Result<bool, String> {
    let Some(feature) = said(text, "NEEDS") else { return Ok(true) };
    let Target::Host(host) = Target::host()? else { return Ok(false) };
    let stated = host.features.split(',').rev().find(|f| f.get(1..) == Some(feature));
    Ok(stated.is_some_and(|f| f.starts_with('+')))
}

/// How a case is compared.
struct Check {
    text: String,
    numerics: Numerics,
    rounded: bool,
    /// Part of the error when it runs.
    fails: Option<String>,
    /// Values of symbols that the case states.
    sizes: execution::Sizes,
}

impl Check {
    fn of(text: &str, numerics: Numerics) -> Result<Check, String> {
        let rounded = text.lines().any(|l| l == "// ROUNDED");
        let fails = said(text, "FAILS").map(str::to_string);
        Ok(Check { text: text.into(), numerics, rounded, fails, sizes: sizes(text)? })
    }
}

/// Whether a case computes the same before and after its pipeline.
fn same(before: &Module, after: &Module, pipeline: &str, check: &Check) -> Result<(), String> {
    if execution::same_but_for_attributes(before, after) {
        return Ok(());
    }
    if functions::are_of_upstream(before) {
        let host = execution::on_the_host();
        return functions::same_results(before, after, functions::On::Host, &host);
    }
    if level_of(after.op()).unwrap_or(Level::Graph) <= Level::Kernels {
        return same_checked(before, after, check);
    }
    if execution::is_for_a_gpu(after) {
        crate::gpu::card::passes::has(&check.text)?;
        // As far as the kernels are tile programs.
        let passes = pipeline.split(",kiln-lower-tiles").next().unwrap_or(pipeline);
        let tiled = before.duplicate();
        let whole = format!("builtin.module({passes})");
        run_pipeline(&tiled, &whole, &RunOptions::default(), &|_, _, _| ())
            .map_err(|e| e.to_string())?;
        if !execution::is_interpreted(&tiled) {
            return Ok(());
        }
        let host = execution::on_the_host();
        return execution::same_results(before, passes, &host, &check.sizes)
            .map_err(|e| format!("as a tile program: {e}"));
    }
    execution::same_results(before, pipeline, &execution::on_the_host(), &check.sizes)
}

/// Whether all functions of both modules agree on random inputs: bitwise, with every op rounded, if
/// the passes are exact; else within a tolerance in f64.
pub fn same_results(before: &Module, after: &Module, numerics: Numerics) -> Result<(), String> {
    same_checked(
        before,
        after,
        &Check { text: String::new(), numerics, rounded: false, fails: None, sizes: vec![] },
    )
}

fn same_checked(before: &Module, after: &Module, check: &Check) -> Result<(), String> {
    let exact = check.numerics == Numerics::Exact;
    let mode = if exact || check.rounded { Mode::Rounded } else { Mode::Exact };
    for func in functions(before) {
        let name = func.symbol().unwrap_or_default();
        let other = after.find(&name).ok_or_else(|| format!("@{name} is gone"))?;
        let symbols = execution::symbols_of(func, &check.sizes)?;
        for seed in 0..2 {
            let inputs = inputs_of_sizes(known(func, other), seed, &symbols);
            let wanted = run(before, func, mode, &inputs);
            let found = run(after, other, mode, &inputs);
            if let Some(said) = &check.fails {
                let fails = |r: &Result<_, RunError>| {
                    r.as_ref().is_err_and(|e| e.to_string().contains(said))
                };
                match fails(&wanted) && fails(&found) {
                    true => continue,
                    false => return Err(format!("@{name} does not fail before and after: {said}")),
                }
            }
            let wanted = wanted.map_err(|e| format!("before the pass: {e}"))?;
            let found = found.map_err(|e| format!("after the pass: {e}"))?;
            for (i, (w, f)) in wanted.iter().zip(&found).enumerate() {
                if exact && !same_bits(f, w) {
                    return Err(format!(
                        "@{name}, result {i} has other bits: {f:?}, before the pass {w:?}"
                    ));
                }
                let error = relative_error(f, w);
                let bound =
                    if w.dtype() == DType::F64 { tolerance::EXACT } else { tolerance::CONSTANTS };
                if error > bound || wanted.len() != found.len() {
                    return Err(format!(
                        "@{name}, result {i} is {error} off: {f:?}, before the pass {w:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Of a function before and after a pass the one whose parameters state more: a pass may find that
/// a dynamic size is a number, as which the function before must take it.
fn known(before: Op, after: Op) -> Op {
    let types = |f: Op| -> Vec<Type> {
        let block = f.regions().first().and_then(|r| r.first());
        block.iter().flat_map(|b| b.args()).map(|v| v.ty()).collect()
    };
    let states = |(before, after): (&Type, &Type)| {
        let (all, known) = (before.dims(), after.dims());
        let fits = |(b, a): (&Dim, &Dim)| b.known().is_none() || a.known() == b.known();
        before.element() == after.element()
            && all.len() == known.len()
            && all.iter().zip(&known).all(fits)
    };
    let (all, found) = (types(before), types(after));
    if all.len() == found.len() && all.iter().zip(&found).all(states) { after } else { before }
}

/// The file name of a case's snapshot.
fn file_stem(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

/// Compares with `snapshots/<stem>/<name>.snap`.
fn compare(name: &str, text: &str, folder: &Path) -> Result<(), String> {
    let mut settings = Settings::new();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let check = || settings.bind(|| insta::assert_snapshot!(file_stem(name), text));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(check))
        .map_err(|_| "the IR differs from its snapshot (see above)".into())
}
