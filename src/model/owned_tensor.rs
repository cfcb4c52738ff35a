//! Owned tensors.
use crate::{
    dialects::value::{DType, Tensor},
    runtime::DataError,
};

/// An owned tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedTensor {
    /// Element type.
    pub dtype: DType,
    /// The shape.
    pub shape: Vec<usize>,
    /// Elements in row-major order; an `i1` takes one byte.
    pub bytes: Vec<u8>,
}

impl OwnedTensor {
    /// The elements of a value, rounded to its dtype.
    pub fn from_tensor(t: &Tensor) -> OwnedTensor {
        OwnedTensor { dtype: t.dtype(), shape: t.shape().to_vec(), bytes: t.dtype().encode(t) }
    }
    /// Decodes the elements. Err: `bytes` does not match dtype and shape.
    pub fn tensor(&self) -> Result<Tensor, DataError> {
        self.dtype.decode(&self.shape, &self.bytes).map_err(DataError::malformed)
    }
}
