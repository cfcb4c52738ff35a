//! Each result of the ATen archives on its own.
use super::*;
use crate::{
    capture::{import, root, tensors},
    compiled::{ARCHIVES, keep_results, results},
};
use kiln::{dialects::ir::Context, dialects::value::Tensor, model::Model, tolerance};
use std::sync::LazyLock;

pub static SUITE: Suite =
    Suite { name: "rows", count: || ITEMS.len() as u64, label, check, whole: false, emulated: 2 };

static ITEMS: LazyLock<Vec<(&str, usize)>> = LazyLock::new(|| {
    ARCHIVES.into_iter().flat_map(|a| (0..results(a)).map(move |i| (a, i))).collect()
});

fn label(item: u64) -> String {
    let (archive, i) = ITEMS[item as usize];
    format!("{archive} {i}")
}

fn check(item: u64) -> Outcome {
    let (archive, i) = ITEMS[item as usize];
    let c = Context::new();
    let captured = import(&c, &root().join(format!("capture/{archive}.pt2")));
    keep_results(captured.module.find("main").expect("main"), &[i]);
    let file = root().join(format!("capture/{archive}.safetensors"));
    let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let made = Model::from_graph(&captured.module, captured.weights.clone()).compile(&options());
    match made.and_then(|exe| exe.call_values(&inputs)) {
        Ok(have) => Outcome::of(match tolerance::compare(&have[0], &want[i]) {
            Ok(c) if c.ok => vec![],
            Ok(c) => vec![format!("{c}\n  have {:?}\n  want {:?}", have[0].data(), want[i].data())],
            Err(e) => vec![e.to_string()],
        }),
        Err(e) => failed(&e),
    }
}
