//! Errors of kiln-opt.
use crate::Exit;
use std::path::Path;

/// An error of kiln-opt with its exit code.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct OptError {
    /// The exit code.
    pub exit: Exit,
    /// The message for the user.
    pub message: String,
}

impl OptError {
    /// A usage error, exit code 2.
    pub fn usage(message: impl Into<String>) -> OptError {
        OptError { exit: Exit::Usage, message: message.into() }
    }
    /// A system error, exit code 5.
    pub fn machine(what: &str, e: std::io::Error) -> OptError {
        OptError { exit: Exit::Device, message: format!("{what}: {e}") }
    }
    /// An unusable file, exit code 2.
    pub fn file(path: &Path, e: impl std::fmt::Display) -> OptError {
        OptError::usage(format!("{}: {e}", path.display()))
    }
}
