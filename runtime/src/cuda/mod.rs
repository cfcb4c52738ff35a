//! Programs on NVIDIA GPUs, through the driver alone. `libcuda` is looked for when a GPU is first
//! asked for.
mod arguments;
mod call;
mod control;
mod cublaslt;
mod cudnn;
mod device;
mod fault;
mod graph;
pub mod libraries;
mod link;
mod load;
mod memory;
mod nvtx;
mod plan;
mod recent;
mod staging;
mod state;
mod stream;
mod tensor_map;

pub use device::{Card, Device, cards, driver_version};
pub use link::{Image, Images, Library, Linker};
pub use load::Loaded;
pub use stream::Stream;

/// How the kernels of a program are launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One after the other.
    #[default]
    Default,
    /// All at once, as a CUDA graph for each combination of sizes; what hinders that is in
    /// [`Loaded::remarks`].
    ReduceOverhead,
}

impl Mode {
    /// All with their names.
    pub const ALL: [(&str, Mode); 2] =
        [("default", Mode::Default), ("reduce-overhead", Mode::ReduceOverhead)];
}

/// How a program runs on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How its kernels are launched.
    pub mode: Mode,
    /// Whether each launch is waited for, so that a fault is that launch's. There are no graphs
    /// then.
    pub blocking: bool,
    /// Whether calls and launches are marked for profilers, if NVTX's library is found.
    pub nvtx: bool,
}

use cudarc::driver::DriverError;

/// What went wrong on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// There is no driver.
    #[error(
        "no NVIDIA driver: looked for {searched}; install the driver, or set LD_LIBRARY_PATH to where libcuda.so.1 lies"
    )]
    NoDriver {
        /// The names of the library.
        searched: String,
    },
    /// There is no such card.
    #[error("there is no GPU {index}; the driver knows {count}")]
    NoDevice {
        /// What was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The code is for another card.
    #[error(
        "the program is for {chip}, which GPU {index} ({name}, compute capability {major}.{minor}) does not run"
    )]
    Chip {
        /// The program's chip.
        chip: String,
        /// The card.
        index: usize,
        /// Its name.
        name: String,
        /// Its compute capability.
        major: i32,
        /// See `major`.
        minor: i32,
    },
    /// The card has not enough memory.
    #[error(
        "no memory on the GPU for {asked} bytes of {what}: {free} of {total} bytes are free; the program plans {planned}"
    )]
    Memory {
        /// How much was asked for.
        asked: usize,
        /// What for.
        what: String,
        /// Bytes that are free.
        free: usize,
        /// Bytes of the card.
        total: usize,
        /// What the program needs in all.
        planned: String,
    },
    /// The driver's linker refused a kernel.
    #[error("kernel {kernel} was not linked: {reason}")]
    Link {
        /// The kernel.
        kernel: String,
        /// The driver's words.
        reason: String,
    },
    /// A launch failed.
    #[error("{what}: {reason}")]
    Launch {
        /// The kernel, its ops and its launch configuration.
        what: String,
        /// The driver's words.
        reason: String,
    },
    /// A kernel went wrong some time ago, and the driver refuses everything since.
    #[error("GPU {index} does no more work in this process: {reason}; {suspects}")]
    Fault {
        /// The card.
        index: usize,
        /// The driver's words when it was noticed.
        reason: String,
        /// The launches that it may have been.
        suspects: String,
    },
    /// The driver is too old.
    #[error("the NVIDIA driver speaks CUDA {}.{}; 12.0 is the least", .have / 1000, .have % 1000 / 10)]
    OldDriver {
        /// Its version, as 1000 major + 10 minor.
        have: i32,
    },
    /// A stream that a call cannot use.
    #[error("the caller's stream {reason}")]
    Stream {
        /// Why.
        reason: &'static str,
    },
    /// Anything else that the driver refused.
    #[error("{what}: {reason}")]
    Driver {
        /// What was being done.
        what: &'static str,
        /// The driver's words.
        reason: String,
    },
}

fn words(e: DriverError) -> String {
    let name = e.error_name().map(|s| s.to_string_lossy().into_owned());
    let text = e.error_string().map(|s| s.to_string_lossy().into_owned());
    format!(
        "{} ({})",
        text.unwrap_or_else(|_| "unknown error".into()),
        name.unwrap_or_else(|_| format!("{:?}", e.0))
    )
}

/// What is looked for of a library: the name that it has on Linux, and how many others there are.
fn searched(name: &str, all: impl IntoIterator<Item = String>) -> String {
    let others: std::collections::BTreeSet<String> =
        all.into_iter().filter(|n| n != name).collect();
    format!("{name} and {} other names", others.len())
}

/// An error of the driver while it did this.
fn driver(what: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |e| CudaError::Driver { what, reason: words(e) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_error_says_what_was_searched() {
        match Device::cuda(0) {
            Ok(device) => assert_eq!(device.card().index, 0),
            Err(CudaError::NoDriver { searched }) => {
                assert!(searched.contains("libcuda.so.1"), "{searched}")
            }
            Err(e) => assert!(
                matches!(
                    e,
                    CudaError::NoDevice { .. }
                        | CudaError::Driver { .. }
                        | CudaError::OldDriver { .. }
                ),
                "{e}"
            ),
        }
    }
}
