//! The command line of kiln-opt: its own options, and one flag per pass.
use super::{
    OptError,
    passes::{self, PassUse},
};
use crate::{Exit, passes::names};
use clap::{
    ArgMatches, Command, CommandFactory, FromArgMatches, Parser, ValueEnum, error::ContextKind,
    error::ErrorKind,
};
use std::{ffi::OsString, path::PathBuf};

/// Reads MLIR, runs passes on it, and prints or executes it: mlir-opt for kiln's levels.
///
/// Passes run in the order of their flags: `--kiln-simplify --kiln-decompose="keep=softmax" --cse`.
/// Upstream passes have flags too, listed by --list-passes.
#[derive(Parser, Clone, Debug)]
#[command(name = "kiln-opt", version, disable_help_subcommand = true)]
pub struct Cli {
    /// Text, kiln bytecode, or an archive of torch.export.save (.pt2); stdin if - or omitted
    pub input: Option<PathBuf>,
    /// Output file; stdout if omitted
    #[arg(short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// A textual pipeline, such as builtin.module(kiln-simplify,func.func(cse))
    #[arg(long, value_name = "TEXT", help_heading = "What runs")]
    pub pass_pipeline: Option<String>,
    /// The level to start from; default: the module's own
    #[arg(long, value_name = "LEVEL", requires = "to", help_heading = "What runs")]
    pub from: Option<String>,
    /// The level to lower to
    #[arg(
        long,
        value_name = "LEVEL",
        conflicts_with = "pass_pipeline",
        help_heading = "What runs"
    )]
    pub to: Option<String>,
    /// The target, stored as kiln.target: host, or cuda:sm_80, cuda:sm_86, cuda:sm_89, cuda:sm_90a
    #[arg(long, value_name = "TARGET", help_heading = "What runs")]
    pub target: Option<String>,
    /// Take the pipeline from a reproducer
    #[arg(long, conflicts_with_all = ["pass_pipeline", "to"], help_heading = "What runs")]
    pub run_reproducer: bool,
    /// Run only the first N passes, for bisection; a pass nested on functions counts once per
    /// function
    #[arg(long, value_name = "N", help_heading = "What runs")]
    pub bisect_limit: Option<usize>,
    /// Skip every run of a pass
    #[arg(long, value_name = "FLAG", value_delimiter = ',', help_heading = "What runs")]
    pub disable_pass: Vec<String>,

    /// Process the parts between lines of // ----- separately
    #[arg(long, help_heading = "Input")]
    pub split_input_file: bool,
    /// Check diagnostics against expected-error and similar comments; print no IR
    #[arg(long, conflicts_with = "execute", help_heading = "Input")]
    pub verify_diagnostics: bool,
    /// Accept ops of unknown dialects
    #[arg(long, help_heading = "Input")]
    pub allow_unregistered_dialect: bool,
    /// Run in this process, which an MLIR crash then kills
    #[arg(long, help_heading = "Input")]
    pub no_isolate: bool,

    /// Run MLIR's verifier after every pass
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, help_heading = "Output")]
    pub verify_each: bool,
    /// Print locations
    #[arg(long, help_heading = "Output")]
    pub mlir_print_debuginfo: bool,
    /// Print the generic form
    #[arg(long, help_heading = "Output")]
    pub mlir_print_op_generic: bool,
    /// Write bytecode with kiln's checksum
    #[arg(long, conflicts_with = "execute", help_heading = "Output")]
    pub emit_bytecode: bool,
    /// Write the IR after every pass to NN-FLAG.mlir in a new folder inside this one
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub dump_dir: Option<PathBuf>,
    /// File for the reproducer of a failing run; default: a new file in the temporary folder
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub reproducer: Option<PathBuf>,
    /// Print the pipeline to stderr before it runs
    #[arg(long, help_heading = "Output")]
    pub dump_pass_pipeline: bool,
    /// Print the IR to stderr before these passes, or before all
    #[arg(long, value_name = "FLAG", num_args = 0..=1, require_equals = true, default_missing_value = "", value_delimiter = ',', help_heading = "Output")]
    pub mlir_print_ir_before: Vec<String>,
    /// Print the IR to stderr before every pass
    #[arg(long, help_heading = "Output")]
    pub mlir_print_ir_before_all: bool,
    /// Print the IR to stderr after these passes, or after all
    #[arg(long, value_name = "FLAG", num_args = 0..=1, require_equals = true, default_missing_value = "", value_delimiter = ',', help_heading = "Output")]
    pub mlir_print_ir_after: Vec<String>,
    /// Print the IR to stderr after every pass
    #[arg(long, help_heading = "Output")]
    pub mlir_print_ir_after_all: bool,
    /// Print IR to a tree of files in this folder instead of stderr; implies after every pass
    /// unless other passes are selected
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub mlir_print_ir_tree_dir: Option<PathBuf>,
    /// Print pass timings to stderr
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "table", help_heading = "Output")]
    pub mlir_timing: Option<Timing>,

    /// Run a function after the passes, and print its results instead of the IR
    #[arg(long, help_heading = "Execution")]
    pub execute: bool,
    /// Input tensors: input_0, input_1, …, or all tensors by name
    #[arg(long, value_name = "SAFETENSORS", requires = "execute", help_heading = "Execution")]
    pub inputs: Option<PathBuf>,
    /// Write the results as output_0, output_1, …
    #[arg(long, value_name = "SAFETENSORS", requires = "execute", help_heading = "Execution")]
    pub outputs: Option<PathBuf>,
    /// The function
    #[arg(
        long,
        value_name = "NAME",
        default_value = "main",
        requires = "execute",
        help_heading = "Execution"
    )]
    pub function: String,
    /// Rounding in the interpreter
    #[arg(
        long,
        value_name = "MODE",
        default_value = "rounded",
        requires = "execute",
        help_heading = "Execution"
    )]
    pub mode: Rounding,
    /// Values of globals, overriding the files that the module names; or the folder of these files,
    /// instead of the input's
    #[arg(long, value_name = "SAFETENSORS|DIR", requires = "execute", help_heading = "Execution")]
    pub weights: Option<PathBuf>,
    /// Compare results with output_0, output_1, … of the inputs' file
    #[arg(long, requires = "inputs", help_heading = "Execution")]
    pub check: bool,

    /// Print the passes
    #[arg(long, help_heading = "Lists")]
    pub list_passes: bool,
    /// Print the levels
    #[arg(long, help_heading = "Lists")]
    pub list_levels: bool,
    /// Print the dialects
    #[arg(long, help_heading = "Lists")]
    pub show_dialects: bool,
    /// Print completions for a shell
    #[arg(long, value_name = "SHELL", help_heading = "Lists")]
    pub completions: Option<Shell>,

    /// The passes, in the order of their flags.
    #[arg(skip)]
    pub passes: Vec<PassUse>,
}

