//! Capture of Rust code: a closure that computes with [`Tensor`]s becomes a module at level `graph`.
//!
//! A [`Tensor`] is a name for a value that a compiled program will have; its methods have the names, the broadcasting and the type promotion of
//! PyTorch, because each is the builder of an ATen overload (`src/capture/aten/`), which the importer of `.pt2` archives uses too. Nodes and sizes
//! lie in an arena that lives as long as the trace; their names are kept in order of first use.
//!
//! **Errors.** No operator panics. An op that cannot be records why, with the user's file and line, and gives a poisoned tensor; what is computed
//! from that is poisoned in silence. The call of [`trace`] returns all of these errors at once. Only what asks for a value's type
//! ([`Tensor::dims`], [`Tensor::dtype`]) has to say no earlier, and returns a `Result`.
//!
//! **Sizes.** [`Graph::dim`] makes a symbolic size with a range. Sizes are computed with, compared and printed as expressions over these, and a
//! contradiction (`batch` against `batch + 1`) is an error where it is written. A symbolic size never counts as 1 in broadcasting: against another
//! size it has to be equal to it when the program is called.
//!
//! **Places.** Every op has the location of the call in the user's code; inside of an [`nn`](crate::nn) module that is where the module is called,
//! or where it was added to a `Sequential`.
mod arg;
mod axes;
mod create;
mod dim;
mod elementwise;
mod emit;
mod error;
mod graph;
mod handle;
mod image;
mod index;
mod movement;
mod norm;
mod operators;
mod product;
mod reduce;
mod run;

pub use arg::Operand;
pub use axes::Axes;
pub use dim::{Dim, Shape};
pub use error::{OpError, TraceError};
pub use graph::{Frame, Graph};
pub use handle::Tensor;
pub use image::{Convolution, Pool};
pub use norm::{CrossEntropy, Reduction};
pub use product::Attention;
pub use run::{Traced, trace, trace_all, trace_into};

/// For [`Tensor::slice`]: to the end of the dimension.
pub const END: i64 = i64::MAX;
