//! The `kiln` binary.
use super::models;
use std::process::{Command, Output, Stdio};

pub fn kiln(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(args)
        .current_dir(models())
        .env("KILN_CACHE_DIR", "off")
        .output()
        .expect("it runs")
}
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn run_reports_one_screen_and_compares() {
    let out = kiln(&[
        "run",
        "mlp.pt2",
        "--inputs",
        "mlp.safetensors",
        "--expect",
        "mlp.safetensors",
        "--repeat",
        "3",
    ]);
    let all = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{all}{}", text(&out.stderr));
    for part in [
        "launches of",
        "contract",
        "share",
        "compiled in",
        "median of 3 calls",
        "output_0: ok",
        "agrees with PyTorch",
    ] {
        assert!(all.contains(part), "no '{part}' in\n{all}");
    }
    assert!(all.lines().count() < 40, "{all}");
    // The results of another model differ.
    let out =
        kiln(&["run", "mlp.pt2", "--inputs", "mlp.safetensors", "--expect", "lenet.safetensors"]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stdout));
}

#[test]
fn random_inputs_json_and_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("out.safetensors");
    let out = kiln(&[
        "run",
        "lenet.pt2",
        "--json",
        "--repeat",
        "1",
        "--threads",
        "1",
        "--outputs",
        to.to_str().unwrap(),
    ]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert!(
        json["kernels"].as_array().is_some_and(|k| !k.is_empty())
            && json["median_us"].as_f64().is_some_and(|t| t > 0.0),
        "{json}"
    );
    assert!(to.exists());
}

/// Factorizations are found by name, from an archive and from a package; a failed one is an error.
#[test]
fn factorizations_run_from_archives_and_packages() {
    let dir = tempfile::tempdir().unwrap();
    let package = dir.path().join("cholesky.kpkg");
    let (archive, package) = ("../capture/cholesky.pt2", package.to_str().unwrap());
    assert_eq!(kiln(&["compile", archive, "-o", package]).status.code(), Some(0));
    let [inputs, other] =
        ["../capture/cholesky.safetensors", "../capture/cholesky.other.safetensors"];
    for model in [archive, package] {
        let out = kiln(&["run", model, "--inputs", inputs, "--expect", inputs, "--repeat", "1"]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let out = kiln(&["run", model, "--inputs", other, "--repeat", "1"]);
        let said = text(&out.stderr);
        assert!(said.contains("(the leading minor of order 2 is not positive-definite)"), "{said}");
    }
}

#[test]
fn packages_and_the_other_commands() {
    let dir = tempfile::tempdir().unwrap();
    let package = dir.path().join("mlp.kpkg");
    let (package, svg) = (package.to_str().unwrap(), dir.path().join("g.svg"));
    assert_eq!(kiln(&["compile", "mlp.pt2", "-o", package]).status.code(), Some(0));
    assert!(text(&kiln(&["inspect", package]).stdout).contains("input x: f32 [s77, 64]"));
    let explained = kiln(&["explain", "mlp.pt2", "--svg", svg.to_str().unwrap()]);
    assert!(text(&explained.stdout).contains("not fused: "), "{}", text(&explained.stdout));
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    let lines = text(&explained.stdout);
    assert!(lines.starts_with("main: ") && lines.lines().next().unwrap().ends_with(" kernels"));
    for part in [
        "guard x: f32[s77, 64]\n",
        "guard s77 = x.size(0) in ",
        "no CUDA graph, or not all of the call: the program is for x86_64, and CUDA graphs are for GPUs\n",
        "memory between kernels: ",
        "time capture: ",
        "time kernels: ",
        "time of pass ",
    ] {
        assert!(lines.contains(part), "no '{part}' in\n{lines}");
    }
    let lines = text(&kiln(&["explain", "mlp.pt2", "--option", "autocast=bf16"]).stdout);
    let cast = "remark: kiln-autocast: casts an operand of kiln.linear from f32 to bf16, ";
    assert!(lines.contains(cast), "no '{cast}' in\n{lines}");
    let lines = text(
        &kiln(&["explain", "mlp.pt2", "--target", "cuda:sm_80", "--option", "cuda_blocking=true"])
            .stdout,
    );
    for part in [
        "argument 'x' is copied outside of it where it lies in the host's memory",
        "calls with other values of s77",
        "(cuda_blocking)",
    ] {
        assert!(
            lines.contains(&format!("no CUDA graph, or not all of the call: {part}"))
                || lines.contains(part),
            "no '{part}' in\n{lines}"
        );
    }
    assert!(text(&kiln(&["doctor"]).stdout).contains("processor: "));
    for ops in [&["ops", "--coverage"][..], &["ops"]] {
        assert!(text(&kiln(ops).stdout).contains("aten.linear.default"));
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&kiln(&["completions", shell]).stdout).contains("autotune-budget"), "{shell}");
    }
    // Others may read a package, as the umask says.
    let mode = std::fs::metadata(package).unwrap().permissions();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    assert_eq!(mode, std::fs::metadata(plain).unwrap().permissions());
    assert!(text(&kiln(&["bench", "mlp.pt2", "--seconds", "0.01"]).stdout).contains("median"));
}

