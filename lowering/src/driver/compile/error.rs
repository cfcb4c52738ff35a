//! Why a compilation failed.
use crate::{CancellationError, PassError, cpu::llvm::codegen::CodeGenError};
use kiln_dialects::{error::Kind, ir::*};

/// Why a compilation failed.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A pass failed.
    #[error(transparent)]
    Pass(PassError),
    /// It was cancelled, or its time budget was used up.
    #[error(transparent)]
    Cancelled(#[from] CancellationError),
    /// LLVM code generation failed.
    #[error("{kernel}: {error}")]
    Code {
        /// The kernel, or the host function.
        kernel: String,
        /// The code generator's error.
        error: CodeGenError,
    },
    /// The target does not support some ops: one sentence with a source location for each.
    #[error("{}", .0.join("\n"))]
    Unsupported(Vec<String>),
    /// The module is invalid as compiler input.
    #[error("{0}")]
    Module(String),
}

impl CompileError {
    /// Whether the module is valid, but has no form for the target.
    pub fn is_unsupported(&self) -> bool {
        match self {
            CompileError::Unsupported(_) => true,
            CompileError::Pass(e) => e.is_unsupported(),
            _ => false,
        }
    }
}

impl From<Error> for CompileError {
    fn from(e: Error) -> CompileError {
        match e.kind {
            Kind::Unsupported => CompileError::Unsupported(vec![e.to_string()]),
            Kind::Invalid | Kind::Internal => CompileError::Module(e.to_string()),
        }
    }
}

impl From<PassError> for CompileError {
    fn from(e: PassError) -> CompileError {
        match e {
            PassError::Cancelled(why) => CompileError::Cancelled(why),
            e => CompileError::Pass(e),
        }
    }
}
