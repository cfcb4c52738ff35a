//! Errors of tensors' elements: of weights, files and arrays.
use crate::OutOfMemory;

/// Why elements cannot be had, or do not fit their type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// They are not where they should be.
    #[error("{0}")]
    Missing(String),
    /// Another dtype, shape or number of bytes is wanted.
    #[error("{0}")]
    Mismatch(String),
    /// What is stored contradicts itself.
    #[error("{0}")]
    Malformed(String),
    /// A file cannot be read or written.
    #[error("{0}")]
    File(String),
    /// Out of host memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// A GPU or its driver fails.
    #[error("{0}")]
    Device(String),
}

impl DataError {
    /// As [`DataError::Mismatch`], from any error.
    pub fn mismatch(e: impl ToString) -> DataError {
        DataError::Mismatch(e.to_string())
    }
    /// As [`DataError::Malformed`], from any error.
    pub fn malformed(e: impl ToString) -> DataError {
        DataError::Malformed(e.to_string())
    }
    /// As [`DataError::File`], from any error.
    pub fn file(e: impl ToString) -> DataError {
        DataError::File(e.to_string())
    }
    /// As [`DataError::Device`], from any error.
    pub fn device(e: impl ToString) -> DataError {
        DataError::Device(e.to_string())
    }
    /// The same error with more words.
    pub fn map(self, words: impl FnOnce(String) -> String) -> DataError {
        match self {
            DataError::Missing(e) => DataError::Missing(words(e)),
            DataError::Mismatch(e) => DataError::Mismatch(words(e)),
            DataError::Malformed(e) => DataError::Malformed(words(e)),
            DataError::File(e) => DataError::File(words(e)),
            DataError::Memory(e) => DataError::Memory(e),
            DataError::Device(e) => DataError::Device(words(e)),
        }
    }
}

impl From<String> for DataError {
    fn from(e: String) -> DataError {
        DataError::Malformed(e)
    }
}
impl From<&str> for DataError {
    fn from(e: &str) -> DataError {
        DataError::Malformed(e.into())
    }
}
