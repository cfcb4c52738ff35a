//! kiln: a compiler of tensor graphs on MLIR.
pub mod exit;
pub mod opt;
pub mod tolerance;

pub use exit::Exit;
pub use kiln_dialects as dialects;
pub use kiln_lowering as lowering;
pub use kiln_macros::compile;
pub use kiln_passes as passes;
pub use kiln_runtime as runtime;
pub use model::{Error, Executable, Model, Options, load};

pub mod autotune;
pub mod backend;
pub mod capture;
pub mod cli;
pub mod compile;
pub mod debug;
pub mod docs;
pub mod dump;
pub mod logs;
pub mod model;
pub mod nn;
pub mod tensor;

pub mod walkthrough;

pub use backend::{Backend, Runnable, list_backends};
pub use compile::{
    Compiled, OptionInfo, compile, disable, explain, list_mode_options, list_options, reset,
};
pub use tensor::{
    Ptx, Scalar, Tensor, cond, custom_op, map, mark_dynamic, mark_static, scan, scan_reverse,
    trace, trace_all, while_loop,
};
