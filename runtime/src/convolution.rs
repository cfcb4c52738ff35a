//! A convolution that cuDNN can run in place of a kernel, as plain data.
use crate::gemm::Activation;
use serde::{Deserialize, Serialize};

/// result = activation(conv2d(image, weight) + bias + residual) on a GPU, accumulated in f32 and
/// rounded once. As in PyTorch, this is a cross-correlation. Grouped if the weight has fewer
/// channels than the image. All sizes are static. Pairs are (height, width).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convolution {
    /// [N, C, H, W].
    pub image: Volume,
    /// [K, C / groups, R, S].
    pub weight: Volume,
    /// [N, K, P, Q].
    pub result: Volume,
    /// Strides.
    pub strides: [u64; 2],
    /// Dilation.
    pub dilation: [u64; 2],
    /// Zero padding before the image.
    pub low: [u64; 2],
    /// Zero padding after the image.
    pub high: [u64; 2],
    /// Bias, of shape [1, K, 1, 1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Volume>,
    /// Residual, of the result's shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<Volume>,
    /// Activation, applied last.
    #[serde(default)]
    pub activation: Activation,
    /// Whether f32 operands may be rounded to tf32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tf32: bool,
}

/// A 4-D tensor in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Index of its pointer in [`Launch::args`](crate::program::Launch::args).
    pub arg: usize,
    /// Offset of the first element, in elements.
    pub offset: u64,
    /// The element type in MLIR's spelling: `bf16`, `f16` or `f32`.
    pub dtype: String,
    /// Sizes in NCHW order, whatever the memory format.
    pub sizes: [u64; 4],
    /// Strides in elements, in NCHW order.
    pub strides: [u64; 4],
}
