//! What a run of a pipeline did: one row per pass run, and the tables made of them.
use kiln_dialects::ir::Diagnostic;
use std::{path::PathBuf, time::Duration};

/// One pass on one op.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PassRun {
    /// The flag.
    pub pass: String,
    /// The name of the op it ran on.
    pub anchor: String,
    /// Wall time in seconds, without verification.
    pub seconds: f64,
    /// Ops below the anchor, itself included, before.
    pub ops_before: usize,
    /// And after.
    pub ops_after: usize,
    /// Skipped by bisection or by name.
    pub skipped: bool,
}

/// What a run did.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// The pipeline with every option.
    pub pipeline: String,
    /// Every pass in the order of running.
    pub passes: Vec<PassRun>,
    /// Wall time in seconds of the whole run.
    pub seconds: f64,
    /// Warnings and remarks.
    #[serde(skip)]
    pub diagnostics: Vec<Diagnostic>,
    /// The folder with the dumps.
    pub dump: Option<PathBuf>,
}

impl Report {
    /// The time of all runs of each pass, in the order of first running.
    pub fn by_pass(&self) -> Vec<(String, Duration, usize)> {
        let mut rows: Vec<(String, Duration, usize)> = vec![];
        for run in self.passes.iter().filter(|r| !r.skipped) {
            let time = Duration::from_secs_f64(run.seconds);
            match rows.iter_mut().find(|r| r.0 == run.pass) {
                Some(row) => {
                    row.1 += time;
                    row.2 += 1;
                }
                None => rows.push((run.pass.clone(), time, 1)),
            }
        }
        rows
    }
    /// A table of times and op counts, one line a pass run.
    pub fn table(&self) -> String {
        let mut s = format!("{:>10}  {:>6}  {:>6}  pass\n", "ms", "before", "after");
        for r in &self.passes {
            let note = if r.skipped { " (skipped)" } else { "" };
            s += &format!("{:>10.3}  {:>6}  {:>6}  {} on {}{note}\n", r.seconds * 1e3, r.ops_before, r.ops_after, r.pass, r.anchor);
        }
        s + &format!("{:>10.3}  {:>6}  {:>6}  total, verification included\n", self.seconds * 1e3, "", "")
    }
}
