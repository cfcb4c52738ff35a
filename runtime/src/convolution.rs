//! A convolution that cuDNN can compute in place of a kernel, as plain data.
use crate::gemm::Activation;
use serde::{Deserialize, Serialize};

/// result = f(convolution + bias + residual) of 2-D images, on a GPU, in f32 and rounded once. A
/// filter is not turned round, as in PyTorch. Channels that the weight has less of than the image
/// are groups. All sizes are known. Pairs are of height and width.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convolution {
    /// Images, channels, height, width.
    pub image: Volume,
    /// Filters, channels of a group, height, width.
    pub weight: Volume,
    /// Images, filters, height, width.
    pub result: Volume,
    /// How far neighbours in the result are apart in the image.
    pub strides: [u64; 2],
    /// How far neighbours in the window are apart in the image.
    pub dilation: [u64; 2],
    /// Zeros in front of the image.
    pub low: [u64; 2],
    /// Zeros behind it.
    pub high: [u64; 2],
    /// What is added for each filter: sizes of 1, filters, 1, 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Volume>,
    /// What is added to each element, of the result's sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<Volume>,
    /// What is done to each sum, behind all else.
    #[serde(default)]
    pub activation: Activation,
    /// Whether factors of f32 may be rounded to tf32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tf32: bool,
}

/// Where a tensor of four dimensions lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The entry of [`Launch::args`](crate::program::Launch::args) that is its memory.
    pub arg: usize,
    /// The first element.
    pub offset: u64,
    /// The element type in MLIR's spelling: `bf16`, `f16` or `f32`.
    pub dtype: String,
    /// Its sizes, in the order of channels first, wherever they lie.
    pub sizes: [u64; 4],
    /// Elements from one to its neighbour in each dimension.
    pub strides: [u64; 4],
}
