//! A library call equivalent to a GPU kernel, as plain data. The generated kernel is the fallback.
use crate::{convolution::Convolution, gemm::Gemm};
use serde::{Deserialize, Serialize};

/// A library call. Its serialised tag names the library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "library")]
pub enum LibraryCall {
    /// A matrix product, by cuBLASLt.
    #[serde(rename = "cublaslt")]
    Gemm(Box<Gemm>),
    /// A convolution, by cuDNN.
    #[serde(rename = "cudnn")]
    Convolution(Box<Convolution>),
}

/// cuBLASLt's name in schedules and packages.
pub const CUBLASLT: &str = "cublaslt";
/// cuDNN's name in schedules and packages.
pub const CUDNN: &str = "cudnn";

impl LibraryCall {
    /// All libraries.
    pub const LIBRARIES: [&str; 2] = [CUBLASLT, CUDNN];

    /// The library's name.
    pub fn library(&self) -> &'static str {
        match self {
            LibraryCall::Gemm(_) => CUBLASLT,
            LibraryCall::Convolution(_) => CUDNN,
        }
    }
}
