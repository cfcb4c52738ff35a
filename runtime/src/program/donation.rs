//! Inputs whose memory outputs take.
use serde::{Deserialize, Serialize};

/// An output that may have the memory of an input of the same dtype and shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// Index of the input.
    pub input: usize,
    /// Index of the output.
    pub output: usize,
}

/// An input that a call gives its new value, such as a buffer that an exported program mutates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Index of the input.
    pub input: usize,
    /// Index of the output that is the new value.
    pub output: usize,
    /// Where the initial value is, as in [`Global::source`](super::Global::source).
    pub source: String,
    /// Whether kernels write only parts of the new value, into the memory that the old one is in.
    /// A call that is given the same memory for both copies nothing; another one copies the input
    /// to the output first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
}

/// A donated input whose memory no output may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotAliased {
    /// Index of the input.
    pub input: usize,
    /// Why.
    pub reason: String,
}
