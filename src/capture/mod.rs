//! Capture: imports a framework's graph at level `graph`.
pub mod aten;
mod control;
pub mod graph;
mod guards;
mod layout;
pub mod pt2;
mod schema;
mod srepr;
pub(crate) use srepr::size_op;
pub mod storage;
pub mod weight;

use kiln_dialects::{ir::Module, value::Tensor};
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
    /// The new value of a mutated buffer or parameter, by name.
    Buffer(String),
    /// The new value of a mutated input, by name.
    Input(String),
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
    /// A supported op with unsupported arguments.
    #[error("{place}: {target}: {reason}")]
    Op {
        /// The user's source file and line.
        place: String,
        /// The overload, such as `aten.relu.default`.
        target: String,
        /// What is wrong.
        reason: String,
    },
}

/// An unsupported overload.
#[derive(Debug, Clone, PartialEq)]
pub struct Unsupported {
    /// The overload.
    pub target: String,
    /// Number of uses.
    pub count: usize,
    /// The user's source file and line of the first use.
    pub place: String,
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} ({}x, first at {}); export with run_decompositions(), or register it as a custom call",
            self.target, self.count, self.place
        )
    }
}

impl Captured {
    /// Reads the value of a global.
    pub fn weight(&self, name: &str) -> Result<Tensor, String> {
        self.weights.get(name).ok_or_else(|| format!("has no weight @{name}"))?.read()
    }
}
