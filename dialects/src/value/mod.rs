//! Tensor values: a dtype, a shape and the elements.

mod bytes;
mod dtype;
mod format;
mod tensor;

pub use dtype::DType;
pub use tensor::{Data, Tensor, count};
