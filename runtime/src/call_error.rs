//! Why a call fails.
use crate::{OutOfMemory, amx::NoTiles, program::SizeError};

/// A count with its noun, given in the plural.
fn counted(n: usize, what: &str) -> String {
    format!("{n} {}", if n == 1 { what.trim_end_matches('s') } else { what })
}

fn given(n: usize) -> String {
    format!("but {n} {} given", if n == 1 { "is" } else { "are" })
}

/// Why a call failed. A call that fails its checks has written nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Wrong number of tensors.
    #[error("takes {}, {}", counted(*.want, what), given(*.have))]
    Count {
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many the program takes.
        want: usize,
        /// How many were passed.
        have: usize,
    },
    /// A tensor's dtype or shape does not match the program.
    #[error("{what} '{name}': {reason}")]
    Tensor {
        /// `input` or `output`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What does not match.
        reason: String,
    },
    /// A dynamic size is outside the range that the program was compiled for.
    #[error(
        "size {symbol} (dimension {dim} of input '{input}') is {value}; the program takes {range}"
    )]
    Range {
        /// The symbol.
        symbol: String,
        /// The dimension that it is read from.
        dim: usize,
        /// The input that it is read from.
        input: String,
        /// Its value.
        value: i64,
        /// The allowed values.
        range: String,
    },
    /// The sizes violate a condition of the model.
    #[error(
        "the sizes of the inputs do not meet a condition of the model: {text} (the left side is {lhs}, the right side {rhs})"
    )]
    Condition {
        /// The condition and its source location.
        text: String,
        /// The value of the left-hand side.
        lhs: i64,
        /// The value of the right-hand side.
        rhs: i64,
    },
    /// An element of an input is no index into the dimension that the model reads by it.
    #[error(
        "input '{input}': index {index} is out of bounds for a dimension of size {size} ({text})"
    )]
    Index {
        /// The input.
        input: String,
        /// The index.
        index: i64,
        /// The size of the dimension.
        size: i64,
        /// The op, its source location and the dimension.
        text: String,
    },
    /// A size expression has no value.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// Out of host memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// A GPU or driver error. Outputs may have been partly written.
    #[error(transparent)]
    Cuda(#[from] crate::cuda::CudaError),
    /// The program needs AMX, which is not available.
    #[error(transparent)]
    Tiles(#[from] NoTiles),
}

pub(crate) fn tensor_error(what: &'static str, name: &str, reason: String) -> CallError {
    CallError::Tensor { what, name: name.into(), reason }
}
