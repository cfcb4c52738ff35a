//! Invalid MLIR, and input that crashes MLIR: an error and exit 2, never a crash.
use super::*;
use std::{io::Read, process::Stdio};

fn refused(what: &str, input: impl AsRef<[u8]>, part: &str) {
    let done = pipe(&[], input);
    assert_eq!(done.code(), 2, "{what}: {}", done.stderr);
    assert!(
        done.stderr.contains("error") && done.stderr.contains(part),
        "{what}: no {part:?} in\n{}",
        done.stderr
    );
    assert!(done.stderr.len() < 4000 && done.text().is_empty(), "{what}: {}", done.stderr);
}

fn bytecode() -> Vec<u8> {
    let source = std::fs::read(input("simple.mlir")).unwrap();
    pipe(&["--emit-bytecode"], source).stdout
}

#[test]
fn nested_regions() {
    let nest = |n: usize| format!("{}{}", "\"t.a\"() ({\n".repeat(n), "}) : () -> ()\n".repeat(n));
    refused("20,000 regions", nest(20_000), "<stdin>:129: brackets nest deeper than 256");
    refused("1,000,000 brackets", "(".repeat(1_000_000), "nest deeper");
    refused("mixed brackets", "([{<".repeat(5000), "nest deeper");
    assert_eq!(pipe(&["--allow-unregistered-dialect"], nest(100)).code(), 0);
}

#[test]
fn corrupt_bytecode() {
    let code = bytecode();
    assert_eq!(pipe(&[], &code).code(), 0);
    for n in (0..code.len()).step_by(37).skip(1) {
        refused("cut", &code[..n], "");
    }
    for n in (8..code.len()).step_by(29) {
        let mut changed = code.clone();
        changed[n] ^= 1 << (n % 8);
        refused("changed", &changed, "checksum");
    }
    refused("without a checksum", &code[40..], "without kiln's checksum");
}

#[test]
fn invalid_text() {
    refused("unregistered op", "\"no.such\"() : () -> ()", "unregistered dialect");
    refused(
        "unregistered op in a module",
        "module {\n  no.such\n}\n",
        "<stdin>:2:3: error: Dialect `no' not found",
    );
    refused("unknown op", "module { func.bar }", "custom op 'func.bar' is unknown");
    refused("prose", "It was a bright cold day in April.", "<stdin>:1:1: error");
    refused("half a module", "module {", "error");
    refused("bytes", (0..=255u8).collect::<Vec<_>>(), "is not UTF-8 text");
    let mut state = 1u64;
    let noise = |n: usize, state: &mut u64| {
        (0..n).map(|_| super::mutation::next(state) as u8).collect::<Vec<u8>>()
    };
    for n in [1, 10, 100, 1000, 100_000] {
        refused("random bytes", [&[0xff], &noise(n, &mut state)[..]].concat(), "error");
    }
}

#[test]
fn missing_input() {
    let folder = temporary();
    fails(2, "is a directory, not a regular file", &[folder.path().to_str().unwrap()]);
    fails(2, "No such file", &[&path(&folder, "nothing.mlir")]);
    // The superuser may read every file, but not this one's first page.
    fails(2, "error: /proc/self/mem", &["/proc/self/mem"]);
    let locked = path(&folder, "locked.mlir");
    std::fs::write(&locked, "module {}").unwrap();
    std::fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    if std::fs::read(&locked).is_err() {
        fails(2, "ermission denied", &[&locked]);
    }
    assert_eq!(run(&["/dev/null"]).text(), "module {\n}\n");
}

/// No upstream pass crashes reliably, so a signal hits the worker process during one.
#[test]
fn a_crash_in_a_pass_leaves_a_reproducer() {
    let folder = temporary();
    let (file, reproducer) = (path(&folder, "in.mlir"), path(&folder, "r.mlir"));
    let body: String =
        (0..5000).map(|i| format!("  %{i} = kiln.exp %x : tensor<4xf32>\n")).collect();
    let parts = format!(
        "func.func @first() {{ return }}\n// -----\nfunc.func @second(%x: tensor<4xf32>) {{\n{body}  return\n}}\n"
    );
    std::fs::write(&file, parts).unwrap();
    let args = [
        file.as_str(),
        "--split-input-file",
        "--canonicalize",
        "--cse",
        "--mlir-print-ir-before=canonicalize",
        "--reproducer",
        &reproducer,
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_kiln-opt"))
        .args(args)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    // A pipe holds less than the second dump, so the process blocks in it until this side reads on.
    let mut said = vec![0; 1000];
    stderr.read_exact(&mut said).unwrap();
    let workers =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let worker: libc::pid_t = workers.trim().parse().expect("one child");
    assert_eq!(unsafe { libc::kill(worker, libc::SIGILL) }, 0);
    // Other threads continue until one takes the signal: wait for the exit before reading on.
    let stat = || std::fs::read_to_string(format!("/proc/{worker}/stat"));
    watchdog::until("the worker does not end", || !stat().is_ok_and(|s| !s.contains(") Z ")));
    stderr.read_to_end(&mut said).unwrap();
    let (said, status) = (String::from_utf8_lossy(&said), watchdog::wait(&mut child, |_| LIMIT));
    let last: Vec<_> = said.lines().rev().take(2).collect();
    assert_eq!(status.ok().and_then(|s| s.code()), Some(4), "{last:?}");
    assert!(
        last[1].ends_with("in.mlir: crashed (SIGILL) in canonicalize")
            && last[0].starts_with("reproducer: "),
        "{last:?}"
    );
    let stored = std::fs::read_to_string(&reproducer).unwrap();
    assert!(
        !stored.contains("@first")
            && stored.contains("@second")
            && stored.contains("\"builtin.module(canonicalize,cse)\"")
    );
    assert!(!ok(&["--run-reproducer", &reproducer]).contains("kiln.exp"));
}

#[test]
fn out_of_memory_is_exit_5() {
    let program = "func.func @main() -> tensor<1073741824xf32> {\n  %0 = kiln.splat [1073741824], 1.0 : f32\n  return %0 : tensor<1073741824xf32>\n}\n";
    let script = "ulimit -v 4000000; exec \"$0\" --execute --reproducer=/dev/null";
    let mut command = Command::new("sh");
    let done = watchdog::run(
        command.args(["-c", script, env!("CARGO_BIN_EXE_kiln-opt")]),
        program.as_bytes(),
        LIMIT,
    );
    assert_eq!(done.code(), 5, "{}", done.stderr);
    assert!(
        done.stderr
            .contains("memory allocation of 8589934592 bytes failed) while running the program"),
        "{}",
        done.stderr
    );
}

/// No nested brackets, but MLIR's parser recurses all the same.
#[test]
fn a_crash_of_mlir_is_an_error_of_its_own() {
    let text = format!(
        "func.func private @f() attributes {{a = affine_map<(d0) -> ({}d0)>}}",
        "-".repeat(1_000_000)
    );
    refused("a million signs", &text, "while parsing <stdin>; this input is not supported");
    let done = pipe(&["--no-isolate"], &text);
    assert_eq!(done.status.code(), None, "without isolation it ends by a signal");
}
