//! Random graphs against the interpreter, with the tolerance of `tests/compiled/graphs.rs`.
use super::*;
use crate::{
    compiled::graphs::{COMPILED, against, graph_inputs, graph_range},
    random_graph::one_graph,
    support::functions,
};
use kiln::{dialects::value::Tensor, model::Model};
use std::{cell::RefCell, path::Path};

pub static SUITE: Suite = Suite {
    name: "graphs",
    count: || range().end - range().start,
    label,
    check,
    whole: false,
    emulated: 2,
};

/// Attempts to shrink a failing graph.
const ATTEMPTS: usize = 40;

fn range() -> std::ops::Range<u64> {
    graph_range("0..200")
}

fn label(item: u64) -> String {
    format!("number {}", range().start + item)
}

fn check(item: u64) -> Outcome {
    let (refused, fault) = (RefCell::new(None), RefCell::new(None));
    let found = one_graph(&COMPILED, range().start + item, ATTEMPTS, |module, recipe| {
        // After a sticky error no further graph can be tested.
        if fault.borrow().is_some() {
            return Ok(());
        }
        let func = functions(module)[0];
        let options = Options { function: func.symbol().expect("a name"), ..options() };
        let exe = match Model::from_module(module, Path::new("")).compile(&options) {
            Ok(exe) => exe,
            Err(e) => {
                return match failed(&e) {
                    Outcome::Agrees => Ok(()),
                    Outcome::Refused(e) => {
                        *refused.borrow_mut() = Some(e);
                        Ok(())
                    }
                    Outcome::Wrong(e) => Err(e),
                };
            }
        };
        let call = |inputs: &[Tensor]| {
            let have = exe.call_values(&inputs.iter().collect::<Vec<_>>());
            have.map(|results| vec![results]).map_err(|e| e.to_string())
        };
        against(module, &graph_inputs(func, recipe), |_| Ok(call)).inspect_err(|e| {
            if e.contains(workers::FAULT) {
                *fault.borrow_mut() = Some(e.clone());
            }
        })
    });
    match (found, refused.into_inner()) {
        (Err(e), _) => Outcome::Wrong(e),
        (Ok(()), Some(e)) => Outcome::Refused(e),
        (Ok(()), None) => Outcome::Agrees,
    }
}
