//! Tensors that own their bytes.
use crate::dialects::value::{DType, Tensor};

/// A tensor as bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Elements in row-major order; an `i1` is a byte.
    pub bytes: Vec<u8>,
}

impl Data {
    /// A value's elements, rounded to its dtype.
    pub fn of(t: &Tensor) -> Data {
        Data { dtype: t.dtype(), shape: t.shape().to_vec(), bytes: t.dtype().encode(t) }
    }
    /// The value.
    pub fn tensor(&self) -> Result<Tensor, String> {
        Ok(self.dtype.decode(&self.shape, &self.bytes)?)
    }
}
