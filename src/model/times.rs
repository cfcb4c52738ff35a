//! Times of a compilation.
use crate::{lowering::driver::compile::CompileReport, runtime::Remark};
use std::{path::PathBuf, time::Duration};

/// Time breakdown of [`Model::compile`](super::Model::compile).
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Reading the file and capturing it as IR.
    pub capture: Duration,
    /// Passes and code generation; `None` on a cache hit for the whole program.
    pub compile: Option<CompileReport>,
    /// Linking the object code.
    pub link: Duration,
    /// Resolving the weights, and copying those that are not stored in the program's layout.
    pub weights: Duration,
    /// Autotuning, or checking that no schedule is missing.
    pub autotuning: Duration,
    /// Messages of autotuning.
    pub tuning: Vec<String>,
    /// Cache remarks about the whole program.
    pub remarks: Vec<Remark>,
    /// The folder below [`Options::dump`](super::Options::dump) that this compilation wrote.
    pub dump: Option<PathBuf>,
    /// Total wall time.
    pub total: Duration,
}
