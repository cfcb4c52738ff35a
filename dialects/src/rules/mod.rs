//! The rules of well-formed ops, one exhaustive match over [`OpKind`](crate::ops::OpKind) each.
//!
//! [`infer`] computes result dtypes and sizes, static and symbolic; [`verify()`] checks the rest;
//! [`fold()`] serves upstream's `canonicalize`; [`numerics()`] states the allowed error of a
//! compiled op.
mod attributes;
mod canonical;
mod contract;
mod fold;
mod fourier;
mod image;
mod insert_slice;
mod level;
mod norm;
mod numerics;
mod pointwise;
mod shape;
mod structured;
mod tile;
mod types;
mod verify;

pub use attributes::{verify_arg_attr, verify_op_attr};
pub use canonical::CANONICAL;
pub use fold::{Fold, fold};
pub use fourier::half_spectrum;
pub use level::{
    CONTROL, GRAPH_LEVELS, LEVELS, Level, SIZE_RESULTS, STATE, UNBOUNDED, is_driver, non_drivers,
    param_attrs, state_result,
};
pub use numerics::numerics;
pub use shape::{infer, infer_types};
pub use types::{Sizes, TensorType, tensor_type, unify};
pub use verify::{CONSTANT_LIMIT, verify, verify_regions, verify_symbol};
