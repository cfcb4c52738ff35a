//! Types of tensors, as custom ops state them.
use super::Dim;
use kiln_dialects::value::DType;

/// A dtype and a shape.
pub type TensorType = (DType, Vec<Dim>);
