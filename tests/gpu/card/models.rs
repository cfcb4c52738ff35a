//! The archives with PyTorch's results, launched kernel by kernel and as CUDA graphs.
use super::*;
use crate::run::{MODELS, agreement, file, models};
use kiln::{load, runtime::cuda::Mode};

pub static SUITE: Suite = Suite {
    name: "models",
    count: || items().len() as u64,
    label,
    check,
    whole: true,
    emulated: 1,
};

fn items() -> Vec<(&'static str, &'static str, Mode)> {
    let modes = if !device().starts_with("cuda") { &Mode::ALL[..1] } else { &Mode::ALL };
    let of = |(model, inputs): &(&'static str, &'static [&'static str])| {
        let model = *model;
        inputs
            .iter()
            .flat_map(move |data| modes.iter().map(move |(_, mode)| (model, *data, *mode)))
            .collect::<Vec<_>>()
    };
    MODELS.iter().flat_map(of).collect()
}

fn label(item: u64) -> String {
    let (model, data, mode) = items()[item as usize];
    format!("{model}, {data}, {mode:?}")
}

fn check(item: u64) -> Outcome {
    let (model, data, mode) = items()[item as usize];
    let made = load(models().join(format!("{model}.pt2")))
        .and_then(|m| m.compile(&Options { mode, ..options() }));
    let data = file(data);
    match made {
        // Twice, since the first call captures the graph.
        Ok(exe) => {
            let mut wrong = [agreement(&exe, &data), agreement(&exe, &data)].concat();
            if exe.cuda().is_some_and(|l| l.used_graphs() != (mode == Mode::ReduceOverhead)) {
                wrong.push(format!("in mode {mode:?} a CUDA graph is used, or is not"));
            }
            Outcome::of(wrong)
        }
        Err(e) => failed(&e),
    }
}
