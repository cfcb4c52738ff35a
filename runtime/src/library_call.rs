//! What a library can compute in place of a GPU's kernel, as plain data. A program that says so has
//! the kernel as well.
use crate::{convolution::Convolution, gemm::Gemm};
use serde::{Deserialize, Serialize};

/// A call of a library. Data of a package names the library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "library")]
pub enum LibraryCall {
    /// A product, by cuBLASLt.
    #[serde(rename = "cublaslt")]
    Gemm(Box<Gemm>),
    /// A convolution, by cuDNN.
    #[serde(rename = "cudnn")]
    Convolution(Box<Convolution>),
}

/// What schedules and packages call cuBLASLt.
pub const CUBLASLT: &str = "cublaslt";
/// What schedules and packages call cuDNN.
pub const CUDNN: &str = "cudnn";

impl LibraryCall {
    /// The libraries that there are.
    pub const LIBRARIES: [&str; 2] = [CUBLASLT, CUDNN];

    /// Which one it is.
    pub fn library(&self) -> &'static str {
        match self {
            LibraryCall::Gemm(_) => CUBLASLT,
            LibraryCall::Convolution(_) => CUDNN,
        }
    }
}
