//! `libkiln_runtime.so`: the functions of `include/kiln.h` that load and call packages. Without
//! MLIR.
pub use runtime::capi::*;
