//! Calls of several sizes, many times: neither the card's memory nor the process may grow.
use super::*;
use crate::run::{agreement, file, models};
use kiln::{load, model::Data, opt::tensors, runtime::cuda::Mode};

pub static SUITE: Suite = Suite { name: "calls", count: || if device() == "cpu" { 1 } else { 2 }, label, check, whole: true, emulated: 1 };

/// Calls, after those that are not counted; on the emulator a call takes 40 ms.
fn how_many() -> (usize, usize) {
    if workers::is_emulated() { (40, 100) } else { (500, 10_000) }
}
/// Kibibytes that a process may grow by without keeping anything of a call.
const SLACK: usize = 4096;

fn label(item: u64) -> String {
    format!("of mlp, {}", Mode::ALL[item as usize].0)
}

/// Kibibytes of the process in memory.
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).expect("a line of VmRSS")
}

fn check(item: u64) -> Outcome {
    let (name, mode) = Mode::ALL[item as usize];
    let exe = match load(models().join("mlp.pt2")).and_then(|m| m.compile(&Options { mode, ..options() })) {
        Ok(exe) => exe,
        Err(e) => return failed(&e),
    };
    let whole = Data::of(&file("mlp")["input_0"]);
    let row = whole.bytes.len() / whole.shape[0];
    // More sizes than are remembered, so that plans and graphs come and go.
    let mut all: Vec<(Vec<Data>, Vec<Data>)> = vec![];
    for rows in 2..=21 {
        let bytes = whole.bytes.iter().cycle().take(rows * row).copied().collect();
        let inputs = vec![Data { shape: [&[rows], &whole.shape[1..]].concat(), bytes, dtype: whole.dtype }];
        let outputs = exe.memory(&inputs).expect("memory");
        all.push((inputs, outputs));
    }
    let mut calls = |n: usize| -> Result<(), String> {
        for i in 0..n {
            let (inputs, outputs) = &mut all[i % 20];
            exe.call_data(inputs, outputs).map_err(|e| format!("call {i}: {e}"))?;
        }
        Ok(())
    };
    let memory = || (exe.cuda().map_or(0, |l| l.device().memory().expect("a card").0), resident());
    let (first, many) = how_many();
    if let Err(e) = calls(first) {
        return Outcome::Wrong(e);
    }
    let before = memory();
    let start = std::time::Instant::now();
    if let Err(e) = calls(many) {
        return Outcome::Wrong(e);
    }
    let (time, after) = (start.elapsed().as_secs_f64(), memory());
    let (card, kib) = (before.0.saturating_sub(after.0), after.1.saturating_sub(before.1));
    eprintln!("{name}: {many} calls in {time:.1} s; the card's memory grew by {card} bytes, the process by {kib} KiB");
    let grown =
        (card > 0 || kib > SLACK).then(|| format!("{many} calls grew the card's memory by {card} bytes and the process by {kib} KiB"));
    let data: tensors::Tensors = file("mlp");
    Outcome::of(grown.into_iter().chain(agreement(&exe, &data)).collect())
}
