//! The `kiln` command: one file per subcommand, and their shared options.
mod bench;
mod cache;
mod compile;
mod data;
mod debug;
mod explain;
mod inspect;
mod ops;
mod options;
mod profile;
mod report;
mod run;
mod terminal;
mod tune;

use crate::{
    Error, Exit,
    compile::Settings,
    list_mode_options,
    lowering::UserPasses,
    model::{CachePolicy, DeviceId, Options},
    runtime::pool::MAX_THREADS,
};
use clap::{Parser, Subcommand};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Compiles tensor graphs to machine code, and runs them.
#[derive(Parser)]
#[command(name = "kiln", version, after_help = exit_codes())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn exit_codes() -> String {
    format!("Exit codes:\n{}", Exit::table())
}

#[derive(Subcommand)]
enum Command {
    /// Compiles a model, runs it, and reports kernels and times
    Run(run::Run),
    /// Compiles a model ahead of time to a package
    Compile(compile::Compile),
    /// Reports which ops were fused into each kernel, and why others were not
    Explain(explain::Explain),
    /// Finds the pass, the kernel and the op that miscompile a model
    Bisect(debug::Bisect),
    /// Reduces failing IR to a minimal test case
    Reduce(debug::Reduce),
    /// Disables each optional pass in turn: kernels, bytes, compile time, run time
    Ablate(debug::Ablate),
    /// Times calls, alone or in alternation with other implementations
    Bench(bench::Bench),
    /// Inspects, clears, exports and imports the compile cache
    Cache(cache::Cache),
    /// Autotunes the schedules of a model's kernels, and keeps the fastest in a table
    Tune(tune::Tune),
    /// Prints the contents of a compiled package
    Inspect(inspect::Inspect),
    /// Checks this machine: processor, GPU, driver, libraries and cache
    Doctor(inspect::Doctor),
    /// Prints the table of ATen overloads that kiln captures
    Ops(ops::Ops),
    /// Lists all options, and how to set each
    Options(options::List),
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Generic `--option NAME=VALUE` flags; see `kiln options`.
#[derive(clap::Args, Clone)]
struct OptionFlags {
    /// Sets an option of `kiln options`, such as cache_dir=off; repeatable. Dedicated flags take
    /// precedence
    #[arg(long = "option", value_name = "NAME=VALUE", global = true)]
    all: Vec<String>,
}

impl OptionFlags {
    /// Settings from the environment, overridden by `--option`.
    fn settings(&self) -> Result<Settings, CliError> {
        let mut settings = Settings::from_env()?;
        // On by default here: a command that fails in a pass writes a reproducer.
        if std::env::var_os("KILN_REPRODUCER").is_none_or(|v| v.is_empty()) {
            settings.options.reproducer = Some(std::env::temp_dir());
        }
        for text in &self.all {
            let (name, value) = text.split_once('=').ok_or_else(|| {
                CliError::usage(format!("--option {text}: that is not NAME=VALUE"))
            })?;
            settings
                .set_for_file(name, value)?
                .iter()
                .for_each(|remark| eprintln!("remark: {remark}"));
        }
        Ok(settings)
    }
}

/// Options of commands that compile.
#[derive(clap::Args, Clone)]
struct Common {
    /// Threads that run a call [default: KILN_NUM_THREADS, or all processors]
    #[arg(long, value_name = "N", value_parser = threads())]
    threads: Option<u16>,
    /// Threads that compile [default: KILN_COMPILE_THREADS, or all processors]
    #[arg(long, value_name = "N", value_parser = threads())]
    workers: Option<u16>,
    /// Device to run on: cpu, cuda (the first NVIDIA GPU) or cuda:N [default: KILN_DEVICE, or cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Target to compile for, such as x86_64:haswell or cuda:sm_90a [default: KILN_TARGET, or the
    /// device]
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Table of measured schedules, written by `kiln tune` [default: KILN_AUTOTUNE_CACHE]
    #[arg(long, value_name = "FILE")]
    schedules: Option<File>,
    /// User passes, inserted at a level or after a pass, such as 'prims: cse; kiln-fuse:
    /// canonicalize' [default: KILN_PASSES]
    #[arg(long, value_name = "PASSES")]
    passes: Option<String>,
    /// The function to compile
    #[arg(long, default_value = "main", value_name = "NAME")]
    function: String,
    /// Disables the compile cache
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    option_flags: OptionFlags,
}

/// At most as many as a thread pool supports.
fn threads() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=MAX_THREADS as i64)
}

/// Options of the optimisation mode.
#[derive(clap::Args, Clone)]
struct ModeOptions {
    /// Optimisation mode: max-autotune measures schedules while compiling; it and reduce-overhead
    /// launch kernels on a GPU as a CUDA graph [default: KILN_MODE, or default]
    #[arg(long, value_name = "MODE", value_parser = clap::builder::PossibleValuesParser::new(mode_names()))]
    mode: Option<String>,
    /// Time budget of max-autotune in seconds [default: KILN_AUTOTUNE_BUDGET, or 60]
    #[arg(long, value_name = "S")]
    autotune_budget: Option<f64>,
}

fn mode_names() -> Vec<&'static str> {
    list_mode_options().into_iter().map(|(name, _)| name).collect()
}

impl ModeOptions {
    /// Options from the environment and the command line.
    fn options(&self, common: &Common) -> Result<Options, CliError> {
        let mut settings = common.settings()?;
        if let Some(mode) = &self.mode {
            settings.set_mode(mode)?;
        }
        if let Some(s) = self.autotune_budget {
            settings.options.autotune_budget = seconds("--autotune-budget", s)?;
        }
        Ok(settings.for_file())
    }
}

