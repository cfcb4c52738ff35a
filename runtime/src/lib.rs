//! What runs a compiled program. Nothing here knows MLIR, so that a program can be loaded and
//! called without the compiler.
//!
//! [`Program`] says what was compiled, [`package`] carries it with its object code, [`cache`] keeps
//! object code between processes, [`pool`] gives it threads, [`Buffer`] memory, [`library`] what is
//! no loop nest, and [`profile`] the times of its kernels.
pub mod amx;
pub mod buffer;
pub mod cache;
pub mod call;
#[cfg(feature = "capi")]
pub mod capi;
pub mod control;
pub mod convolution;
pub mod cuda;
pub mod custom;
pub mod entries;
pub mod file;
pub mod gemm;
pub mod guards;
pub mod host;
pub mod interop;
pub mod library;
pub mod library_call;
pub mod link;
pub mod package;
pub mod place;
pub mod pool;
pub mod profile;
pub mod program;
pub mod view;

pub use buffer::{Buffer, OutOfMemory};
pub use cache::{Remark, Store};
pub use call::{Bytes, CallError, Loaded};
pub use guards::Guards;
pub use host::OpenError;
pub use package::{Package, PackageError};
pub use place::Place;
pub use pool::Pool;
pub use program::Program;
pub use view::{View, ViewMut};

/// Everything that compiled code calls, for a linker.
pub fn symbols() -> Vec<(&'static str, *const std::ffi::c_void)> {
    [pool::symbols(), library::symbols(), profile::symbols()].concat()
}
