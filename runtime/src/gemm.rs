//! A product that cuBLASLt can compute in place of a kernel, as plain data.
use serde::{Deserialize, Serialize};

/// result = left · right, or f(left · right + bias): `batch` times, on a GPU, in f32 and rounded
/// once. All sizes are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gemm {
    /// How many products.
    pub batch: u32,
    /// Rows by depth.
    pub left: Matrix,
    /// Depth by columns.
    pub right: Matrix,
    /// Rows by columns, not transposed.
    pub result: Matrix,
    /// A vector that is added to each row, of the result's element type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Vector>,
    /// What is done to each sum, behind the bias.
    #[serde(default)]
    pub activation: Activation,
    /// Whether factors of f32 may be rounded to tf32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tf32: bool,
}

/// A function of single elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// x.
    #[default]
    None,
    /// max(x, 0).
    Relu,
    /// x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))) / 2.
    GeluTanh,
}

impl Activation {
    /// All with their names in IR.
    pub const ALL: [(&str, Activation); 3] = [
        ("none", Activation::None),
        ("relu", Activation::Relu),
        ("gelu_tanh", Activation::GeluTanh),
    ];
}

/// Where a matrix lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// The entry of [`Launch::args`](crate::program::Launch::args) that is its memory.
    pub arg: usize,
    /// The first element.
    pub offset: u64,
    /// The element type in MLIR's spelling: `bf16`, `f16` or `f32`.
    pub dtype: String,
    /// Lines of elements that lie side by side, and elements of each.
    pub lines: [u64; 2],
    /// Elements from one line to the next.
    pub stride: u64,
    /// Elements from one matrix of the batch to the next.
    pub apart: u64,
    /// Whether lines are its columns, not its rows.
    pub transposed: bool,
}

/// Where a vector lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// As in [`Matrix::arg`].
    pub arg: usize,
    /// The first element.
    pub offset: u64,
}
