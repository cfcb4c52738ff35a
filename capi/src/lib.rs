//! `libkiln_runtime.so`: the functions of `include/kiln.h` that load and call compiled packages.
//! There is no MLIR in it.
pub use runtime::capi::*;
