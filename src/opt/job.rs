//! One input from text to output: parse, run passes, print or execute; per part of a split input.
use super::{
    OptError,
    cli::Cli,
    console::Console,
    diagnostics::{self, InputPart},
    execute,
    isolate::{ProgressPage, Stage, reproducer_path},
    passes,
    report::{self, IrPrinter, Times},
};
use crate::{
    Exit,
    capture::pt2,
    dialects::{
        ir::{Attr, Context, Ctx, Diagnostic, Module, ParseError},
        rules::{LEVELS, Level},
    },
    lowering::{
        self, Chip, PassError, RunOptions,
        driver::{
            manager::{self, Moment, split_reproducer},
            reproducer::reproducer_line,
            table,
        },
        run_pipeline,
    },
    passes::{names, pass},
};
use std::{path::Path, time::Instant};

/// Names of the supported targets.
fn targets() -> Vec<String> {
    std::iter::once("host".to_string())
        .chain(Chip::ALL.iter().map(|c| format!("cuda:{}", c.name())))
        .collect()
}

/// The GPU architecture of a target name; `None` for host targets.
fn chip(target: &str) -> Option<Chip> {
    Chip::ALL.into_iter().find(|c| target.strip_prefix("cuda:") == Some(c.name()))
}

/// A unit of work.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The command line.
    pub cli: &'a Cli,
    /// The input's name in diagnostics.
    pub name: &'a str,
    /// All of the input.
    pub source: &'a [u8],
    /// Progress board of crash isolation.
    pub progress_page: ProgressPage,
}

/// Why a part stopped.
enum PartError {
    /// An error that is not a diagnostic.
    Error(OptError),
    /// Diagnostics, which `--verify-diagnostics` may expect; otherwise the exit code, and further
    /// messages.
    Reported(Vec<Diagnostic>, Exit, String),
}

impl From<OptError> for PartError {
    fn from(e: OptError) -> PartError {
        PartError::Error(e)
    }
}

/// Runs the job. Output is written only once it is complete.
pub fn run(job: &Job<'_>, console: &Console) -> Result<Exit, OptError> {
    let cli = job.cli;
    let targets = targets();
    if let Some(t) = cli.target.as_ref().filter(|t| !targets.contains(t)) {
        let hint = names::hint(t, targets.iter().map(String::as_str));
        return Err(OptError::usage(format!(
            "there is no target '{t}'{hint} (targets: {})",
            targets.join(", ")
        )));
    }
    for row in table::passes()
        .iter()
        .filter(|p| p.required && cli.disable_pass.iter().any(|d| d == p.flag))
    {
        console.err(
            format!("warning: {} is required; without it later passes may fail\n", row.flag)
                .as_bytes(),
        );
    }
    let text = std::str::from_utf8(job.source)
        .ok()
        .filter(|_| !job.source.starts_with(crate::dialects::ir::BYTECODE_MAGIC));
    let parts = match text {
        Some(text) => diagnostics::parts(text, cli.split_input_file),
        None if cli.split_input_file || cli.verify_diagnostics || cli.run_reproducer => {
            return Err(OptError::usage(format!(
                "{}: is not text, which these options need",
                job.name
            )));
        }
        None => vec![],
    };
    if cli.emit_bytecode && (parts.len() > 1 || (cli.output.is_none() && console.is_terminal())) {
        return Err(OptError::usage(
            "--emit-bytecode writes one module, and not to a terminal (-o FILE)",
        ));
    }
    let (mut outputs, mut times, mut exit) = (vec![], Times::default(), Exit::Success);
    let whole = [InputPart { text: "", lines_before: 0 }];
    for (i, part) in if text.is_some() { &parts[..] } else { &whole[..] }.iter().enumerate() {
        job.progress_page.part(i);
        let bytes = if text.is_some() { part.padded() } else { job.source.to_vec() };
        let done = process_part(job, console, &bytes, &mut outputs, &mut times);
        let ended = if cli.verify_diagnostics {
            verify(job, console, part, done)?
        } else {
            print_diagnostics(job, console, done)?
        };
        exit = if exit == Exit::Success { ended } else { exit };
    }
    if let Some(form) = cli.mlir_timing {
        console.err(times.text(form).as_bytes());
    }
    let output = outputs.join(&b"// -----\n"[..]);
    match &cli.output {
        _ if cli.verify_diagnostics => {}
        Some(path) if path != Path::new("-") => {
            if matches!(exit, Exit::Success | Exit::CheckFailed) {
                std::fs::write(path, output).map_err(|e| OptError::file(path, e))?;
            }
        }
        _ => console.out(&output),
    }
    Ok(exit)
}

