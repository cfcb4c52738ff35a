//! What a compilation is told, and why one fails.
use crate::{
    PassError, Schedules, Stop, Stopped, Target, cpu::llvm::codegen::CodeGenError,
    driver::user_passes::Own,
};
use kiln_runtime::cache::Store;
use std::path::Path;

/// How to compile.
pub struct CompileOptions<'a> {
    /// What to compile for.
    pub target: Target,
    /// Threads that compile.
    pub workers: usize,
    /// Where objects are kept between processes.
    pub cache: Option<&'a Store>,
    /// Runs MLIR's verifier after every pass.
    pub verify: bool,
    /// Ends it early.
    pub stop: Stop,
    /// For people who look at a compilation.
    pub debug: Debug<'a>,
    /// Schedules of kernels that were measured.
    pub schedules: &'a Schedules,
    /// Names the compiler's build in the keys of the cache.
    pub salt: &'a str,
    /// Told how many of how many kernels are done.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
    /// Told the symbol and the code of each kernel, by the thread that has made it.
    pub made: &'a (dyn Fn(&str, &[u8]) + Sync),
}

/// What is skipped, and what is written, for people who look at a compilation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debug<'a> {
    /// Flags of passes that do not run.
    pub disable: &'a [String],
    /// Passes that run beside those of the table.
    pub own: &'a [Own],
    /// A folder for IR and pipeline of a pass that fails.
    pub reproducer: Option<&'a Path>,
    /// A folder for IR: `graph/` after every pass on the whole graph, and below `kernels/` each
    /// kernel as a program of its own and after every pass.
    pub dump: Option<&'a Path>,
}

/// Why nothing came out.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A pass failed.
    #[error(transparent)]
    Pass(PassError),
    /// Somebody wanted it to end.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// LLVM failed.
    #[error("{kernel}: {error}")]
    Code {
        /// The kernel, or the host function.
        kernel: String,
        /// What LLVM said.
        error: CodeGenError,
    },
    /// Some ops have no form for the target: each with its place.
    #[error("{}", .0.join("\n"))]
    Unsupported(Vec<String>),
    /// The module is not what the compiler takes.
    #[error("{0}")]
    Module(String),
}

impl From<PassError> for CompileError {
    fn from(e: PassError) -> CompileError {
        match e {
            PassError::Stopped(why) => CompileError::Stopped(why),
            e => CompileError::Pass(e),
        }
    }
}
