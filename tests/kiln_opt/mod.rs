//! `kiln-opt` as a process: files, output, errors, exit codes.
mod archives;
mod diagnostics;
mod execution;
mod garbage;
mod mutation;
mod options;
mod pipelines;

use crate::watchdog::{self, Finished};
use std::{path::PathBuf, process::Command, time::Duration};

/// Processor time, far beyond any run's.
const LIMIT: Duration = Duration::from_secs(120);

/// A file in this folder.
fn input(name: &str) -> String {
    format!("{}/tests/kiln_opt/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs kiln-opt on an input from stdin.
fn pipe(args: &[&str], input: impl AsRef<[u8]>) -> Finished {
    watchdog::run(Command::new(env!("CARGO_BIN_EXE_kiln-opt")).args(args), input.as_ref(), LIMIT)
}

/// Runs kiln-opt.
fn run(args: &[&str]) -> Finished {
    pipe(args, "")
}

/// Runs kiln-opt, which must succeed, and returns its output.
fn ok(args: &[&str]) -> String {
    let done = run(args);
    assert_eq!(done.code(), 0, "{args:?}\n{}", done.stderr);
    done.text().to_string()
}

/// Runs kiln-opt, which must end with `code` and an error that contains `part`.
fn fails(code: i32, part: &str, args: &[&str]) -> String {
    let done = run(args);
    assert_eq!(done.code(), code, "{args:?}\n{}", done.stderr);
    assert!(done.stderr.contains(part), "{args:?}: no {part:?} in\n{}", done.stderr);
    done.stderr
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// Compares with `snapshots/kiln_opt/<name>.snap`. Folders and times are redacted.
fn snapshot(name: &str, text: &str) {
    let redact = |pattern: &str, with: &str, text: &str| {
        regex::Regex::new(pattern).unwrap().replace_all(text, with).into_owned()
    };
    let here: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "kiln_opt"].iter().collect();
    let text = text.replace(&format!("{}/", here.display()), "");
    let text = redact(r"/[^ \n]*/kiln-reproducer-[0-9]+-[0-9]+\.mlir", "REPRODUCER", &text);
    let text = redact(r"(?m)^ *[0-9]+\.[0-9]{3}  ", "   TIME  ", &text);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/kiln_opt"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
