//! Programs on NVIDIA GPUs, through the driver API alone. `libcuda` is loaded on first use.
mod arguments;
mod call;
mod control;
mod control_state;
mod cublaslt;
mod cudnn;
mod cufft;
mod cusolver;
mod device;
mod device_functions;
mod event;
mod fault;
mod flow_memory;
mod graph;
mod graph_blockers;
mod launch;
pub mod libraries;
mod link;
mod load;
mod lru;
mod memory;
mod nvtx;
mod outcome;
mod per_device;
mod plan;
mod shared_library;
mod staging;
mod state;
mod stream;
mod tensor_map;
mod tensor_memory;
mod workspace;
mod workspace_flow;

pub use device::{Device, DeviceInfo, devices, driver_version};
pub use link::{Image, Images, Library, Linker};
pub use load::Loaded;
pub use stream::Stream;
pub use tensor_memory::{DeviceMemory, Prefetch, release_unused, synchronize, tensor_stream};
pub use workspace::Allocation;

/// How a program's kernels are launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One launch each.
    #[default]
    Default,
    /// As one CUDA graph for each combination of sizes; [`Loaded::remarks`] says what prevents
    /// that.
    ReduceOverhead,
}

impl Mode {
    /// All modes with their names.
    pub const ALL: [(&str, Mode); 2] =
        [("default", Mode::Default), ("reduce-overhead", Mode::ReduceOverhead)];
}

/// How a program runs on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How its kernels are launched.
    pub mode: Mode,
    /// Synchronises after each launch, as CUDA_LAUNCH_BLOCKING does, so that a fault names its
    /// launch. Disables CUDA graphs.
    pub blocking: bool,
    /// Whether later calls in the caller's memory ([`Loaded::launch_in`]) are launched as a CUDA
    /// graph.
    pub replay: bool,
    /// Emits NVTX ranges for calls and launches, if the NVTX library is found.
    pub nvtx: bool,
}

use cudarc::driver::DriverError;

/// An error of a GPU or its driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// The driver library is missing.
    #[error(
        "no NVIDIA driver: looked for {searched}; install the driver, or set LD_LIBRARY_PATH to the folder of libcuda.so.1"
    )]
    NoDriver {
        /// The names that were tried.
        searched: String,
    },
    /// No GPU of this ordinal.
    #[error("there is no GPU {index}; the driver knows {count}")]
    NoDevice {
        /// The ordinal that was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The code does not run on this GPU.
    #[error(
        "the program is for {chip}, which GPU {index} ({name}, compute capability {major}.{minor}) does not run"
    )]
    Chip {
        /// The chip that the program was compiled for.
        chip: String,
        /// The GPU's ordinal.
        index: usize,
        /// Its product name.
        name: String,
        /// Its compute capability, major.
        major: i32,
        /// Its compute capability, minor.
        minor: i32,
    },
    /// Out of device memory.
    #[error(
        "no memory on the GPU for {asked} bytes of {what}: {free} of {total} bytes are free; the program plans {planned}"
    )]
    Memory {
        /// Bytes that were asked for.
        asked: usize,
        /// What for.
        what: String,
        /// Free bytes.
        free: usize,
        /// Bytes of the device in all.
        total: usize,
        /// What the program needs in all, in words.
        planned: String,
    },
    /// `cuLink` rejected a kernel.
    #[error("kernel {kernel} was not linked: {reason}")]
    Link {
        /// The kernel.
        kernel: String,
        /// The linker's message.
        reason: String,
    },
    /// A launch failed.
    #[error("{what}: {reason}")]
    Launch {
        /// The kernel, its ops and its launch configuration.
        what: String,
        /// The driver's message.
        reason: String,
    },
    /// An earlier kernel faulted, and the driver refuses all work since.
    #[error("GPU {index} does no more work in this process: {reason}; {suspects}")]
    Fault {
        /// The GPU's ordinal.
        index: usize,
        /// The driver's message when the fault was noticed.
        reason: String,
        /// The launches that may have caused it.
        suspects: String,
    },
    /// The driver is too old.
    #[error("the NVIDIA driver supports CUDA {}.{}; kiln needs 12.0 or newer", .have / 1000, .have % 1000 / 10)]
    OldDriver {
        /// The CUDA version that it supports, as 1000 major + 10 minor.
        have: i32,
    },
    /// A stream that a call cannot use.
    #[error("the caller's stream {reason}")]
    Stream {
        /// Why.
        reason: &'static str,
    },
    /// Any other error of the driver.
    #[error("{what}: {reason}")]
    Driver {
        /// What was being done.
        what: &'static str,
        /// The driver's message.
        reason: String,
    },
}

fn driver_message(e: DriverError) -> String {
    let name = e.error_name().map(|s| s.to_string_lossy().into_owned());
    let text = e.error_string().map(|s| s.to_string_lossy().into_owned());
    format!(
        "{} ({})",
        text.unwrap_or_else(|_| "unknown error".into()),
        name.unwrap_or_else(|_| format!("{:?}", e.0))
    )
}

/// The library names that are tried: the one usual on Linux, and how many others.
fn searched(name: &str, all: impl IntoIterator<Item = String>) -> String {
    let others: std::collections::BTreeSet<String> =
        all.into_iter().filter(|n| n != name).collect();
    format!("{name} and {} other names", others.len())
}

/// Maps a driver error, with what was attempted.
fn driver(what: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |e| CudaError::Driver { what, reason: driver_message(e) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_error_says_what_was_searched() {
        match Device::cuda(0) {
            Ok(device) => assert_eq!(device.info().index, 0),
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
