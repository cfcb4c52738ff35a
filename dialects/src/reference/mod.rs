//! The reference semantics of every op: plain loops on plain values, in f64 and i64.
//!
//! Functions have the ops' names. Floats are not rounded to the result's dtype ([`Tensor::rounded`]
//! does), integers wrap around. Sizes, axes and offsets are i64 as in the attributes, and are
//! checked.
//!
//! [`Tensor::rounded`]: crate::value::Tensor::rounded

mod activation;
mod attention;
mod attention_gradient;
mod composite;
mod contract;
mod convert;
mod convolution;
mod convolution_gradient;
mod element;
mod fourier;
mod indexed;
mod loss;
mod movement;
mod norm;
mod pointwise;
mod pool;
mod random;
mod reduce;
mod scalar;
mod shape;
mod sort;
mod statistic;
mod window;
mod winograd;

pub use activation::{gelu, hardsigmoid, hardswish, hardtanh, relu, sigmoid, silu, softplus};
pub use attention::{AttentionParams, MaskFn, ScoreFn, attention};
pub use attention_gradient::{AttentionGradientParams, attention_gradient};
pub use composite::{dropout, embedding, interpolate, linear, matmul};
pub use contract::{DotParams, dot_general};
pub use convert::{bitcast, convert};
pub use convolution::{ConvParams, convolution};
pub use convolution_gradient::convolution_weight_gradient;
pub use fourier::{deinterleave, fft, interleave};
pub use indexed::{dynamic_slice, dynamic_update_slice, gather, insert_slice, move_slice, scatter};
pub use loss::{CrossEntropyParams, cross_entropy};
pub use movement::{
    broadcast_in_dim, concat, iota, pad, reshape, reverse, slice, splat, transpose,
};
pub use norm::{
    BatchNormParams, batch_norm, group_norm, layer_norm, log_softmax, rms_norm, softmax,
};
pub use pointwise::{binary, clamp, compare, select, unary};
pub use pool::{AvgPoolParams, MaxPoolParams, adaptive_avg_pool, avg_pool, max_pool};
pub use random::{philox, philox4x32_10, random_bits, random_normal, random_uniform};
pub use reduce::{arg_max, arg_min, cumulative, reduce};
pub(crate) use scalar::{binary_float, unary_float};
pub use sort::{sort, top_k};
pub use statistic::{mean, std, var};
pub use window::{WindowParams, reduce_window};
pub use winograd::{
    winograd_filter_matrix, winograd_input, winograd_input_matrix, winograd_output,
    winograd_output_matrix,
};
