//! Runs textual pipelines: diagnostics become errors, every pass is timed and counted, passes can
//! be bisected and disabled, IR is dumped.
use crate::driver::{
    cancellation::{CancellationError, CancellationToken},
    table,
};
pub use crate::driver::{
    report::{PassRun, Report, pass_remarks},
    reproducer::{reproducer_line, reproducer_of_text, reproducer_text, split_reproducer},
};
use kiln_dialects::{
    ffi::{Event, Events, Verdict, is_registered},
    ir::*,
    ops::UPSTREAM_PASSES,
};
use kiln_passes::{Kind, names};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Instant,
};

/// Options of a pipeline run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Only the first N passes run; a pass nested on functions counts once per function.
    pub bisect_limit: Option<usize>,
    /// Flags of passes that are skipped.
    pub disable: Vec<String>,
    /// Each run creates a folder in this one and dumps `NN-<flag>.mlir` after every pass.
    pub dump: Option<PathBuf>,
    /// Where the reproducer of a failing run is written.
    pub reproducer: Option<PathBuf>,
    /// Passes before which IR is passed to the printer.
    pub print_before: Selection,
    /// Passes after which IR is passed to the printer.
    pub print_after: Selection,
    /// Whether to skip MLIR's verifier after every pass.
    pub skip_verifier: bool,
    /// Cancellation token, polled before every pass.
    pub cancellation: CancellationToken,
}

/// A selection of passes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Selection {
    /// No pass.
    #[default]
    None,
    /// Every pass.
    All,
    /// The passes with these flags.
    Some(BTreeSet<String>),
}

impl Selection {
    fn has(&self, flag: &str) -> bool {
        match self {
            Selection::None => false,
            Selection::All => true,
            Selection::Some(flags) => flags.contains(flag),
        }
    }
}

/// Why a pipeline run failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PassError {
    /// The text does not parse as a pipeline.
    #[error("{0}")]
    Pipeline(String),
    /// A pass failed.
    #[error("{} failed\n{}{}", .pass, .diagnostics.iter().map(|d| d.to_string()).collect::<Vec<_>>().join("\n"),
        .reproducer.as_ref().map_or(String::new(), |p| format!("\n{}", reproducer_line(p))))]
    Failed {
        /// The flag of the pass.
        pass: String,
        /// All diagnostics of the run.
        diagnostics: Vec<Diagnostic>,
        /// The reproducer's path, if one was requested.
        reproducer: Option<PathBuf>,
    },
    /// The run was cancelled; the IR is as the last pass left it.
    #[error(transparent)]
    Cancelled(#[from] CancellationError),
    /// A dump or reproducer could not be written.
    #[error("{path}: {reason}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error message.
        reason: String,
    },
}

impl PassError {
    /// Whether a pass failed because valid IR has no form for the target.
    pub fn is_unsupported(&self) -> bool {
        let PassError::Failed { diagnostics, .. } = self else { return false };
        diagnostics.iter().any(|d| d.kind == Some(Kind::Unsupported))
    }
}

/// An event of a run that a [`Printer`] receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A pass is about to run; sent for every pass that is not skipped.
    Enter,
    /// As `Enter`, for passes in [`RunOptions::print_before`].
    Before,
    /// A pass has succeeded, for passes in [`RunOptions::print_after`].
    After,
}

/// Callback of a run: moment, flag, and the op to print.
pub type Printer<'a> = dyn Fn(Moment, &str, Op) + 'a;

struct Watch<'a> {
    options: &'a RunOptions,
    root: Op,
    dump: Option<PathBuf>,
    printer: &'a Printer<'a>,
    state: RefCell<WatchState>,
}

#[derive(Default)]
struct WatchState {
    runs: Vec<PassRun>,
    active: Vec<(usize, Instant)>,
    /// The op that the last pass ran on, and its op count.
    counted: Option<(Op, usize)>,
    current: Option<String>,
    failed: Option<String>,
    io: Option<(PathBuf, String)>,
    stopped: Option<CancellationError>,
}

impl Events for Watch<'_> {
    fn enter(&self, flag: &str, op: Op) -> Verdict {
        let mut s = self.state.borrow_mut();
        let nth = s.runs.len();
        let now = self.options.cancellation.check().err();
        s.stopped = s.stopped.or(now);
        let skipped = s.stopped.is_some()
            || self.options.bisect_limit.is_some_and(|n| nth >= n)
            || self.options.disable.iter().any(|d| d == flag);
        // Reuses the count after the last pass on the same op.
        let count =
            s.counted.filter(|(last, _)| *last == op).map_or_else(|| op_count(op), |(_, n)| n);
        s.runs.push(PassRun {
            pass: flag.into(),
            anchor: op.name(),
            seconds: 0.0,
            ops_before: count,
            ops_after: count,
            skipped,
        });
        if skipped {
            return Verdict::Skip;
        }
        (self.printer)(Moment::Enter, flag, op);
        if self.options.print_before.has(flag) {
            (self.printer)(Moment::Before, flag, op);
        }
        s.current = Some(flag.into());
        s.active.push((nth, Instant::now()));
        Verdict::Run
    }
    fn event(&self, flag: &str, op: Op, event: Event) {
        let mut s = self.state.borrow_mut();
        match event {
            Event::Left => {
                let Some((nth, start)) = s.active.pop() else { return };
                let (seconds, ops) = (start.elapsed().as_secs_f64(), op_count(op));
                s.counted = Some((op, ops));
                if let Some(run) = s.runs.get_mut(nth) {
                    run.seconds = seconds;
                    run.ops_after = ops;
                }
                s.current = None;
            }
            Event::Failed => s.failed = Some(flag.into()),
            // Instrumentation also reports passes that the handler skipped.
            Event::Succeeded if s.runs.last().is_some_and(|r| r.skipped && r.pass == flag) => {}
            Event::Succeeded => {
                if self.options.print_after.has(flag) {
                    (self.printer)(Moment::After, flag, op);
                }
                if let Some(dir) = &self.dump {
                    let path = dir.join(format!("{:02}-{flag}.mlir", s.runs.len()));
                    write(&mut s, path, &self.root);
                }
            }
        }
    }
}

