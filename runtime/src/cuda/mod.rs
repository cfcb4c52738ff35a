//! Programs on NVIDIA GPUs, through the driver alone. `libcuda` is looked for when a GPU is first asked for.
mod call;
mod device;
mod link;
mod memory;
mod tensor_map;

pub use call::Loaded;
pub use device::{Card, Device, cards, driver_version};
pub use link::link;

use cudarc::driver::DriverError;

/// What went wrong on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// There is no driver.
    #[error("no NVIDIA driver: looked for {searched}; install the driver, or set LD_LIBRARY_PATH to where libcuda.so.1 lies")]
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
    #[error("the program is for {chip}, which GPU {index} ({name}, compute capability {major}.{minor}) does not run")]
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
    #[error("no memory on the GPU for {asked} bytes of {what}: {free} of {total} bytes are free; the program plans {planned}")]
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
    format!("{} ({})", text.unwrap_or_else(|_| "unknown error".into()), name.unwrap_or_else(|_| format!("{:?}", e.0)))
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
            Err(CudaError::NoDriver { searched }) => assert!(searched.contains("libcuda.so.1"), "{searched}"),
            Err(e) => assert!(matches!(e, CudaError::NoDevice { .. } | CudaError::Driver { .. }), "{e}"),
        }
    }
}
