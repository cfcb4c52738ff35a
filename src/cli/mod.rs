//! The `kiln` binary: one file per subcommand, and what they share.
mod bench;
mod cache;
mod compile;
mod data;
mod debug;
mod explain;
mod inspect;
mod ops;
mod profile;
mod report;
mod run;
mod tune;

use crate::{
    Error, Exit, list_mode_options,
    lowering::Own,
    model::{CachePolicy, Options, Place},
    runtime::cuda::Mode,
};
use clap::{Parser, Subcommand};
use std::{path::PathBuf, time::Duration};

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
    /// Compiles a model, runs it, and says what was compiled
    Run(run::Run),
    /// Compiles a model to a package that runs without the compiler's front
    Compile(compile::Compile),
    /// Says what became one kernel, and why the rest did not
    Explain(explain::Explain),
    /// Finds the pass, the kernel and the op that make results wrong
    Bisect(debug::Bisect),
    /// Makes IR that fails smaller, as long as it fails
    Reduce(debug::Reduce),
    /// Leaves out each optional pass in turn: kernels, bytes, compile time, run time
    Ablate(debug::Ablate),
    /// Times calls, alone or taking turns with peers
    Bench(bench::Bench),
    /// Says what the cache of compiled code holds; clears, exports and imports it
    Cache(cache::Cache),
    /// Measures schedules of a model's kernels, and keeps the fastest in a table
    Tune(tune::Tune),
    /// Says what a compiled package holds
    Inspect(inspect::Inspect),
    /// Says what kiln finds on this machine
    Doctor(inspect::Doctor),
    /// Says which ops kiln captures
    Ops(ops::Ops),
}

/// Options that compile.
#[derive(clap::Args, Clone)]
struct Common {
    /// Threads of a call [default: KILN_NUM_THREADS, or all processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Threads that compile [default: all processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Where to run: cpu, cuda (the first NVIDIA GPU) or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    device: String,
    /// What to compile for, such as x86_64:haswell or cuda:sm_90a [default: the device]
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// A table of measured schedules, which `kiln tune` makes [default: KILN_AUTOTUNE_CACHE]
    #[arg(long, value_name = "FILE")]
    schedules: Option<File>,
    /// Passes beside those of the pipeline, on a level or behind a pass, such as 'prims: cse; kiln-fuse: canonicalize' [default: KILN_PASSES]
    #[arg(long, value_name = "PASSES")]
    passes: Option<String>,
    /// The function to compile
    #[arg(long, default_value = "main", value_name = "NAME")]
    function: String,
    /// Neither reads nor writes the cache of compiled code
    #[arg(long)]
    no_cache: bool,
}

/// Options that say how much is done for speed.
#[derive(clap::Args, Clone)]
struct Calling {
    /// What is done for speed: max-autotune measures schedules while compiling, and it and reduce-overhead launch kernels on a GPU as a CUDA graph
    #[arg(long, default_value = "default", value_name = "MODE", value_parser = clap::builder::PossibleValuesParser::new(mode_names()))]
    mode: String,
    /// Seconds that max-autotune may measure [default: KILN_AUTOTUNE_BUDGET, or 60]
    #[arg(long, value_name = "S")]
    autotune_budget: Option<f64>,
}

fn mode_names() -> Vec<&'static str> {
    list_mode_options().into_iter().map(|(name, _)| name).collect()
}

impl Calling {
    /// What the environment and the command line say.
    fn options(&self, common: &Common) -> Result<Options, Stop> {
        let mut options = common.options()?;
        let sets = list_mode_options().into_iter().find(|(name, _)| *name == self.mode).map_or(&[][..], |(_, sets)| sets);
        let on = |name: &str| sets.contains(&(name, "true"));
        options.max_autotune = on("max_autotune");
        // On the host a program is one parallel region already; only who asks for nothing but graphs is told that there are none.
        if on("cudagraphs") && !(options.max_autotune && options.device == Place::Host) {
            options.mode = Mode::ReduceOverhead;
        }
        if let Some(s) = self.autotune_budget {
            options.autotune_budget = seconds("--autotune-budget", s)?;
        }
        Ok(options)
    }
}

/// A number of seconds. Err: it is none.
fn seconds(name: &str, s: f64) -> Result<Duration, Stop> {
    Duration::try_from_secs_f64(s).map_err(|e| Stop::usage(format!("{name} {s}: {e}")))
}

/// Why a command ends early.
struct Stop {
    exit: Exit,
    message: String,
}

impl Stop {
    fn usage(message: impl Into<String>) -> Stop {
        Stop { exit: Exit::Usage, message: message.into() }
    }
}
impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop { exit: e.exit(), message: e.to_string() }
    }
}
impl From<crate::runtime::CallError> for Stop {
    fn from(e: crate::runtime::CallError) -> Stop {
        Error::Call(e).into()
    }
}

impl Common {
    fn options(&self) -> Result<Options, Stop> {
        let mut options = Options::from_env().map_err(Stop::usage)?;
        options.function = self.function.clone();
        options.target = self.target.clone();
        options.device = Place::parse(&self.device).map_err(Stop::usage)?;
        if let Some(n) = self.threads {
            options.threads = n.into();
        }
        if let Some(n) = self.workers {
            options.workers = n.into();
        }
        if self.schedules.is_some() {
            options.schedules = self.schedules.clone();
        }
        if let Some(text) = &self.passes {
            options.passes = Own::parse(text).map_err(Stop::usage)?;
        }
        if self.no_cache {
            options.cache = CachePolicy::Off;
        }
        Ok(options)
    }
}

/// Shows how far a long compilation is, on a terminal only.
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

/// Shows how far measuring is, on a terminal only.
fn measuring() -> impl Fn(usize, usize, &str) + Send + Sync {
    let bar = indicatif::ProgressBar::new(0);
    if let Ok(style) = indicatif::ProgressStyle::with_template("measuring schedules {bar:40} {pos}/{len} {msg}") {
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

/// Runs the command line.
pub fn main() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { Exit::Usage } else { Exit::Done };
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
    };
    outcome.unwrap_or_else(|stop| {
        eprintln!("error: {}", stop.message);
        stop.exit
    })
}

/// A path as an argument.
type File = PathBuf;