/// Prints the diagnostics of a part.
fn print_diagnostics(
    job: &Job<'_>,
    console: &Console,
    done: Result<(Exit, Vec<Diagnostic>), PartError>,
) -> Result<Exit, OptError> {
    let (all, exit, more) = match done {
        Ok((exit, all)) => (all, exit, String::new()),
        Err(PartError::Reported(all, exit, more)) => (all, exit, more),
        Err(PartError::Error(e)) => {
            console.error(&e.message);
            return Ok(e.exit);
        }
    };
    all.iter().for_each(|d| console.err(report::diagnostic(d, job.name, job.source).as_bytes()));
    console.err(more.as_bytes());
    Ok(exit)
}

/// Checks the diagnostics of a part against its comments.
fn verify(
    job: &Job<'_>,
    console: &Console,
    part: &InputPart<'_>,
    done: Result<(Exit, Vec<Diagnostic>), PartError>,
) -> Result<Exit, OptError> {
    let reported = match done {
        Ok((_, all)) | Err(PartError::Reported(all, ..)) => all,
        Err(PartError::Error(e)) => return Err(e),
    };
    let wrong = diagnostics::compare(job.name, diagnostics::expectations(part)?, &reported);
    wrong.iter().for_each(|w| console.err(format!("{w}\n").as_bytes()));
    Ok(if wrong.is_empty() { Exit::Success } else { Exit::CheckFailed })
}

/// Processes one part: the exit code and all diagnostics.
fn process_part(
    job: &Job<'_>,
    console: &Console,
    source: &[u8],
    outputs: &mut Vec<Vec<u8>>,
    times: &mut Times,
) -> Result<(Exit, Vec<Diagnostic>), PartError> {
    let (cli, progress_page) = (job.cli, job.progress_page);
    progress_page.enter(Stage::Reading, "");
    let start = Instant::now();
    let mut stored = None;
    let mut ir = source;
    if cli.run_reproducer {
        let text = std::str::from_utf8(source).unwrap_or("");
        let found = split_reproducer(text);
        let (module, pipeline) = found.ok_or_else(|| {
            OptError::usage(format!(
                "{}: holds no pipeline; a reproducer ends in {{-# … #-}}",
                job.name
            ))
        })?;
        (ir, stored) = (module.as_bytes(), Some(pipeline));
    }
    let context = Context::new();
    let ctx = context.ctx();
    ctx.allow_unregistered(cli.allow_unregistered_dialect);
    let (module, mut reported) = read(job, ctx, ir)?;
    times.parse += start.elapsed().as_secs_f64();

    progress_page.enter(Stage::Pipeline, "");
    if let Some(target) = &cli.target {
        module.op().set_attr("kiln.target", Attr::string(ctx, target));
    }
    if let Some(pipeline) = pipeline(cli, ctx, &module, stored)? {
        reported.extend(run_passes(job, console, &module, &pipeline, times)?);
    }

    let start = Instant::now();
    let mut exit = Exit::Success;
    if cli.execute {
        progress_page.enter(Stage::Executing, "");
        let folder = cli.input.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let (ended, text) = execute::run(cli, &module, folder)?;
        exit = ended;
        outputs.push(text.into_bytes());
    } else {
        progress_page.enter(Stage::Printing, "");
        outputs.push(if cli.emit_bytecode { module.bytecode() } else { printed(cli, &module) });
    }
    times.output += start.elapsed().as_secs_f64();
    Ok((exit, reported))
}

/// Parses text, kiln bytecode, or an archive of torch.export.save.
fn read(job: &Job<'_>, ctx: Ctx, source: &[u8]) -> Result<(Module, Vec<Diagnostic>), PartError> {
    if source.starts_with(pt2::MAGIC) {
        let path = job.cli.input.as_deref().ok_or_else(|| {
            OptError::usage("an archive is read from a file, not from standard input")
        })?;
        let captured = pt2::import(ctx, path)
            .map_err(|e| OptError { exit: e.exit(), message: format!("error: {e}") })?;
        return Ok((captured.module, vec![]));
    }
    Module::parse(ctx, source, job.name).map_err(|e| match e {
        ParseError::Diagnostics(all) if all.is_empty() => PartError::Error(OptError::usage(
            format!("{}: MLIR refused it without a reason", job.name),
        )),
        ParseError::Diagnostics(all) => PartError::Reported(all, Exit::Usage, String::new()),
        e => PartError::Error(OptError::usage(format!("error: {e}"))),
    })
}

