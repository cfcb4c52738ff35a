//! Strategies for NVIDIA GPUs.
pub mod attention;
pub mod column_reduction;
pub(crate) mod common;
mod costs;
pub mod depthwise;
pub mod elementwise;
pub mod library;
pub mod mma_gemm;
pub mod naive_contraction;
pub mod prologue;
pub mod register_rows;
pub mod rows;
pub mod scan;
pub mod simt_gemm;
pub mod skinny_gemm;
pub mod split_attention;
pub mod transpose;
pub mod wgmma_gemm;