#[test]
fn a_trace_names_kernels_ops_and_source_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.json");
    let out = kiln(&["run", "mlp.pt2", "--repeat", "1", "--profile", path.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains(&format!("trace of the launches: {}", path.display())));
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let kernels: Vec<_> = events.iter().filter(|e| e["ph"] == "X" && e["tid"] == 1).collect();
    let ops: Vec<_> = events.iter().filter(|e| e["ph"] == "X" && e["tid"] == 2).collect();
    assert!(!kernels.is_empty() && kernels.len() == ops.len(), "{trace}");
    for (k, o) in kernels.iter().zip(&ops) {
        assert!(
            k["dur"].as_f64().is_some_and(|t| t > 0.0)
                && k["ts"] == o["ts"]
                && o["args"]["kernel"] == k["name"],
            "{k}"
        );
        let sources = k["args"]["sources"].as_array().expect("a list");
        assert!(sources.iter().any(|s| s.as_str().is_some_and(|s| s.contains(".py:"))), "{k}");
    }
    let all = kernels
        .iter()
        .flat_map(|k| k["args"]["ops"].as_array().expect("a list"))
        .filter_map(|o| o.as_str())
        .collect::<Vec<_>>();
    assert!(all.contains(&"dot_general"), "{all:?}");
}

/// A loop of five steps: its program's kernels, with run counts.
#[test]
fn control_flow_shows_the_kernels_that_it_calls() {
    let dir = tempfile::tempdir().unwrap();
    let (path, trace) = (dir.path().join("loop.mlir"), dir.path().join("t.json"));
    std::fs::write(&path, LOOP).unwrap();
    let path = path.to_str().unwrap();
    let out = kiln(&[
        "run",
        path,
        "--repeat",
        "1",
        "--threads",
        "1",
        "--profile",
        trace.to_str().unwrap(),
    ]);
    let all = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{all}{}", text(&out.stderr));
    assert!(
        all.contains("in 6 launches of 2 kernels, in 2 programs that control flow calls"),
        "{all}"
    );
    let json: serde_json::Value =
        serde_json::from_slice(&kiln(&["run", path, "--repeat", "1", "--json"]).stdout)
            .expect("JSON");
    let mut runs: Vec<(i64, i64)> = json["kernels"]
        .as_array()
        .expect("kernels")
        .iter()
        .map(|k| (k["launches"].as_i64().unwrap_or(0), k["bytes"].as_i64().unwrap_or(0)))
        .collect();
    runs.sort_unstable();
    // The exponential reads and writes 5 rows of 8 once; each step reads a row and the loop-carried
    // values, and writes those.
    assert_eq!(runs, [(1, 2 * 5 * 8 * 4), (5, 5 * 3 * 8 * 4)], "{json}");
    assert!(
        json["kernels"]
            .as_array()
            .expect("kernels")
            .iter()
            .all(|k| k["time_us"].as_f64() > Some(0.0)),
        "{json}"
    );
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&trace).unwrap()).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let runs: Vec<i64> = events
        .iter()
        .filter(|e| e["ph"] == "X" && e["tid"] == 1)
        .filter_map(|e| e["args"]["runs"].as_i64())
        .collect();
    assert_eq!(runs, [1, 5], "{trace}");
    assert!(text(&kiln(&["explain", path]).stdout).contains("2 kernels"));
}

pub const LOOP: &str = "func.func @main(%x: tensor<5x8xf32>, %a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = kiln.exp %x : tensor<5x8xf32>
  %1 = kiln.scan inits(%a : tensor<8xf32>) over(%0 : tensor<5x8xf32>) -> tensor<8xf32> {
  ^bb0(%c: tensor<8xf32>, %row: tensor<8xf32>):
    %2 = kiln.add %c, %row : tensor<8xf32>
    kiln.yield %2 : tensor<8xf32>
  }
  return %1 : tensor<8xf32>
}
";

