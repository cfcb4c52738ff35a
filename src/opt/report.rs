//! Side output of kiln-opt: diagnostics with their source line, IR around passes, timings.
use super::{
    OptError,
    cli::{Cli, Timing},
    console::Console,
};
use crate::{
    dialects::ir::{Diagnostic, Op, PrintOptions},
    lowering::{PassRun, Report, driver::manager::Selection},
};
use std::{cell::RefCell, fmt::Write, path::PathBuf};

/// Formats a diagnostic with its input line, and a caret below its column.
pub fn diagnostic(d: &Diagnostic, file: &str, source: &[u8]) -> String {
    let mut text = format!("{d}\n");
    let Some((name, line, col)) = &d.location else { return text };
    let found = (name == file)
        .then(|| source.split(|b| *b == b'\n').nth((*line as usize).saturating_sub(1)))
        .flatten();
    if let Some(shown) = found
        .and_then(|l| std::str::from_utf8(l).ok())
        .filter(|l| !l.trim().is_empty() && l.len() < 400)
    {
        let before: String = shown
            .chars()
            .take((*col as usize).saturating_sub(1))
            .map(|c| if c == '\t' { c } else { ' ' })
            .collect();
        let _ = writeln!(text, "{shown}\n{before}^");
    }
    text
}

/// IR printing options of the command line.
pub fn print_options(cli: &Cli) -> PrintOptions {
    PrintOptions {
        debug_info: cli.mlir_print_debuginfo,
        generic: cli.mlir_print_op_generic,
        names_from_locations: true,
        local_scope: false,
    }
}

/// The passes whose IR is printed before and after.
pub fn selections(cli: &Cli) -> (Selection, Selection) {
    let of = |all: bool, some: &[String]| match some {
        _ if all || some.iter().any(String::is_empty) => Selection::All,
        [] => Selection::None,
        _ => Selection::Some(some.iter().cloned().collect()),
    };
    let before = of(cli.mlir_print_ir_before_all, &cli.mlir_print_ir_before);
    let after = of(cli.mlir_print_ir_after_all, &cli.mlir_print_ir_after);
    let tree_alone = cli.mlir_print_ir_tree_dir.is_some()
        && before == Selection::None
        && after == Selection::None;
    (before, if tree_alone { Selection::All } else { after })
}

/// Prints IR around passes, to standard error or to a tree of files.
pub struct IrPrinter<'a> {
    cli: &'a Cli,
    console: &'a Console,
    /// Number of passes run so far.
    count: RefCell<usize>,
    first_error: RefCell<Option<OptError>>,
}

impl<'a> IrPrinter<'a> {
    /// A printer for one command line.
    pub fn new(cli: &'a Cli, console: &'a Console) -> IrPrinter<'a> {
        IrPrinter { cli, console, count: RefCell::default(), first_error: RefCell::default() }
    }
    /// Counts a pass run.
    pub fn enter(&self) {
        *self.count.borrow_mut() += 1;
    }
    /// Prints an op before or after a pass.
    pub fn print(&self, when: &str, flag: &str, op: Op) {
        let ir = op.print(print_options(self.cli));
        let symbol = op.symbol().map_or(String::new(), |s| format!(": @{s}"));
        let title = format!(
            "// -----// IR Dump {when} {flag} ('{}' operation{symbol}) //----- //",
            op.name()
        );
        let text = format!("{title}\n{}\n\n", ir.trim_end());
        let Some(root) = &self.cli.mlir_print_ir_tree_dir else {
            return self.console.err(text.as_bytes());
        };
        let folder = root.join(folders(op));
        let path =
            folder.join(format!("{:02}-{}-{flag}.mlir", *self.count.borrow(), when.to_lowercase()));
        if let Err(e) = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, text))
        {
            self.first_error.borrow_mut().get_or_insert(OptError::file(&path, e));
        }
    }
    /// Err: the first file that could not be written.
    pub fn finish(self) -> Result<(), OptError> {
        self.first_error.into_inner().map_or(Ok(()), Err)
    }
}

/// One folder per op from the root down, such as `builtin_module/func_func_main`.
fn folders(op: Op) -> PathBuf {
    let (mut parts, mut at) = (vec![], Some(op));
    while let Some(o) = at {
        let name = o.symbol().map_or(o.name(), |s| format!("{}_{s}", o.name()));
        parts.push(
            name.chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                .collect::<String>(),
        );
        at = o.parent();
    }
    parts.into_iter().rev().collect()
}

/// Wall times in seconds, summed over all parts of the input.
#[derive(Debug, Default, serde::Serialize)]
pub struct Times {
    /// Parsing and verifying.
    pub parse: f64,
    /// The pipelines, with all options.
    pub pipelines: Vec<String>,
    /// Every pass run, in order.
    pub passes: Vec<PassRun>,
    /// All pipelines, including verification between passes.
    pub run: f64,
    /// Printing or executing.
    pub output: f64,
}

impl Times {
    /// Adds the timings of one pipeline.
    pub fn add(&mut self, report: &Report) {
        self.pipelines.push(report.pipeline.clone());
        self.passes.extend(report.passes.iter().cloned());
        self.run += report.seconds;
    }
    /// The output of `--mlir-timing`.
    pub fn text(&self, form: Timing) -> String {
        if form == Timing::Json {
            return serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        }
        let rows = Report { passes: self.passes.clone(), seconds: self.run, ..Default::default() };
        let line = |seconds: f64, what: &str| {
            format!("{:>10.3}  {:>6}  {:>6}  {what}\n", seconds * 1e3, "", "")
        };
        format!("{}{}{}", rows.table(), line(self.parse, "reading"), line(self.output, "output"))
    }
}
