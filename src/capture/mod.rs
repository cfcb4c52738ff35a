//! Capture: imports a framework's graph at level `graph`.
pub mod aten;
pub(crate) mod autocast;
mod autocast_args;
mod bits;
mod control;
mod draws;
pub mod fx;
pub mod graph;
mod guards;
mod layout;
mod memory;
pub mod pt2;
mod schema;
mod srepr;
mod states;
pub use aten::RandomOrder;
pub(crate) use srepr::size_op;
pub mod storage;
pub mod weight;
mod wrap;

use crate::Exit;
use kiln_dialects::{
    error::{Error, Kind},
    ir::Module,
    value::Tensor,
};
use kiln_runtime::DataError;
use std::collections::BTreeMap;

/// A captured program: IR, weights, and the names of its inputs and outputs.
pub struct Captured {
    /// The module, at level `graph`, with the function `main`.
    pub module: Module,
    /// Location of each global's value in the archive, by the global's name.
    pub weights: BTreeMap<String, pt2::Weight>,
    /// Names of the tensor arguments of `main`, in order.
    pub inputs: Vec<String>,
    /// The results of `main`, in order.
    pub outputs: Vec<Output>,
}

/// One result of a captured program.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A result of the user's function.
    User(String),
    /// The new value of a mutated buffer, parameter or constant, by name.
    Buffer(String),
    /// The new value of a mutated input, by name.
    Input(String),
    /// The value of a size that depends on data, by its symbol: a 0-d i64.
    Size(String),
}

/// Why capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file is malformed.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Unsupported ops: all of them, reported before any op is emitted.
    #[error("{} unsupported op{}:\n{}", .0.len(), if .0.len() == 1 { "" } else { "s" }, .0.iter().map(|u| format!("  {u}")).collect::<Vec<_>>().join("\n"))]
    Unsupported(Vec<Unsupported>),
    /// A supported op whose arguments are invalid or unsupported.
    #[error("{location}: {target}: {reason}")]
    Op {
        /// Whose fault it is.
        kind: Kind,
        /// The user's source file and line.
        location: String,
        /// The overload, such as `aten.relu.default`.
        target: String,
        /// The graph's name of the node's first result; empty without one.
        node: String,
        /// What is wrong.
        reason: String,
    },
}

impl CaptureError {
    /// An error of one node, at the user's source line.
    fn op(node: &schema::GraphNode, target: &str, e: Error) -> CaptureError {
        CaptureError::Op {
            kind: e.kind,
            location: graph::source_location(node),
            target: target.into(),
            node: graph::outputs(node).into_iter().next().unwrap_or_default(),
            reason: e.to_string(),
        }
    }
    /// An error of the file `file`.
    fn file(file: &str, reason: impl ToString) -> CaptureError {
        CaptureError::File { file: file.into(), reason: reason.to_string() }
    }
    /// The exit code of a program that stops with this error.
    pub fn exit(&self) -> Exit {
        match self {
            CaptureError::Unsupported(_) | CaptureError::Op { kind: Kind::Unsupported, .. } => {
                Exit::Unsupported
            }
            CaptureError::Op { .. } | CaptureError::File { .. } => Exit::Usage,
        }
    }
}

/// An error of what is valid, but has no form in kiln.
fn unsupported(message: impl Into<String>) -> Error {
    Error::new(Kind::Unsupported, message)
}

/// An unsupported overload.
#[derive(Debug, Clone, PartialEq)]
pub struct Unsupported {
    /// The overload.
    pub target: String,
    /// Number of uses.
    pub count: usize,
    /// The user's source file and line of the first use.
    pub location: String,
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} ({}x, first at {}); export with run_decompositions(), or register it as a custom call",
            self.target, self.count, self.location
        )
    }
}

impl Captured {
    /// Reads the value of a global.
    pub fn weight(&self, name: &str) -> Result<Tensor, DataError> {
        let missing = || DataError::Missing(format!("has no weight @{name}"));
        self.weights.get(name).ok_or_else(missing)?.read()
    }
}
