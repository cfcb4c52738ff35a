//! Errors of weight files.
use crate::{passes::names::nearest, runtime::DataError};

/// Why weights could not be loaded or saved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WeightsError {
    /// The file is malformed.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The file's tensors do not match the module's weights.
    #[error("{file} does not fit: {}", summary(.missing, .unexpected, .misshapen))]
    Mismatch {
        /// The file.
        file: String,
        /// Weights of the module that the file lacks, in the module's order.
        missing: Vec<String>,
        /// Tensors of the file that the module lacks.
        unexpected: Vec<String>,
        /// Messages about tensors of another dtype or shape.
        misshapen: Vec<String>,
    },
    /// Two weights of the module share a name.
    #[error("two weights are called {}", .0.join(", "))]
    Names(Vec<String>),
}

impl WeightsError {
    pub(super) fn file(file: &str, e: DataError) -> WeightsError {
        WeightsError::File { file: file.into(), reason: e.to_string() }
    }
}

fn summary(missing: &[String], unexpected: &[String], misshapen: &[String]) -> String {
    let hint = |name: &String| match nearest(name, unexpected.iter().map(String::as_str)) {
        Some(near) => format!("{name} (there is {near})"),
        None => name.clone(),
    };
    let mut parts = vec![];
    if !missing.is_empty() {
        parts.push(format!("it lacks {}", missing.iter().map(hint).collect::<Vec<_>>().join(", ")));
    }
    if !unexpected.is_empty() {
        parts.push(format!("nothing takes {}", unexpected.join(", ")));
    }
    parts.extend(misshapen.iter().cloned());
    parts.join("; ")
}
