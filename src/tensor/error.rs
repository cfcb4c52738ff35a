//! Why a trace gives no module.
use std::panic::Location;

/// An op that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {op}: {reason}{}", if .operands.is_empty() { String::new() } else { format!(" (of {})", .operands.join(", ")) })]
pub struct OpError {
    /// The user's file.
    pub file: String,
    /// The line in it.
    pub line: u32,
    /// The column in the line.
    pub column: u32,
    /// The method, such as `matmul`.
    pub op: String,
    /// What is wrong.
    pub reason: String,
    /// Types of the tensors that it was called on, such as `f32[batch, 64]`.
    pub operands: Vec<String>,
}

impl OpError {
    pub(super) fn new(
        place: &Location<'_>,
        op: &str,
        reason: String,
        operands: Vec<String>,
    ) -> OpError {
        OpError {
            file: place.file().into(),
            line: place.line(),
            column: place.column(),
            op: op.into(),
            reason,
            operands,
        }
    }
}

/// Why a closure was not captured.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Ops that cannot be, in the order of the program; what follows from them is not listed.
    #[error("{}", .0.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n"))]
    Ops(Vec<OpError>),
    /// The module that was made is wrong, which is kiln's fault.
    #[error("the traced graph is wrong: {0}")]
    Module(String),
    /// A value was read of a tensor that has none, since it is traced.
    #[error("{0}")]
    Read(OpError),
    /// Weights that do not fit.
    #[error(transparent)]
    Weights(#[from] crate::nn::WeightsError),
    /// What the closure itself gave up for.
    #[error(transparent)]
    User(#[from] Box<dyn std::error::Error + Send + Sync>),
}