/// Parses a duration in seconds. Err: not a valid number.
fn seconds(name: &str, s: f64) -> Result<Duration, CliError> {
    Duration::try_from_secs_f64(s).map_err(|e| CliError::usage(format!("{name} {s}: {e}")))
}

/// Why a command stops early, with its exit code.
struct CliError {
    exit: Exit,
    message: String,
}

impl CliError {
    fn usage(message: impl Into<String>) -> CliError {
        CliError { exit: Exit::Usage, message: message.into() }
    }
}
impl From<Error> for CliError {
    fn from(e: Error) -> CliError {
        CliError { exit: e.exit(), message: e.to_string() }
    }
}
impl From<crate::runtime::CallError> for CliError {
    fn from(e: crate::runtime::CallError) -> CliError {
        Error::Call(e).into()
    }
}

impl Common {
    /// Settings from the environment, overridden by `--option`, then by dedicated flags.
    fn settings(&self) -> Result<Settings, CliError> {
        let mut settings = self.option_flags.settings()?;
        let options = &mut settings.options;
        options.function = self.function.clone();
        if let Some(text) = &self.device {
            options.device = DeviceId::parse(text).map_err(CliError::usage)?;
        }
        options.target = self.target.clone().or(options.target.take());
        if let Some(n) = self.threads {
            options.threads = n.into();
        }
        if let Some(n) = self.workers {
            options.workers = n.into();
        }
        options.schedules = self.schedules.clone().or(options.schedules.take());
        if let Some(text) = &self.passes {
            options.passes = UserPasses::parse(text).map_err(CliError::usage)?;
        }
        options
            .passes
            .iter()
            .try_for_each(UserPasses::check)
            .map_err(|e| CliError::usage(e.to_string()))?;
        if self.no_cache {
            options.cache = CachePolicy::Off;
        }
        Ok(settings)
    }
    fn options(&self) -> Result<Options, CliError> {
        Ok(self.settings()?.for_file())
    }
    /// Options of commands that compare many programs: no autotuning, and no reproducers, since
    /// failures are expected.
    fn options_for_comparison(&self) -> Result<Options, CliError> {
        Ok(Options { max_autotune: false, reproducer: None, ..self.options()? })
    }
    /// Arguments that make a child process compile alike, except for the cache and reproducers.
    fn arguments(&self) -> Vec<OsString> {
        let flags: [(&str, Option<OsString>); 7] = [
            ("--threads", self.threads.map(|n| n.to_string().into())),
            ("--workers", self.workers.map(|n| n.to_string().into())),
            ("--device", self.device.as_ref().map(Into::into)),
            ("--target", self.target.as_ref().map(Into::into)),
            ("--schedules", self.schedules.as_ref().map(Into::into)),
            ("--passes", self.passes.as_ref().map(Into::into)),
            ("--function", Some((&self.function).into())),
        ];
        let option_flags = self
            .option_flags
            .all
            .iter()
            .map(String::as_str)
            .chain(["reproducer=off"])
            .map(|o| ("--option", Some(o.into())));
        flags
            .into_iter()
            .chain(option_flags)
            .filter_map(|(name, value)| Some([name.into(), value?]))
            .flatten()
            .collect()
    }
}

/// Progress of a long compilation; on a terminal only.
fn progress() -> impl Fn(usize, usize) + Sync {
    let bar = indicatif::ProgressBar::new(0).with_message("compiling kernels");
    let style = indicatif::ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    move |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        if done == total {
            bar.finish_and_clear();
        }
    }
}

/// Progress of autotuning; on a terminal only.
fn autotune_progress() -> impl Fn(usize, usize, &str) + Send + Sync {
    let bar = indicatif::ProgressBar::new(0);
    if let Ok(style) =
        indicatif::ProgressStyle::with_template("measuring schedules {bar:40} {pos}/{len} {msg}")
    {
        bar.set_style(style);
    }
    move |done, total, name| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message(name.to_string());
        if name.is_empty() {
            bar.finish_and_clear();
        }
    }
}

/// Runs the process's command line, for custom builds of `kiln`. Passes, backends and custom ops
/// registered before can be selected by `--passes` and `--option`.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     // kiln::passes::pass::register::<MyPass>() and the like come here.
///     kiln::cli::main().into()
/// }
/// ```
pub fn main() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { Exit::Usage } else { Exit::Success };
        }
    };
    if let Err(e) = crate::logs::init_from_env() {
        eprintln!("error: {e}");
        return e.exit();
    }
    let outcome = match cli.command {
        Command::Run(c) => c.run(),
        Command::Compile(c) => c.run(),
        Command::Explain(c) => c.run(),
        Command::Bisect(c) => c.run(),
        Command::Reduce(c) => c.run(),
        Command::Ablate(c) => c.run(),
        Command::Bench(c) => c.run(),
        Command::Cache(c) => c.run(),
        Command::Tune(c) => c.run(),
        Command::Inspect(c) => c.run(),
        Command::Doctor(c) => c.run(),
        Command::Ops(c) => c.run(),
        Command::Options(c) => c.run(),
        Command::Completions { shell } => {
            let mut command = <Cli as clap::CommandFactory>::command();
            clap_complete::generate(shell, &mut command, "kiln", &mut std::io::stdout());
            Ok(Exit::Success)
        }
    };
    outcome.unwrap_or_else(|stop| {
        eprintln!("error: {}", stop.message);
        stop.exit
    })
}

/// A path argument.
type File = PathBuf;