#[test]
fn graphs_are_for_gpus() {
    let out = kiln(&["run", "mlp.pt2", "--mode", "reduce-overhead"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    assert!(
        text(&out.stderr).contains("CUDA graphs are for GPUs; the program is for x86_64"),
        "{}",
        text(&out.stderr)
    );
    assert!(
        text(&kiln(&["run", "mlp.pt2", "--mode", "fast"]).stderr)
            .contains("default, reduce-overhead")
    );
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .arg("options")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("it ends");
    assert!(out.stderr.is_empty(), "{}", text(&out.stderr));
}

#[test]
fn exit_codes() {
    let code = |args: &[&str]| kiln(args).status.code();
    assert_eq!(code(&["run", "nothing.pt2"]), Some(2));
    assert_eq!(code(&["run"]), Some(2));
    assert_eq!(code(&["run", "mlp.pt2", "--device", "tpu"]), Some(2));
    assert_eq!(code(&["run", "mlp.pt2", "--passes", "prims: csee"]), Some(2));
    assert_eq!(code(&["--version"]), Some(0));
    // No machine has that many, and most have none.
    let out = kiln(&["run", "mlp.pt2", "--device", "cuda:99"]);
    assert_eq!(out.status.code(), Some(5), "{}", text(&out.stderr));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("call.mlir");
    let source = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  %0 = kiln.custom_call \"scale\"(%x) config {by = 2 : i64} : (tensor<2xf32>) -> tensor<2xf32>\n  return %0 : tensor<2xf32>\n}";
    std::fs::write(&path, source).unwrap();
    let out = kiln(&["run", path.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("call.mlir:2:"), "{}", text(&out.stderr));
}

/// A failing pass, on the graph or on a kernel, leaves IR and pipeline where the message says, and
/// they reproduce.
#[test]
fn a_pass_that_fails_leaves_a_reproducer() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let (path, temporary, named, dump) = (
        dir.path().join("m.mlir"),
        dir.path().join("t"),
        dir.path().join("r/s"),
        dir.path().join("d"),
    );
    std::fs::create_dir(&temporary).unwrap();
    let source =
        "func.func @main(%x: tensor<8x32xf32>, %w: tensor<16x32xf32>) -> tensor<8x16xf32> {
  %0 = kiln.linear %x, %w : tensor<8x32xf32>, tensor<16x32xf32>
  return %0 : tensor<8x16xf32>
}
";
    std::fs::write(&path, source).unwrap();
    let graph = "graph: kiln-verify-level{level=prims}";
    let kernel = "kiln-tile: kiln-verify-level{level=graph}";
    let (to_named, to_dump) =
        (format!("reproducer={}", named.display()), format!("dump={}", dump.display()));
    let model = path.to_str().unwrap();
    for (passes, option, folder) in [
        (graph, None, &temporary),
        (graph, Some(&to_named), &named),
        (graph, Some(&to_dump), &dump),
        (kernel, None, &temporary),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command
            .args(["compile", model, "--no-cache", "-o", "/dev/null", "--passes", passes])
            .env("TMPDIR", &temporary);
        let out = command
            .args(option.iter().flat_map(|o| ["--option", o.as_str()]))
            .output()
            .expect("it runs");
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(4), "{said}");
        assert_eq!(said.contains("(kernel "), passes == kernel, "{said}");
        let file = said
            .lines()
            .find_map(|l| l.strip_prefix("reproducer: "))
            .and_then(|l| l.split(' ').next())
            .expect("a line");
        assert!(file.starts_with(folder.to_str().unwrap()), "{said}");
        let again = Command::new(env!("CARGO_BIN_EXE_kiln-opt"))
            .args(["--run-reproducer", file, "--reproducer=/dev/null"])
            .output()
            .unwrap();
        assert!(
            again.status.code() == Some(4) && text(&again.stderr).contains("kiln-verify-level"),
            "{}",
            text(&again.stderr)
        );
    }
    let out = kiln(&[
        "compile",
        model,
        "-o",
        "/dev/null",
        "--passes",
        graph,
        "--option",
        "reproducer=off",
    ]);
    assert!(
        out.status.code() == Some(4) && !text(&out.stderr).contains("reproducer: "),
        "{}",
        text(&out.stderr)
    );
}

/// What cannot be held is exit 5, with its size and what it is for.
#[test]
fn memory_that_cannot_be_had_is_exit_5() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, source: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, source).unwrap();
        let out = kiln(&["run", path.to_str().unwrap(), "--repeat", "1"]);
        (out.status.code(), text(&out.stderr))
    };
    let input = "func.func @main(%x: tensor<1099511627776x64xf32>) -> tensor<f32> {
  %0 = kiln.reduce sum %x dims = [0, 1] : tensor<1099511627776x64xf32>
  return %0 : tensor<f32>
}
";
    let (code, said) = run("input.mlir", input);
    assert_eq!(code, Some(5), "{said}");
    let want =
        "out of memory: 281474976710656 bytes for made-up input 'input_0', f32 [1099511627776, 64]";
    assert!(said.contains(want), "{said}");
    let output = "func.func @main(%x: tensor<f32>) -> tensor<1099511627776x64xf32> {
  %0 = kiln.broadcast_in_dim %x dims = [] sizes = [1099511627776, 64] : tensor<f32>
  return %0 : tensor<1099511627776x64xf32>
}
";
    let (code, said) = run("output.mlir", output);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("281474976710656 bytes for output 'output_0'"), "{said}");
}

/// A pipe without a writer is not waited for, and a device is not read.
#[test]
#[cfg(unix)]
fn only_regular_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    for end in ["pt2", "kpkg", "mlir", "safetensors"] {
        let fifo = dir.path().join(format!("pipe.{end}"));
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
        assert!(made.success());
        let name = fifo.to_str().unwrap();
        let out = match end {
            "safetensors" => kiln(&["run", "mlp.pt2", "--inputs", name]),
            _ => kiln(&["run", name]),
        };
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(name) && said.contains("is a pipe, not a regular file"), "{said}");
    }
    for (name, what) in [("/dev/zero", "a character device"), ("/", "a directory")] {
        let out = kiln(&["run", name]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("{name}: is {what}, not a regular file")), "{said}");
    }
}
