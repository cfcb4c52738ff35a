//! A matrix product that cuBLASLt can run in place of a kernel, as plain data.
use serde::{Deserialize, Serialize};

/// result = activation(left · right + bias), batched, on a GPU, accumulated in f32 and rounded
/// once. All sizes are static.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gemm {
    /// Batch count.
    pub batch: u32,
    /// M × K.
    pub left: Matrix,
    /// K × N.
    pub right: Matrix,
    /// M × N, row-major.
    pub result: Matrix,
    /// A vector of N elements of the result's dtype, added to each row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Vector>,
    /// Activation, applied after the bias.
    #[serde(default)]
    pub activation: Activation,
    /// Whether f32 operands may be rounded to tf32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tf32: bool,
}

/// An elementwise activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// Identity: x.
    #[default]
    None,
    /// max(x, 0).
    Relu,
    /// x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))) / 2.
    GeluTanh,
}

impl Activation {
    /// All activations with their names in IR.
    pub const ALL: [(&str, Activation); 3] = [
        ("none", Activation::None),
        ("relu", Activation::Relu),
        ("gelu_tanh", Activation::GeluTanh),
    ];
}

/// A batch of matrices in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// Index of its pointer in [`Launch::args`](crate::program::Launch::args).
    pub arg: usize,
    /// Offset of the first element, in elements.
    pub offset: u64,
    /// The element type in MLIR's spelling: `bf16`, `f16` or `f32`.
    pub dtype: String,
    /// Number of contiguous lines, and elements of each.
    pub lines: [u64; 2],
    /// Leading dimension: elements from one line to the next.
    pub stride: u64,
    /// Batch stride, in elements.
    pub apart: u64,
    /// Whether lines are columns (column-major) instead of rows.
    pub transposed: bool,
}

/// A contiguous vector in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// As in [`Matrix::arg`].
    pub arg: usize,
    /// Offset of the first element, in elements.
    pub offset: u64,
}
