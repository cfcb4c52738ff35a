//! Errors of PTX.

/// A PTX error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    /// Line in the PTX.
    pub line: u32,
    /// What is wrong.
    pub what: String,
}
