//! What every pass, and every form of the IR, must preserve.
use super::each_graph;
use crate::{
    ops::round_trips,
    passes::same_results,
    support::{functions, inputs, run},
};
use kiln::{
    dialects::{interp::Mode, ir::*, ops::*, rules::Level},
    lowering::{RunOptions, run_pipeline},
    passes::Numerics,
};
use std::collections::BTreeSet;

#[test]
fn random_graphs_survive_printing() {
    let seen = std::cell::RefCell::new(BTreeSet::new());
    each_graph(260, |m| {
        seen.borrow_mut().extend(walk(m.op()).into_iter().filter_map(Op::kind));
        round_trips(m)
    });
    // The steps cover all kinds.
    let prims = |k: &&OpKind| {
        matches!(
            k.family(),
            Family::Unary
                | Family::Binary
                | Family::Elementwise
                | Family::Movement
                | Family::Indexed
                | Family::Reduction
                | Family::Contraction
                | Family::Random
        )
    };
    let missing: Vec<_> = OpKind::ALL
        .iter()
        .filter(prims)
        .filter(|k| !seen.borrow().contains(*k))
        .map(|k| k.name())
        .collect();
    assert!(missing.is_empty(), "no graph has {missing:?}");
}

#[test]
fn random_graphs_run() {
    each_graph(150, |m| {
        let func = functions(m)[0];
        for mode in [Mode::Exact, Mode::Rounded] {
            run(m, func, mode, &inputs(func, 3)).map_err(|e| e.to_string())?;
        }
        Ok(())
    });
}

/// A pipeline preserves the results of random graphs.
fn preserves(pipeline: &str, numerics: Numerics) {
    each_graph(100, |m| {
        let after = m.duplicate();
        run_pipeline(
            &after,
            &format!("builtin.module({pipeline})"),
            &RunOptions::default(),
            &|_, _, _| (),
        )
        .map_err(|e| e.to_string())?;
        same_results(m, &after, numerics)
    });
}

#[test]
fn decompose_preserves() {
    preserves("kiln-decompose", Numerics::Reassociates);
}

#[test]
fn simplify_preserves() {
    preserves("kiln-simplify", Numerics::Exact);
}

#[test]
fn canonicalize_and_cse_preserve() {
    preserves("canonicalize,cse", Numerics::Exact);
}

#[test]
fn refine_shapes_preserves() {
    preserves("kiln-refine-shapes", Numerics::Exact);
}

#[test]
fn the_pipeline_preserves() {
    let text = kiln::lowering::pipeline_text(Level::Graph, Level::Prims, None).unwrap();
    let inner = text.trim_start_matches("builtin.module(").trim_end_matches(')').to_string();
    // These graphs are prims only, so nothing is decomposed and every step is exact.
    preserves(&inner, Numerics::Exact);
}

#[test]
fn expansions_of_library_ops_preserve() {
    let passes = "kiln-expand-random,kiln-expand-scans{max-block=64},kiln-expand-sorts,kiln-expand-scatters,kiln-expand-updates";
    preserves(&format!("{passes},kiln-refine-shapes,canonicalize,cse"), Numerics::Reassociates);
}
