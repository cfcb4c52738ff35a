//! Options of a compilation.
use crate::{CancellationToken, Schedules, Target, driver::user_passes::UserPasses};
use kiln_runtime::cache::Store;
use std::path::Path;

/// Options of a compilation.
pub struct CompileOptions<'a> {
    /// The target.
    pub target: Target,
    /// Number of compiling threads.
    pub workers: usize,
    /// The persistent object cache.
    pub cache: Option<&'a Store>,
    /// Runs MLIR's verifier after every pass.
    pub verify: bool,
    /// Cancellation token.
    pub cancellation: CancellationToken,
    /// Debugging options.
    pub debug: Debug<'a>,
    /// Autotuned schedules of kernels.
    pub schedules: &'a Schedules,
    /// Identifies the compiler's build in the cache keys.
    pub salt: &'a str,
    /// Progress callback: kernels done, kernels in all.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
    /// Called with the symbol and code of each kernel, by the thread that compiled it.
    pub on_kernel: &'a (dyn Fn(&str, &[u8]) + Sync),
}

/// Debugging options: passes to skip or add, and files to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debug<'a> {
    /// Flags of passes that are skipped.
    pub disable: &'a [String],
    /// User passes that run in addition to those of the table.
    pub user_passes: &'a [UserPasses],
    /// Folder for reproducers (IR and pipeline) of failing passes.
    pub reproducer: Option<&'a Path>,
    /// Folder for IR dumps: `graph/` after every pass on the whole graph, and in `kernels/` each
    /// kernel as a program of its own and after every pass.
    pub dump: Option<&'a Path>,
}