/// Output format of timings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Timing {
    /// Human-readable.
    Table,
    /// Machine-readable.
    Json,
}

/// Rounding mode of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rounding {
    /// Floats stay f64
    Exact,
    /// Each op's result is rounded to its dtype, as in eager mode
    Rounded,
}

/// Shells with completion scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The clap command, with one flag per pass.
pub fn command() -> Command {
    let own = Cli::command()
        .after_help(format!("Exit codes:\n{}", Exit::table().trim_end()))
        .max_term_width(120);
    passes::add_flags(own)
}

/// Parses the command line. Err: the text to print and the exit code; `--help` is an "error" with
/// exit code 0.
pub fn parse(args: Vec<OsString>) -> Result<Cli, OptError> {
    let command = command();
    let args: Vec<OsString> = args.into_iter().map(|a| two_hyphens(a, &command)).collect();
    let matches = command.try_get_matches_from(args).map_err(explain)?;
    let passes = passes::in_order(&matches);
    let mut cli = of(&matches)?;
    let others = [
        ("--pass-pipeline", cli.pass_pipeline.is_some()),
        ("--to", cli.to.is_some()),
        ("--run-reproducer", cli.run_reproducer),
    ];
    if let (Some(first), Some((other, _))) = (passes.first(), others.iter().find(|o| o.1)) {
        return Err(OptError::usage(format!(
            "{other} and --{} both say what runs; give one of them",
            first.flag
        )));
    }
    let named =
        cli.disable_pass.iter().chain(&cli.mlir_print_ir_before).chain(&cli.mlir_print_ir_after);
    named.filter(|f| !f.is_empty()).try_for_each(|f| passes::known(f))?;
    cli.passes = passes;
    Ok(cli)
}

fn of(matches: &ArgMatches) -> Result<Cli, OptError> {
    Cli::from_arg_matches(matches).map_err(explain)
}

/// Accepts `-canonicalize` for `--canonicalize`, as mlir-opt does.
fn two_hyphens(arg: OsString, command: &Command) -> OsString {
    let Some(text) = arg.to_str() else { return arg };
    let Some(rest) = text.strip_prefix('-').filter(|r| r.len() > 1 && !r.starts_with('-')) else {
        return arg;
    };
    let name = rest.split('=').next().unwrap_or(rest);
    if command.get_arguments().any(|a| a.get_long() == Some(name)) {
        format!("-{text}").into()
    } else {
        arg
    }
}

/// clap's error; an unknown option gets the nearest option or pass as a suggestion.
fn explain(e: clap::Error) -> OptError {
    let exit = if e.use_stderr() { Exit::Usage } else { Exit::Success };
    if e.kind() == ErrorKind::UnknownArgument
        && let Some(arg) = e.get(ContextKind::InvalidArg)
    {
        let arg = arg.to_string();
        let name = arg.trim_start_matches('-').split('=').next().unwrap_or("");
        let command = command();
        let own = command.get_arguments().filter_map(|a| a.get_long());
        let near = names::nearest(name, own.chain(passes::all_passes().map(|p| p.flag)));
        let hint = near.map_or(String::new(), |n| format!("; did you mean '--{n}'?"));
        return OptError::usage(format!(
            "there is no option or pass '{arg}'{hint} (--help prints the options, --list-passes the passes)"
        ));
    }
    OptError { exit, message: e.to_string().trim_end().to_string() }
}
