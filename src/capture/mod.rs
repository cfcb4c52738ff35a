//! Capture: from a framework's graph to the `graph` level.
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

/// A captured program: IR, and what it needs beside it.
pub struct Captured {
    /// The module, at level `graph`, with the function `main`.
    pub module: Module,
    /// Where the value of each global lies in the archive, by the global's name.
    pub weights: BTreeMap<String, pt2::Weight>,
    /// Names of the tensors that `main` takes, in order.
    pub inputs: Vec<String>,
    /// What `main` returns, in order.
    pub outputs: Vec<Output>,
}

/// One result of a captured program.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A result that the user asked for.
    User(String),
    /// The new value of a buffer (or of a parameter that is written), by its name.
    Buffer(String),
    /// The new value of an input, by the input's name.
    Input(String),
}

/// Why a program was not captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file is not what it should be.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Ops without a row in the ATen table; all of them, before any work.
    #[error("{} unsupported op{}:\n{}", .0.len(), if .0.len() == 1 { "" } else { "s" }, .0.iter().map(|u| format!("  {u}")).collect::<Vec<_>>().join("\n"))]
    Unsupported(Vec<Unsupported>),
    /// A supported op with arguments that are not.
    #[error("{place}: {target}: {reason}")]
    Op {
        /// The user's file and line.
        place: String,
        /// The overload, such as `aten.relu.default`.
        target: String,
        /// What is wrong.
        reason: String,
    },
}

/// An overload without a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Unsupported {
    /// The overload.
    pub target: String,
    /// How often it is used.
    pub count: usize,
    /// The user's file and line of the first use.
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
    /// The value of a global.
    pub fn weight(&self, name: &str) -> Result<Tensor, String> {
        self.weights.get(name).ok_or_else(|| format!("has no weight @{name}"))?.read()
    }
}
