//! The error of a structure that is rebuilt from its leaves.

/// Leaves that do not match a structure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TreeError(String);

impl From<String> for TreeError {
    fn from(message: String) -> TreeError {
        TreeError(message)
    }
}
impl From<&str> for TreeError {
    fn from(message: &str) -> TreeError {
        TreeError(message.into())
    }
}