fn printed(cli: &Cli, module: &Module) -> Vec<u8> {
    let text = module.print(report::print_options(cli));
    format!("{}\n", text.trim_end()).into_bytes()
}

/// The pipeline of the command line or of the reproducer; `None` if there is nothing to run.
fn pipeline(
    cli: &Cli,
    ctx: Ctx,
    module: &Module,
    stored: Option<String>,
) -> Result<Option<String>, OptError> {
    if stored.is_some() {
        return Ok(stored);
    }
    if let Some(text) = &cli.pass_pipeline {
        return Ok(Some(text.clone()));
    }
    if let Some(to) = &cli.to {
        let to = level(to)?;
        let has = pass::level_of(module.op());
        let from = match (&cli.from, has) {
            (Some(from), _) => level(from)?,
            (None, has) => has.unwrap_or(Level::Graph),
        };
        if let Some(has) = has.filter(|h| *h != from) {
            return Err(OptError::usage(format!(
                "--from={} is given, but the module is on level {}",
                from.name(),
                has.name()
            )));
        }
        module.op().set_attr("kiln.level", Attr::string(ctx, from.name()));
        let target = cli
            .target
            .clone()
            .or_else(|| module.op().attr("kiln.target").and_then(Attr::as_string))
            .unwrap_or_default();
        return lowering::pipeline_text(from, to, chip(&target))
            .map(Some)
            .map_err(|e| OptError::usage(e.message));
    }
    if cli.passes.is_empty() {
        return Ok(None);
    }
    passes::pipeline(ctx, &cli.passes).map(Some)
}

fn level(name: &str) -> Result<Level, OptError> {
    let names = || LEVELS.iter().map(|l| l.name());
    Level::from_name(name).ok_or_else(|| {
        let hint = names::hint(name, names());
        OptError::usage(format!(
            "there is no level '{name}'{hint} (levels: {}; --list-levels)",
            names().collect::<Vec<_>>().join(", ")
        ))
    })
}

/// Runs a pipeline; returns its warnings and remarks.
fn run_passes(
    job: &Job<'_>,
    console: &Console,
    module: &Module,
    pipeline: &str,
    times: &mut Times,
) -> Result<Vec<Diagnostic>, PartError> {
    let cli = job.cli;
    job.progress_page.pipeline(pipeline);
    if cli.dump_pass_pipeline {
        let manager = manager::parse(module.op().ctx(), pipeline)
            .map_err(|e| OptError::usage(e.to_string()))?;
        console.err(format!("{}\n", manager.text()).as_bytes());
    }
    let (print_before, print_after) = report::selections(cli);
    let options = RunOptions {
        bisect_limit: cli.bisect_limit,
        disable: cli.disable_pass.clone(),
        dump: cli.dump_dir.clone(),
        reproducer: (!cli.verify_diagnostics)
            .then(|| cli.reproducer.clone().unwrap_or_else(reproducer_path)),
        print_before,
        print_after,
        skip_verifier: !cli.verify_each,
        ..Default::default()
    };
    let printer = IrPrinter::new(cli, console);
    let watch = |moment: Moment, flag: &str, op| match moment {
        Moment::Enter => {
            job.progress_page.enter(Stage::Pass, flag);
            printer.enter();
        }
        Moment::Before => printer.print("Before", flag, op),
        Moment::After => printer.print("After", flag, op),
    };
    let report = run_pipeline(module, pipeline, &options, &watch).map_err(|e| match e {
        PassError::Pipeline(_) | PassError::Io { .. } | PassError::Cancelled(_) => {
            PartError::Error(OptError::usage(e.to_string()))
        }
        PassError::Failed { pass, diagnostics, reproducer } => {
            let path = reproducer.map_or(String::new(), |p| reproducer_line(&p) + "\n");
            PartError::Reported(diagnostics, Exit::Failed, format!("error: {pass} failed\n{path}"))
        }
    })?;
    printer.finish()?;
    if cli.bisect_limit.is_some() {
        for (i, run) in report.passes.iter().enumerate() {
            let word = if run.skipped { "skipped" } else { "ran" };
            console.err(
                format!("bisect: {word} {} {} on {}\n", i + 1, run.pass, run.anchor).as_bytes(),
            );
        }
    }
    if let Some(dump) = &report.dump {
        console.err(format!("dumps: {}\n", dump.display()).as_bytes());
    }
    times.add(&report);
    Ok(report.diagnostics)
}
