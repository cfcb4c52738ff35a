//! Tensors: computed eagerly, or traced, so that a function of [`Tensor`]s becomes a module at
//! level `graph`.
//!
//! A [`Tensor`] is concrete data, or a symbolic value of the graph being traced. Methods have the
//! names, broadcasting and type promotion of PyTorch: each one is the builder of an ATen overload
//! (`src/capture/aten/`), shared with the importer of `.pt2` archives. Tensors are immutable.
//! Handles are cheap to clone and thread-safe.
//!
//! **Dispatch.** An op is added to the graph of its operands if they are traced; else to the graph
//! that its thread traces ([`trace`], a [compiled](crate::compile()) function), where concrete
//! tensors become constants; else it runs eagerly, as a cached single-op program.
//!
//! **Errors.** No operator panics. An invalid op records its error with the user's file and line,
//! and returns a poisoned tensor; ops on poisoned tensors stay silent. [`trace`] returns all
//! recorded errors at once. In eager mode the poisoned tensor carries the error until it is read.
//! Only methods that return a type ([`Tensor::dims`], [`Tensor::dtype`]) or data
//! ([`Tensor::to_vec`], [`Tensor::item`]) return a `Result`.
//!
//! **Sizes.** [`Graph::dim`] creates a symbol with a range. Sizes are computed, compared and
//! printed as symbolic expressions. A contradiction (`batch` against `batch + 1`) is an error at
//! the op. A symbolic size never broadcasts as 1: against another size it must be equal, which each
//! call checks.
//!
//! **Locations.** Every op has the source location of the call in the user's code. Inside an
//! [`nn`](crate::nn) module that is the call of the module, or where it was added to a
//! `Sequential`.
mod arg;
pub(crate) mod array;
mod autocast;
mod autocast_context;
mod axes;
mod bounded;
mod call_site;
mod checkpoint;
mod control;
mod create;
mod custom;
mod derivative;
pub(crate) mod device;
mod dim;
#[cfg(all(feature = "dlpack", target_pointer_width = "64"))]
mod dlpack;
mod donation;
mod eager;
mod elementwise;
mod emit;
mod error;
mod gradient;
mod graph;
mod handle;
mod image;
mod index;
mod key;
mod lazy;
mod lazy_node;
mod lock;
mod loss;
mod mark;
mod modes;
mod movement;
mod norm;
mod number;
mod operators;
mod product;
mod ptx;
mod read;
mod recurrent;
mod reduce;
mod region;
mod replay;
mod scalar;
mod session;
mod state;
mod tensor_type;
mod trace;
mod vmap;

pub use arg::Operand;
pub use array::Array;
pub use autocast::{autocast, without_autocast};
pub use axes::Axes;
pub use bounded::while_loop_bounded;
pub use checkpoint::{Checkpoint, checkpoint};
pub use control::{cond, map, scan, scan_reverse, while_loop};
pub use custom::{CustomBuilder, CustomOp, custom_op};
pub use dim::{Dim, Shape};
pub use donation::DonatedMemory;
pub use eager::with_backend;
pub use error::{OpError, TraceError};
pub use gradient::{Grad, Pullback, ValueAndGrad, grad, jvp, value_and_grad, vjp};
pub use graph::{Frame, Graph};
pub use handle::Tensor;
pub use image::{Convolution, Pool};
pub use loss::Reduction;
pub use mark::{mark_dynamic, mark_static};
pub use norm::CrossEntropy;
pub use number::Number;
pub use product::Attention;
pub use ptx::Ptx;
pub use recurrent::{Cell, Recurrence};
pub use scalar::Scalar;
pub use tensor_type::TensorType;
pub use trace::{Traced, trace, trace_all, trace_into};
pub use vmap::{Vmap, vmap};
pub(crate) use {
    array::Mark,
    autocast_context::is_autocast,
    control::FlatTree,
    custom::{has_effects, register_in},
    eager::{common_device, device_of, reset, resolve_slot},
    gradient::value_and_gradients,
    graph::Place,
    handle::Repr,
    lazy::Segments,
    lock::lock,
    modes::{eagerly, in_segments, is_disabled, run_disabled},
    session::{BreakReason, Lifted, NumberArgument, Session},
    trace::{Recorded, ResultSource, record},
};

/// For [`Tensor::slice`]: the end of the dimension.
pub const END: i64 = i64::MAX;
