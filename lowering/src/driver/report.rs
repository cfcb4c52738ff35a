//! What a run of a pipeline did: one row per pass run, and the tables made of them.
use kiln_dialects::ir::Diagnostic;
use std::path::PathBuf;

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
    /// A table of times and op counts, one line a pass run.
    pub fn table(&self) -> String {
        let mut s = format!("{:>10}  {:>6}  {:>6}  pass\n", "ms", "before", "after");
        for r in &self.passes {
            let note = if r.skipped { " (skipped)" } else { "" };
            s += &format!(
                "{:>10.3}  {:>6}  {:>6}  {} on {}{note}\n",
                r.seconds * 1e3,
                r.ops_before,
                r.ops_after,
                r.pass,
                r.anchor
            );
        }
        s + &format!(
            "{:>10.3}  {:>6}  {:>6}  total, verification included\n",
            self.seconds * 1e3,
            "",
            ""
        )
    }
}
