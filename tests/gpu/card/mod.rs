//! Tests that need a GPU: models, ATen rows, random graphs, front-end functions, small kernels, the
//! cases of passes, control flow, accuracy of f32 functions, memory growth. Results are compared
//! with PyTorch and the interpreter. Without a GPU they run on the emulator (`emulator/`), some in
//! part.
//!
//! A suite is a list of items. Worker processes of this binary share them (`workers.rs`), so that a
//! kernel that faults or hangs fails only its item; all failures are listed at the end. The binary
//! needs only `tests/` in the working directory. Environment variables:
//!
//! - `KILN_CARD_DEVICE`: the device, default `cuda:0` (the emulator without a GPU); `cpu` tests the
//!   suites themselves, `ptx` compiles for sm_90a without running.
//! - `KILN_CARD_WORKERS`: worker processes, default one per CPU; at most 16, and one where items
//!   compare the card's free memory.
//! - `KILN_CARD_SECONDS`: when a suite starts no further item, default never.
//! - `KILN_GRAPHS=FIRST..END`: the random graphs, default the first 200.
mod backends;
mod calls;
mod control;
mod front;
mod graphs;
pub mod kernels;
mod math;
mod models;
mod parts;
pub mod passes;
mod quantized;
mod random;
mod rows;
mod solver;
mod tensors;
mod transforms;
mod tuning;
mod workers;
mod workspace;

use kiln::{
    Error, Exit, Options,
    model::CachePolicy,
    runtime::{DeviceId, cuda::CudaError},
};
use workers::{run, run_alone, run_emulated};

/// The outcome of an item.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Outcome {
    Agrees,
    /// GPUs do not support it.
    Refused(String),
    Wrong(String),
}

/// Independent items of one kind.
pub struct Suite {
    pub name: &'static str,
    pub count: fn() -> u64,
    /// The name of an item.
    pub label: fn(u64) -> String,
    pub check: fn(u64) -> Outcome,
    /// Whether every item must be supported.
    pub whole: bool,
    /// On the emulator only every n-th item runs; fewer without `./x test --all`.
    pub emulated: u64,
}

static SUITES: [&Suite; 19] = [
    &models::SUITE,
    &rows::SUITE,
    &graphs::SUITE,
    &front::SUITE,
    &control::SUITE,
    &backends::SUITE,
    &kernels::SUITE,
    &math::SUITE,
    &parts::SUITE,
    &passes::SUITE,
    &quantized::SUITE,
    &random::SUITE,
    &calls::SUITE,
    &control::CALLS,
    &tuning::SUITE,
    &solver::SUITE,
    &transforms::SUITE,
    &workspace::SUITE,
    &tensors::SUITE,
];

fn device() -> String {
    std::env::var("KILN_CARD_DEVICE").unwrap_or("cuda:0".into())
}

/// Options for the device. The processes share a compilation cache, since they have many kernels in
/// common.
fn options() -> Options {
    if device() == "ptx" {
        return Options {
            target: Some("cuda:sm_90a".into()),
            threads: 2,
            workers: 1,
            ..Options::default()
        };
    }
    let device = DeviceId::parse(&device()).unwrap_or_else(|e| panic!("KILN_CARD_DEVICE: {e}"));
    let folder = std::env::var_os("KILN_CACHE_DIR").filter(|d| d != "off");
    let cache = folder.map_or(CachePolicy::Off, |d| CachePolicy::Dir(d.into()));
    Options { device, cache, threads: 1, workers: 1, ..Options::default() }
}

/// Classifies an error of an item.
fn failed(e: &Error) -> Outcome {
    // As far as a machine without a driver gets.
    if device() == "ptx" && matches!(e, Error::Cuda(CudaError::NoDriver { .. })) {
        return Outcome::Agrees;
    }
    if e.exit() == Exit::Unsupported {
        Outcome::Refused(e.to_string())
    } else {
        Outcome::Wrong(e.to_string())
    }
}

impl Outcome {
    /// From the list of an item's errors.
    fn of(wrong: Vec<String>) -> Outcome {
        if wrong.is_empty() { Outcome::Agrees } else { Outcome::Wrong(wrong.join("\n")) }
    }
}

/// A worker process; [`run`] starts it and sends it items.
#[test]
#[ignore = "a process of the others"]
fn worker() {
    workers::serve(&SUITES);
}

#[test]
fn models_as_pytorch() {
    run(&models::SUITE);
}

#[test]
fn aten_rows_as_pytorch() {
    run(&rows::SUITE);
}

#[test]
fn random_graphs_as_interpreted() {
    run(&graphs::SUITE);
}

#[test]
fn functions_of_the_front_agree() {
    run(&front::SUITE);
}

#[test]
fn control_flow_as_on_the_host() {
    run(&control::SUITE);
}

#[test]
fn backends_conform() {
    run(&backends::SUITE);
}

#[test]
fn small_kernels_as_interpreted() {
    run(&kernels::SUITE);
}

/// With `mma` instructions, and without TMA.
#[test]
fn small_kernels_of_an_older_chip_as_interpreted() {
    run_emulated(&kernels::SUITE, "sm_80", 4);
}

#[test]
fn split_k_matmuls_as_interpreted() {
    run(&parts::SUITE);
}

#[test]
fn cases_of_passes_as_before_the_pass() {
    run(&passes::SUITE);
}

#[test]
fn weights_of_8_bits_are_converted_exactly() {
    run(&quantized::SUITE);
}

#[test]
fn random_numbers_of_pytorch_s_generator() {
    run(&random::SUITE);
}

#[test]
fn functions_are_as_accurate_as_documented() {
    run(&math::SUITE);
}

#[test]
fn autotuned_schedules_and_library_calls_are_correct() {
    run(&tuning::SUITE);
}

#[test]
fn factorizations_of_the_card_as_on_the_host() {
    run(&solver::SUITE);
}

#[test]
fn transforms_of_the_card_as_on_the_host() {
    run(&transforms::SUITE);
}

#[test]
fn tensors_stay_on_the_card() {
    run(&tensors::SUITE);
}

#[test]
fn calls_in_the_callers_memory_are_captured() {
    run(&workspace::SUITE);
}

#[test]
fn calls_do_not_leak_memory() {
    run_alone(&calls::SUITE);
    run_alone(&control::CALLS);
}
