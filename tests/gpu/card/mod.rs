//! What needs a card: models, rows of the ATen table, random graphs, functions of the front and
//! small kernels, their results against PyTorch's and the interpreter's, control flow, the error of
//! functions of f32, and calls without growth of memory. Without a card they run on the emulator
//! (`emulator/`), some of them in part.
//!
//! A suite is a number of items. Processes of this binary share them out (`workers.rs`), so that a
//! kernel that faults or does not end costs its item and nothing else, and all that is wrong is
//! listed at the end. The binary needs no more than `tests/` in the working directory. The
//! environment says
//!
//! - `KILN_CARD_DEVICE`: where programs run, `cuda:0` if not said, which is the emulator where
//!   there is no card; `cpu` tries the suites themselves, `ptx` makes the programs for sm_90a and
//!   runs nothing.
//! - `KILN_CARD_WORKERS`: how many processes, if not said one a processor and at most 16.
//! - `KILN_CARD_SECONDS`: when a suite begins no further item, if not said after 300 s.
//! - `KILN_GRAPHS=FIRST..END`: which random graphs, if not said the first 200.
mod backends;
mod calls;
mod control;
mod front;
mod graphs;
mod kernels;
mod math;
mod models;
mod parts;
mod rows;
mod tuning;
mod workers;

use kiln::{
    Error, Exit, Options,
    model::CachePolicy,
    runtime::{Place, cuda::CudaError},
};
use workers::{run, run_emulated};

/// What has become of an item.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Outcome {
    Agrees,
    /// There is no compiled form for GPUs.
    Refused(String),
    Wrong(String),
}

/// Items of one kind, each of which a process can do by itself.
pub struct Suite {
    pub name: &'static str,
    pub count: fn() -> u64,
    /// What an item is called.
    pub label: fn(u64) -> String,
    pub check: fn(u64) -> Outcome,
    /// Whether each item has to have a compiled form.
    pub whole: bool,
    /// On the emulator each item whose number is a multiple of this.
    pub emulated: u64,
}

static SUITES: [&Suite; 11] = [
    &models::SUITE,
    &rows::SUITE,
    &graphs::SUITE,
    &front::SUITE,
    &control::SUITE,
    &backends::SUITE,
    &kernels::SUITE,
    &math::SUITE,
    &parts::SUITE,
    &calls::SUITE,
    &tuning::SUITE,
];

fn device() -> String {
    std::env::var("KILN_CARD_DEVICE").unwrap_or("cuda:0".into())
}

/// Options for the card. What is compiled is kept between the processes, which have many kernels in
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
    let device = Place::parse(&device()).unwrap_or_else(|e| panic!("KILN_CARD_DEVICE: {e}"));
    let folder = std::env::var_os("KILN_CACHE_DIR").filter(|d| d != "off");
    let cache = folder.map_or(CachePolicy::Off, |d| CachePolicy::Dir(d.into()));
    Options { device, cache, threads: 1, workers: 1, ..Options::default() }
}

/// What an error is for an item.
fn failed(e: &Error) -> Outcome {
    // As far as a machine without a driver comes.
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
    /// Of everything that is wrong with an item.
    fn of(wrong: Vec<String>) -> Outcome {
        if wrong.is_empty() { Outcome::Agrees } else { Outcome::Wrong(wrong.join("\n")) }
    }
}

/// One of the processes; [`run`] starts it and tells it the items.
#[test]
#[ignore = "a process of the others"]
fn worker() {
    workers::serve(&SUITES);
}

#[test]
fn models_give_pytorchs_results() {
    run(&models::SUITE);
}

#[test]
fn rows_of_the_aten_table_give_pytorchs_results() {
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
fn control_flow_gives_the_hosts_results() {
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

/// Of the tensor cores' instructions of warps, and without the copy engine.
#[test]
fn small_kernels_of_an_older_chip_as_interpreted() {
    run_emulated(&kernels::SUITE, "sm_80", 2);
}

#[test]
fn products_of_shared_depth_as_interpreted() {
    run(&parts::SUITE);
}

#[test]
fn functions_are_as_exact_as_stated() {
    run(&math::SUITE);
}

#[test]
fn measured_schedules_and_library_calls_are_right() {
    run(&tuning::SUITE);
}

#[test]
fn calls_keep_no_memory() {
    run(&calls::SUITE);
}
