//! What makes an op well-formed: one column per question, each an exhaustive match over
//! [`OpKind`](crate::ops::OpKind).
//!
//! [`infer`] gives result dtypes and sizes, static and symbolic, by one rule; [`verify()`] adds
//! what it cannot know; [`fold()`] is what upstream's `canonicalize` may do at once; [`numerics()`]
//! says what a compiled op may differ in.
mod canonical;
mod contract;
mod fold;
mod image;
mod level;
mod norm;
mod numerics;
mod place;
mod pointwise;
mod shape;
mod verify;

pub use canonical::CANONICAL;
pub use fold::{Fold, fold};
pub use level::{CONTROL, GRAPH_LEVELS, LEVELS, Level, is_driver};
pub use numerics::numerics;
pub use shape::{Sizes, TensorType, infer, infer_types, tensor_type, unify};
pub use verify::{
    CONSTANT_LIMIT, verify, verify_arg_attr, verify_op_attr, verify_regions, verify_symbol,
};
