//! Tracing errors.
use std::panic::Location;

/// An invalid op, with its source location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {op}: {reason}{}", if .operands.is_empty() { String::new() } else { format!(" (of {})", .operands.join(", ")) })]
pub struct OpError {
    /// The user's source file.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// The method, such as `matmul`.
    pub op: String,
    /// What is wrong.
    pub reason: String,
    /// Operand types, such as `f32[batch, 64]`.
    pub operands: Vec<String>,
}

impl TraceError {
    /// As [`TraceError::Module`], from any error.
    pub(crate) fn module(e: impl ToString) -> TraceError {
        TraceError::Module(e.to_string())
    }
}

impl OpError {
    pub(super) fn new(
        site: &Location<'_>,
        op: &str,
        reason: String,
        operands: Vec<String>,
    ) -> OpError {
        OpError {
            file: site.file().into(),
            line: site.line(),
            column: site.column(),
            op: op.into(),
            reason,
            operands,
        }
    }
}

/// Why tracing failed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Invalid ops, in program order; errors that follow from others are not listed.
    #[error("{}", .0.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n"))]
    Ops(Vec<OpError>),
    /// The traced module does not verify: a bug in kiln.
    #[error("the traced graph is wrong: {0}")]
    Module(String),
    /// A traced tensor's value was read.
    #[error("{0}")]
    Read(OpError),
    /// Mismatched weights.
    #[error(transparent)]
    Weights(#[from] crate::nn::WeightsError),
    /// Elements are missing, or do not fit their type.
    #[error(transparent)]
    Data(#[from] crate::runtime::DataError),
    /// The closure's own error.
    #[error(transparent)]
    User(#[from] Box<dyn std::error::Error + Send + Sync>),
}
