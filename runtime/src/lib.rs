//! Loads and runs compiled programs. Independent of MLIR, so that a program runs without the
//! compiler.
//!
//! [`Program`] describes what was compiled, [`package`] stores it with its object code, [`cache`]
//! keeps object code between processes. [`pool`] is the thread pool, [`Buffer`] host memory,
//! [`library`] the kernels that are not generated, and [`profile`] times launches.
pub mod amx;
pub mod buffer;
pub mod cache;
pub mod call;
mod call_error;
#[cfg(feature = "capi")]
pub mod capi;
pub mod control;
pub mod convolution;
pub mod cuda;
pub mod custom;
pub mod data;
pub mod device_id;
pub mod entries;
pub mod file;
pub mod gemm;
pub mod guards;
pub mod host;
pub mod interop;
pub mod library;
pub mod library_call;
mod linalg;
pub mod link;
pub mod package;
pub mod pool;
pub mod profile;
pub mod program;
pub mod view;

pub use buffer::{Buffer, OutOfMemory};
pub use cache::{Remark, Store};
pub use call::{Bytes, Loaded};
pub use call_error::CallError;
pub use data::DataError;
pub use device_id::DeviceId;
pub use guards::Guards;
pub use host::OpenError;
pub use package::{Package, PackageError};
pub use pool::Pool;
pub use program::Program;
pub use view::{View, ViewMut};

/// All symbols that compiled code refers to, for a linker.
pub fn symbols() -> Vec<(&'static str, *const std::ffi::c_void)> {
    [pool::symbols(), library::symbols(), profile::symbols()].concat()
}
