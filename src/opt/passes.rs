//! Pass flags: one per pass of kiln and of upstream, in command-line order; and `--list-passes`.
use super::OptError;
use crate::{
    dialects::{
        ffi::{is_registered, nest_of},
        ir::Ctx,
        ops::UPSTREAM_PASSES,
        rules::{LEVELS, Level},
    },
    lowering::driver::table::{self, register_all},
    passes::{PassRow, names, pass::registered_beside},
};
use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use std::fmt::Write;

/// kiln's passes, and those that a custom build has registered.
pub fn all_passes() -> impl Iterator<Item = &'static PassRow> {
    table::passes().iter().copied().chain(registered_beside(table::passes()))
}

/// A pass on the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct PassUse {
    /// The flag.
    pub flag: String,
    /// Its options, as `name=value name=value`.
    pub options: String,
}

impl PassUse {
    fn text(&self) -> String {
        if self.options.trim().is_empty() {
            self.flag.clone()
        } else {
            format!("{}{{{}}}", self.flag, self.options)
        }
    }
}

/// Adds a flag per pass to a command; kiln's have help, upstream's are hidden.
pub fn add_flags(mut command: Command) -> Command {
    let flag = |name: &'static str| {
        let arg = Arg::new(name).long(name).value_name("OPTIONS").action(ArgAction::Append);
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("")
            .help_heading("Passes, with their options as name=value")
    };
    let own: Vec<String> =
        command.get_arguments().filter_map(|a| a.get_long()).map(String::from).collect();
    for row in all_passes() {
        command = command.arg(flag(row.flag).help(summary(row)));
    }
    // An option of kiln-opt hides a pass of the same name; --pass-pipeline still reaches it.
    let free =
        |name: &str| !own.iter().any(|o| o == name) && all_passes().all(|row| row.flag != name);
    command
        .args(UPSTREAM_PASSES.iter().filter(|p| free(p.0)).map(|p| flag(p.0).help(p.1).hide(true)))
}

fn summary(row: &PassRow) -> String {
    let mut text = row.summary.to_string();
    for o in (row.options)() {
        let _ = write!(text, "\n  {}={}: {}", o.name, o.default, o.help);
    }
    text
}

/// The passes of a command line, in order.
pub fn in_order(matches: &ArgMatches) -> Vec<PassUse> {
    let flags = all_passes().map(|p| p.flag).chain(UPSTREAM_PASSES.iter().map(|p| p.0));
    let mut all: Vec<(usize, PassUse)> = vec![];
    for flag in flags {
        // Options that share a pass's name have another type, hence `try_`.
        if !matches!(matches.try_contains_id(flag), Ok(true))
            || matches.value_source(flag) != Some(ValueSource::CommandLine)
        {
            continue;
        }
        let (Some(at), Ok(Some(values))) =
            (matches.indices_of(flag), matches.try_get_many::<String>(flag))
        else {
            continue;
        };
        all.extend(
            at.zip(values).map(|(i, v)| (i, PassUse { flag: flag.into(), options: v.clone() })),
        );
    }
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, p)| p).collect()
}

/// Err: no pass has this flag; suggests the nearest one.
pub fn known(flag: &str) -> Result<(), OptError> {
    let all = || all_passes().map(|p| p.flag).chain(UPSTREAM_PASSES.iter().map(|p| p.0));
    if all().any(|f| f == flag) || is_registered(flag) {
        return Ok(());
    }
    Err(OptError::usage(format!(
        "there is no pass '{flag}'{} (--list-passes prints all)",
        names::hint(flag, all())
    )))
}

/// The textual pipeline of these passes. Passes that do not run on modules are nested; adjacent
/// ones share a nest.
pub fn pipeline(ctx: Ctx, passes: &[PassUse]) -> Result<String, OptError> {
    register_all().map_err(|e| OptError::usage(e.message))?;
    let mut nests: Vec<(Option<String>, Vec<String>)> = vec![];
    for pass in passes {
        let nest = nest_of(ctx, &pass.flag);
        match nests.last_mut() {
            Some((last, group)) if *last == nest => group.push(pass.text()),
            _ => nests.push((nest, vec![pass.text()])),
        }
    }
    let parts = nests.iter().map(|(nest, group)| match nest {
        Some(op) => format!("{op}({})", group.join(",")),
        None => group.join(","),
    });
    Ok(format!("builtin.module({})", parts.collect::<Vec<_>>().join(",")))
}

fn levels(row: &PassRow) -> String {
    let names = |l: &[Level]| l.iter().map(|l| l.name()).collect::<Vec<_>>().join(" ");
    let on =
        if row.levels == LEVELS { "any level".into() } else { format!("on {}", names(row.levels)) };
    row.lowers_to.map_or(on.clone(), |to| format!("{on}, to {}", to.name()))
}

/// The output of `--list-passes`.
pub fn list() -> String {
    let mut s = String::from("Passes of kiln\n");
    rows(table::passes().iter().copied(), &mut s);
    let others = registered_beside(table::passes());
    if !others.is_empty() {
        s += "\nPasses of this tool's own\n";
        rows(others, &mut s);
    }
    s += "\nPasses of upstream\n";
    for (flag, summary) in UPSTREAM_PASSES.iter().filter(|p| is_registered(p.0)) {
        let _ = writeln!(s, "  --{flag}\n      {summary}");
    }
    s
}

fn rows(all: impl IntoIterator<Item = &'static PassRow>, s: &mut String) {
    for row in all {
        let required = if row.required { ", required" } else { "" };
        let _ = writeln!(
            s,
            "  --{}\n      {}\n      {}; {}{required}",
            row.flag,
            row.summary,
            levels(row),
            row.numerics.name()
        );
        for o in (row.options)() {
            let _ = writeln!(s, "      {}={}: {}", o.name, o.default, o.help);
        }
    }
}
