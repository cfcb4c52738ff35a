//! Tensors: computed with at once, or captured, so that a function of [`Tensor`]s becomes a module
//! at level `graph`.
//!
//! A [`Tensor`] has elements, or is a name for a value that a compiled program will have; its
//! methods have the names, the broadcasting and the type promotion of PyTorch, because each is the
//! builder of an ATen overload (`src/capture/aten/`), which the importer of `.pt2` archives uses
//! too. Tensors are values: no op changes one. A handle is cheap to clone and may go to any thread.
//!
//! **Where an op goes.** Into the graph of its operands if they are traced; else into the graph
//! that its thread traces ([`trace`], a function that is [compiled](crate::compile())), where
//! tensors with elements become constants; else it runs at once, as a program of one op, which is
//! kept.
//!
//! **Errors.** No operator panics. An op that cannot be records why, with the user's file and line,
//! and gives a poisoned tensor; what is computed from that is poisoned in silence. The call of
//! [`trace`] returns all of these errors at once; of ops that run at once, the poisoned tensor
//! keeps the error, which reading it returns. Only what asks for a value's type ([`Tensor::dims`],
//! [`Tensor::dtype`]) or for its elements ([`Tensor::to_vec`], [`Tensor::item`]) has to say no
//! earlier, and returns a `Result`.
//!
//! **Sizes.** [`Graph::dim`] makes a symbolic size with a range. Sizes are computed with, compared
//! and printed as expressions over these, and a contradiction (`batch` against `batch + 1`) is an
//! error where it is written. A symbolic size never counts as 1 in broadcasting: against another
//! size it has to be equal to it when the program is called.
//!
//! **Places.** Every op has the location of the call in the user's code; inside of an
//! [`nn`](crate::nn) module that is where the module is called, or where it was added to a
//! `Sequential`.
mod arg;
mod array;
mod axes;
mod control;
mod create;
mod custom;
mod dim;
mod eager;
mod elementwise;
mod emit;
mod error;
mod graph;
mod handle;
mod image;
mod index;
mod key;
mod lazy;
mod movement;
mod norm;
mod operators;
mod product;
mod ptx;
mod read;
mod reduce;
mod region;
mod replay;
mod run;
mod scalar;
mod session;
mod state;

pub use arg::Operand;
pub use array::{Array, Number, mark_dynamic, mark_static};
pub use axes::Axes;
pub use control::{cond, map, scan, scan_reverse, while_loop};
pub use custom::{CustomBuilder, CustomOp, TensorType, custom_op};
pub use dim::{Dim, Shape};
pub use eager::with_backend;
pub use error::{OpError, TraceError};
pub use graph::{Frame, Graph};
pub use handle::Tensor;
pub use image::{Convolution, Pool};
pub use norm::{CrossEntropy, Reduction};
pub use product::Attention;
pub use ptx::Ptx;
pub use run::{Traced, trace, trace_all, trace_into};
pub use scalar::Scalar;
pub(crate) use {
    array::Mark,
    custom::{has_effects, register_in},
    eager::{lock, pick, reset},
    graph::{at_once, in_segments, is_left_out, left_out},
    handle::Repr,
    lazy::Segments,
    run::{Recorded, Slot, record},
    session::{Lifted, NumberArgument, Session, Why},
};

/// For [`Tensor::slice`]: to the end of the dimension.
pub const END: i64 = i64::MAX;
