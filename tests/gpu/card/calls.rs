//! Many calls of several sizes must not grow device or host memory; and the device memory of CUDA
//! graphs.
use super::*;
use crate::run::{agreement, file, models};
use kiln::{
    dialects::{
        ir::{Context, Module},
        value::DType,
    },
    load,
    model::{Model, OwnedTensor},
    opt::tensors,
    runtime::cuda::{Device, Mode},
};
use std::path::Path;

pub static SUITE: Suite = Suite {
    name: "calls",
    count: || match device().as_str() {
        "cpu" => 1,
        "ptx" => 2,
        _ => 3,
    },
    label,
    check,
    whole: true,
    emulated: 1,
};

/// Measured calls, after the warm-up; a call takes 40 ms on the emulator.
fn how_many() -> (usize, usize) {
    if workers::is_emulated() { (40, 100) } else { (500, 10_000) }
}
/// KiB of host memory growth that is not a leak.
const SLACK: usize = 4096;

fn label(item: u64) -> String {
    if item == 2 {
        return "the memory of CUDA graphs".into();
    }
    format!("of mlp, {}", Mode::ALL[item as usize].0)
}

/// Resident memory of the process in KiB.
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).expect("a line of VmRSS")
}

/// Device memory of a ten-kernel program per mode: a CUDA graph takes at most 5 % more, and the
/// driver's 2 MiB granularity.
fn graphs() -> Outcome {
    let n = if workers::is_emulated() { 32 } else { 4096 };
    let layer = |i: usize| {
        format!(
            "%p{i} = kiln.dot_general %x{i}, %w batch = [] x [] contract = [1] x [1] : T, T\n%s{i} = kiln.softmax %p{i} axis = 1 : T\n%x{} = kiln.add %s{i}, %x{i} : T\n",
            i + 1
        )
    };
    let layers: String = (0..5).map(layer).collect();
    let text = format!("func.func @main(%x0: T, %w: T) -> T {{\n{layers}return %x5 : T\n}}")
        .replace('T', &format!("tensor<{n}x{n}xf32>"));
    let c = Context::new();
    let (module, _) =
        Module::parse(c.ctx(), text.as_bytes(), "layers").unwrap_or_else(|e| panic!("{e}\n{text}"));
    let DeviceId::Cuda(index) = options().device else {
        return Outcome::Wrong("is for a card".into());
    };
    let card = Device::cuda(index).expect("a card");
    let inputs =
        vec![OwnedTensor { shape: vec![n, n], bytes: vec![0; 4 * n * n], dtype: DType::F32 }; 2];
    let (mut used, mut kept) = (vec![], vec![]);
    // The first one also pays for the driver's one-time allocations.
    for mode in [Mode::Default, Mode::Default, Mode::ReduceOverhead] {
        let before = card.memory().expect("a card").0;
        let exe = match Model::from_module(&module, Path::new(""))
            .compile(&Options { mode, ..options() })
        {
            Ok(exe) => exe,
            Err(e) => return failed(&e),
        };
        let mut outputs = exe.memory(&inputs).expect("memory");
        for call in 0..3 {
            if let Err(e) = exe.call_data(&inputs, &mut outputs) {
                return Outcome::Wrong(format!("call {call}: {e}"));
            }
        }
        if exe.cuda().is_some_and(|l| l.used_graphs()) != (mode == Mode::ReduceOverhead) {
            return Outcome::Wrong(format!("in mode {mode:?} a CUDA graph is used, or is not"));
        }
        used.push(before.saturating_sub(card.memory().expect("a card").0));
        kept.push(exe);
    }
    eprintln!(
        "bytes of the card's memory: {} launched one by one, {} as a CUDA graph",
        used[1], used[2]
    );
    let most = used[1] + used[1] / 20 + (2 << 20);
    Outcome::of(
        (used[1] == 0 || used[2] > most)
            .then(|| format!("a CUDA graph takes {} bytes, {} without", used[2], used[1]))
            .into_iter()
            .collect(),
    )
}

fn check(item: u64) -> Outcome {
    if item == 2 {
        return graphs();
    }
    let (name, mode) = Mode::ALL[item as usize];
    let exe = match load(models().join("mlp.pt2"))
        .and_then(|m| m.compile(&Options { mode, ..options() }))
    {
        Ok(exe) => exe,
        Err(e) => return failed(&e),
    };
    let whole = OwnedTensor::from_tensor(&file("mlp")["input_0"]);
    let row = whole.bytes.len() / whole.shape[0];
    // More sizes than the caches hold, so that plans and graphs are evicted.
    let mut all: Vec<(Vec<OwnedTensor>, Vec<OwnedTensor>)> = vec![];
    for rows in 2..=21 {
        let bytes = whole.bytes.iter().cycle().take(rows * row).copied().collect();
        let inputs = vec![OwnedTensor {
            shape: [&[rows], &whole.shape[1..]].concat(),
            bytes,
            dtype: whole.dtype,
        }];
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
    eprintln!(
        "{name}: {many} calls in {time:.1} s; the card's memory grew by {card} bytes, the process by {kib} KiB"
    );
    let grown = (card > 0 || kib > SLACK).then(|| {
        format!("{many} calls grew the card's memory by {card} bytes and the process by {kib} KiB")
    });
    let data: tensors::Tensors = file("mlp");
    Outcome::of(grown.into_iter().chain(agreement(&exe, &data)).collect())
}
