//! kiln compiles tensor graphs on MLIR: torch.compile's job, without Python, a C++ compiler or a
//! CUDA toolkit at run time.
//!
//! # Compile a function
//!
//! [`compile()`] compiles a function, as `torch.compile` does. The first call traces it into a
//! graph and compiles that; [`Compiled::explain`] reports graphs, guards and kernels.
//!
//! ```
//! use kiln::Tensor;
//! let f = kiln::compile(|x: Tensor, y: Tensor| (&x * 2 + y).softmax(-1));
//! let x = Tensor::from_slice(&[2], &[1.0f32, 2.0])?;
//! let y = Tensor::from_slice(&[2], &[0.0f32, -2.0])?;
//! assert_eq!(f.call((&x, &y))?.to_vec::<f32>()?, [0.5, 0.5]);
//! println!("{}", f.explain());
//! # Ok::<(), kiln::Error>(())
//! ```
//!
//! # Compile a file
//!
//! [`load`] opens an archive of `torch.export.save` (`.pt2`), IR (`.mlir`) or a compiled package.
//! Arguments are slices, `ndarray` arrays (`View::from_array`) or DLPack tensors: see [`View`].
//!
//! ```
//! let exe = kiln::load("tests/models/mlp.pt2")?.compile(&kiln::Options::default())?;
//! let x = vec![1.0f32; 8 * 64];
//! let shape = exe.output_shapes(&[&[8, 64]])?.remove(0);
//! let mut y = vec![0.0f32; shape.iter().product()];
//! let input = kiln::View::from_slice(&[8, 64], &x)?;
//! exe.call(&[input], &mut [kiln::ViewMut::from_slice(&shape, &mut y)?])?;
//! assert_eq!(shape, [8, 10]);
//! # Ok::<(), kiln::Error>(())
//! ```
//!
//! # Overview
//!
//! | for | see |
//! | --- | --- |
//! | compiled functions, guards, options | [`compile()`], [`Compiled`], [`list_options`] |
//! | gradients | [`grad`], [`value_and_grad`], [`vjp`], [`jvp`], [`checkpoint`] |
//! | functions of batches from functions of examples | [`vmap`] |
//! | model files and executables | [`load`], [`Model`], [`Executable`], [`Options`], [`model`] |
//! | programs with state, such as a decoder with a cache of keys and values | [`Session`] |
//! | layers, named as in PyTorch; optimizers | [`nn`], [`optim`] |
//! | tracing and capture to IR | [`trace`], [`tensor`], [`capture`] |
//! | user passes, and a `kiln-opt` that has them | [`passes`], [`opt::main`], [`cli::main`] |
//! | custom ops and backends | [`custom_op`], [`Backend`] |
//! | errors, bisection and dumps | [`Error`], [`debug`], [`dump`] |
//!
//! The repository's `examples/` has a program for each of these, and its `docs/` the guides.
//! Building needs MLIR 22: see "As a dependency" in the README.
pub mod exit;
pub mod opt;
pub mod tolerance;

pub use exit::Exit;
pub use kiln_dialects as dialects;
pub use kiln_lowering as lowering;
pub use kiln_macros::compile;
pub use kiln_passes as passes;
pub use kiln_runtime as runtime;
pub use model::{AlignRandom, Error, Executable, Model, Options, Session, load};
pub use runtime::{View, ViewMut};

pub mod autotune;
pub mod backend;
pub mod capture;
pub mod cli;
pub mod compile;
pub mod data;
pub mod debug;
pub mod docs;
pub mod dump;
pub mod logs;
pub mod model;
pub mod nn;
pub mod optim;
pub mod tensor;

pub mod walkthrough;

pub use backend::{Backend, Runnable, list_backends};
pub use compile::{
    Compiled, OptionInfo, compile, disable, explain, list_mode_options, list_options, reset,
};
pub use tensor::{
    Ptx, Scalar, Tensor, autocast, checkpoint, cond, custom_op, grad, jvp, map, mark_dynamic,
    mark_static, scan, scan_reverse, trace, trace_all, value_and_grad, vjp, vmap, while_loop,
    while_loop_bounded,
};
