//! Report of a pipeline run: one row per pass run, and its tables.
use kiln_dialects::ir::{Diagnostic, Severity};
use kiln_runtime::program::PassRemark;
use std::path::PathBuf;

/// One run of a pass on one op.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PassRun {
    /// The pass's flag.
    pub pass: String,
    /// Name of the op it ran on.
    pub anchor: String,
    /// Wall time in seconds, without verification.
    pub seconds: f64,
    /// Op count of the anchor, itself included, before the pass.
    pub ops_before: usize,
    /// Op count after the pass.
    pub ops_after: usize,
    /// Skipped by bisection or by name.
    pub skipped: bool,
}

/// Report of a run.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// The pipeline with every option.
    pub pipeline: String,
    /// Every pass run, in order.
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

/// The remarks among diagnostics: what passes did or missed, in their order.
pub fn pass_remarks(diagnostics: &[Diagnostic]) -> Vec<PassRemark> {
    let remarks = diagnostics.iter().filter(|d| d.severity == Severity::Remark);
    let remark = |d: &Diagnostic| PassRemark {
        text: d.message.clone(),
        source: match &d.location {
            Some((file, line, _)) => format!("{file}:{line}"),
            None => d.locations.first().map_or("", |name| name.trim_matches('"')).into(),
        },
    };
    remarks.map(remark).collect()
}