fn write(s: &mut WatchState, path: PathBuf, op: &Op) {
    if let Err(e) = std::fs::write(
        &path,
        op.print(PrintOptions {
            debug_info: true,
            names_from_locations: true,
            ..Default::default()
        }),
    ) {
        s.io.get_or_insert((path, e.to_string()));
    }
}

/// Runs a pipeline `builtin.module(…)` on a module.
pub fn run_pipeline(
    module: &Module,
    pipeline: &str,
    options: &RunOptions,
    printer: &Printer<'_>,
) -> Result<Report, PassError> {
    let root = module.op();
    let manager = parse(root.ctx(), pipeline)?;
    manager.verify(!options.skip_verifier);
    let text = manager.text();
    let io =
        |path: &Path, e: std::io::Error| PassError::Io { path: path.into(), reason: e.to_string() };
    let dump = options.dump.as_deref().map(|d| new_folder(d).map_err(|e| io(d, e))).transpose()?;
    let before = options.reproducer.is_some().then(|| module.duplicate());
    let watch = Watch { options, root, dump: dump.clone(), printer, state: RefCell::default() };
    if let Some(dir) = &dump {
        write(&mut watch.state.borrow_mut(), dir.join("00-input.mlir"), &root);
    }
    let start = Instant::now();
    let (ok, diagnostics) = collect(root.ctx(), || manager.run(root, &watch));
    let seconds = start.elapsed().as_secs_f64();
    let state = watch.state.into_inner();
    if let Some(stopped) = state.stopped {
        return Err(stopped.into());
    }
    if !ok {
        let mut reproducer = None;
        if let (Some(before), Some(path)) = (before, &options.reproducer) {
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.and_then(|()| std::fs::write(path, reproducer_text(&before, &text)))
                .map_err(|e| io(path, e))?;
            reproducer = Some(path.clone());
        }
        let pass = state
            .failed
            .or(state.current)
            .or_else(|| state.runs.last().map(|r| r.pass.clone()))
            .unwrap_or_else(|| "the pipeline".into());
        return Err(PassError::Failed { pass, diagnostics, reproducer });
    }
    if let Some((path, reason)) = state.io {
        return Err(PassError::Io { path, reason });
    }
    Ok(Report { pipeline: text, passes: state.runs, seconds, diagnostics, dump })
}

fn new_folder(inside: &Path) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(inside)?;
    let mut n = 0u64;
    loop {
        match std::fs::create_dir(inside.join(format!("run-{n}"))) {
            Ok(()) => return Ok(inside.join(format!("run-{n}"))),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => n += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Parses a pipeline; the error for an unknown pass or option suggests the nearest name.
pub fn parse(ctx: Ctx, pipeline: &str) -> Result<PassManager, PassError> {
    table::register_all().map_err(|e| PassError::Pipeline(e.message))?;
    for name in pass_names(pipeline) {
        if !is_registered(&name) {
            let known =
                table::passes().iter().map(|p| p.flag).chain(UPSTREAM_PASSES.iter().map(|p| p.0));
            let hint = names::hint(&name, known);
            return Err(PassError::Pipeline(format!(
                "there is no pass '{name}'{hint} (kiln-opt --list-passes prints all)"
            )));
        }
    }
    let (parsed, diagnostics) = collect(ctx, || PassManager::parse(ctx, pipeline));
    parsed.map_err(|e| {
        let all: Vec<_> = std::iter::once(e.message)
            .chain(diagnostics.iter().map(|d| d.message.clone()))
            .filter(|s| !s.is_empty())
            .collect();
        let text = all.join("\n");
        let hint = option_hint(pipeline, &text);
        PassError::Pipeline(format!("the pipeline does not parse: {text}{hint}"))
    })
}

/// Names in pass position: those before `,`, `)`, `{` or the end, outside of options.
fn pass_names(pipeline: &str) -> Vec<String> {
    let (mut all, mut word, mut depth) = (vec![], String::new(), 0usize);
    for c in pipeline.chars().chain([',']) {
        match c {
            '{' | ',' | ')' if depth == 0 => {
                let name = word.trim();
                if !name.is_empty() {
                    all.push(name.to_string());
                }
                word.clear();
                depth += usize::from(c == '{');
            }
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            // A name before a parenthesis is an op name.
            '(' if depth == 0 => word.clear(),
            c if depth == 0 => word.push(c),
            _ => {}
        }
    }
    all
}

fn option_hint(pipeline: &str, error: &str) -> String {
    let Some(name) =
        error.split("no such option ").nth(1).and_then(|s| s.split_whitespace().next())
    else {
        return String::new();
    };
    let rows: Vec<_> = pass_names(pipeline)
        .iter()
        .filter_map(|p| table::find(p))
        .flat_map(|p| (p.options)())
        .collect();
    names::hint(name, rows.iter().map(|o| o.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_pass_position() {
        let text = "builtin.module(kiln-simplify{fold-limit=3},func.func(canonicalize{a={b,c} d=e}, cse ))";
        assert_eq!(pass_names(text), ["kiln-simplify", "canonicalize", "cse"]);
    }
}
