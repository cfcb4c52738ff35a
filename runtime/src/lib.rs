//! What runs a compiled program. Nothing here knows MLIR, so that a program can be loaded and called without the compiler.
//!
//! [`Program`] says what was compiled, [`package`] carries it with its object code, [`cache`] keeps object code between processes,
//! [`pool`] gives it threads, [`Buffer`] memory, and [`library`] what is no loop nest.
pub mod amx;
pub mod buffer;
pub mod cache;
pub mod call;
pub mod library;
pub mod package;
pub mod pool;
pub mod program;

pub use buffer::{Buffer, OutOfMemory};
pub use cache::{Remark, Store};
pub use call::{Bytes, CallError, Loaded, View, ViewMut};
pub use package::{Package, PackageError};
pub use pool::Pool;
pub use program::Program;
