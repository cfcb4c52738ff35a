//! `kiln-opt` as a library: mlir-opt for kiln's levels.
//!
//! `main` reads the input, then forks. The child, whose standard error is captured in memory, runs
//! MLIR. The parent waits, and turns a crash into one error. Only this module and `console` print.
mod cli;
mod console;
mod diagnostics;
mod error;
mod execute;
mod isolate;
mod job;
mod report;
pub mod tensors;

pub mod passes;

pub use cli::{Cli, command};

use crate::{
    Exit,
    dialects::{ir::Context, rules::LEVELS},
    model::MAX_INPUT,
    runtime::file,
};
pub use error::OptError;

use console::Console;
use isolate::{Process, ProgressPage, Stage};
use std::{ffi::OsString, io::Read, path::Path};

/// MLIR's parser, printer and passes recurse; untouched stack pages cost nothing.
const STACK: usize = 256 << 20;

/// Runs kiln-opt on a command line that starts with the program name, for custom builds of the
/// tool. Passes registered before have flags and appear in `--list-passes`. With isolation (no
/// `--no-isolate`) it forks and returns in both processes, so `main` must do nothing after it.
///
/// ```no_run
/// # use kiln::{passes::{Failure, Numerics, Pass, pass}, dialects::{ir::Op, rules::Level}};
/// # kiln::passes::pass_options! { /// The pass.
/// #     pub struct Mine {} }
/// # impl Pass for Mine {
/// #     const FLAG: &'static str = "mine";
/// #     const SUMMARY: &'static str = "Does nothing";
/// #     const LEVELS: &'static [Level] = &[Level::Graph];
/// #     const NUMERICS: Numerics = Numerics::Exact;
/// #     fn run(&self, _: Op) -> Result<(), Failure> { Ok(()) }
/// # }
/// fn main() -> std::process::ExitCode {
///     pass::register::<Mine>().expect("a flag of its own");
///     kiln::opt::main(std::env::args_os().collect()).into()
/// }
/// ```
pub fn main(args: Vec<OsString>) -> Exit {
    let mut console = Console::standard();
    run(args, &mut console).unwrap_or_else(|e| {
        if e.exit == Exit::Success {
            console.out(format!("{e}\n").as_bytes());
        } else {
            console.error(&e.message);
        }
        e.exit
    })
}

fn run(args: Vec<OsString>, console: &mut Console) -> Result<Exit, OptError> {
    let cli = cli::parse(args)?;
    if let Some(text) = list(&cli) {
        console.out(&text);
        return Ok(Exit::Success);
    }
    let (name, source) = read(cli.input.as_deref())?;
    let progress_page =
        ProgressPage::new().map_err(|e| OptError::machine("no shared memory", e))?;
    if cli.no_isolate {
        return work(&cli, &name, &source, progress_page, console);
    }
    match isolate::fork().map_err(|e| OptError::machine("cannot start a process", e))? {
        Process::Child(theirs) => {
            *console = theirs;
            work(&cli, &name, &source, progress_page, console)
        }
        Process::Parent(child) => {
            let end =
                child.wait().map_err(|e| OptError::machine("cannot wait for a process", e))?;
            isolate::exit_code(end, &progress_page, &cli, &name, &source, console)
        }
    }
}

/// Processes one input, on a large stack.
fn work(
    cli: &Cli,
    name: &str,
    source: &[u8],
    progress_page: ProgressPage,
    console: &mut Console,
) -> Result<Exit, OptError> {
    progress_page.enter(Stage::Reading, "");
    crate::logs::init_from_env().map_err(|e| OptError::usage(e.to_string()))?;
    std::thread::scope(|scope| {
        let job = || job::run(&job::Job { cli, name, source, progress_page }, console);
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, job);
        let thread = thread.map_err(|e| OptError::machine("cannot start a thread", e))?;
        thread.join().unwrap_or_else(|p| {
            let message =
                format!("kiln-opt itself failed: {}", crate::dialects::ffi::panic_text(p));
            Err(OptError { exit: Exit::Failed, message })
        })
    })
}

/// Handles the options that only print a list.
fn list(cli: &Cli) -> Option<Vec<u8>> {
    if let Some(shell) = cli.completions {
        let (mut out, mut command) = (vec![], command());
        let shell = match shell {
            cli::Shell::Bash => clap_complete::Shell::Bash,
            cli::Shell::Zsh => clap_complete::Shell::Zsh,
            cli::Shell::Fish => clap_complete::Shell::Fish,
        };
        clap_complete::generate(shell, &mut command, "kiln-opt", &mut out);
        return Some(out);
    }
    let mut text = String::new();
    if cli.list_levels {
        LEVELS.iter().for_each(|l| text += &format!("{:<8}  {}\n", l.name(), l.summary()));
    }
    if cli.list_passes {
        text += &passes::list();
    }
    if cli.show_dialects {
        let context = Context::new();
        context.ctx().dialect_names().iter().for_each(|d| text += &format!("{d}\n"));
    }
    (!text.is_empty()).then(|| text.into_bytes())
}

/// Reads the input, and its name in diagnostics.
fn read(input: Option<&Path>) -> Result<(String, Vec<u8>), OptError> {
    let mut source = vec![];
    let stdin = input.is_none_or(|p| p == Path::new("-"));
    let (name, done) = match input {
        // The only device file that ends.
        Some(path) if path == Path::new("/dev/null") => (path.display().to_string(), Ok(0)),
        Some(path) if !stdin => {
            let read =
                file::open(path).and_then(|f| f.take(MAX_INPUT + 1).read_to_end(&mut source));
            (path.display().to_string(), read)
        }
        _ => ("<stdin>".to_string(), std::io::stdin().take(MAX_INPUT + 1).read_to_end(&mut source)),
    };
    done.map_err(|e| OptError::usage(format!("{name}: {e}")))?;
    if source.len() as u64 > MAX_INPUT {
        return Err(OptError::usage(format!("{name}: holds more than {MAX_INPUT} bytes")));
    }
    Ok((name, source))
}
