//! The report of a compilation: times, counts, and diagnostics.
use crate::PassRun;
use kiln_dialects::ir::Diagnostic;
use kiln_runtime::cache::Remark;
use std::time::Duration;

/// Compile-time report.
#[derive(Clone, Debug, Default)]
pub struct CompileReport {
    /// Time of passes on the whole graph, down to `linalg`.
    pub graph: Duration,
    /// Wall time of all kernels.
    pub kernels: Duration,
    /// Time of the host function.
    pub host: Duration,
    /// Number of distinct kernels.
    pub kernel_count: usize,
    /// How many of them were cache hits.
    pub cached: usize,
    /// Time in passes, summed over the compiled kernels.
    pub kernel_passes: Duration,
    /// Time in LLVM, summed over the compiled kernels.
    pub kernel_code: Duration,
    /// Every pass by flag, in the order of their first runs.
    pub passes: Vec<PassTime>,
    /// Remarks of the cache.
    pub remarks: Vec<Remark>,
    /// Warnings and remarks of passes.
    pub diagnostics: Vec<Diagnostic>,
}

/// Total time of one pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassTime {
    /// The pass's flag.
    pub pass: String,
    /// Number of runs.
    pub runs: usize,
    /// Time of all runs; runs on kernels are summed over threads.
    pub time: Duration,
}

impl CompileReport {
    pub(super) fn add(&mut self, passes: &[PassRun]) {
        for run in passes.iter().filter(|r| !r.skipped) {
            let at = self.passes.iter().position(|p| p.pass == run.pass).unwrap_or_else(|| {
                self.passes.push(PassTime { pass: run.pass.clone(), ..Default::default() });
                self.passes.len() - 1
            });
            self.passes[at].runs += 1;
            self.passes[at].time += Duration::from_secs_f64(run.seconds);
        }
    }
}
