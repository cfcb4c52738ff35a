//! Reduce: the smallest graph that still fails.
use super::{SOURCE, inserted, source};
use crate::run::options;
use kiln::{
    debug,
    dialects::ir::{Context, Module},
};
use std::process::Command;

#[test]
fn reduce_shrinks_a_graph_that_fails() {
    crate::watchdog::arm();
    let wrong = inserted("kiln-to-linalg", "test-add-for-sub");
    let small = debug::reduce(SOURCE, "main", &mut |text| debug::mismatch(text, &wrong)).unwrap();
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), small.as_bytes(), "small.mlir").unwrap();
    let func = module.find("main").expect("a function");
    let ops = func.regions()[0].first().expect("a body").ops();
    assert!(ops.len() <= 3 && ops.iter().any(|o| o.is("kiln.sub")), "{small}");
    assert!(!small.contains("32x"), "sizes stay as they were\n{small}");
    assert!(debug::mismatch(&small, &wrong) && !debug::mismatch(&small, &options(2)), "{small}");
    assert!(debug::reduce(SOURCE, "main", &mut |_| false).is_err());
}

#[test]
fn reduce_with_a_command() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let (model, to) = (source(dir.path()), dir.path().join("small.mlir"));
    let out = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args([
            "reduce",
            model.to_str().unwrap(),
            "-o",
            to.to_str().unwrap(),
            "--command",
            "grep -q kiln.tanh",
        ])
        .output()
        .expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let small = std::fs::read_to_string(&to).unwrap();
    assert!(
        small.contains("kiln.tanh")
            && !small.contains("kiln.matmul")
            && !small.contains("kiln.exp"),
        "{small}"
    );
}

/// A failing compilation, in a child process: the unsupported op remains, its surroundings do not.
#[test]
fn reduce_finds_a_compiler_failure() {
    crate::watchdog::arm();
    let source = "module attributes {kiln.level = \"graph\"} {
  func.func @main(%x: tensor<8x32xf32>, %y: tensor<32x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
    %0 = kiln.exp %x : tensor<8x32xf32>
    %1 = kiln.matmul %0, %y : tensor<8x32xf32>, tensor<32x16xf32>
    %2 = func.call @other(%1) : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %3 = kiln.tanh %2 : tensor<8x16xf32>
    %4 = kiln.add %3, %1 : tensor<8x16xf32>
    return %4, %3 : tensor<8x16xf32>, tensor<8x16xf32>
  }
  func.func private @other(tensor<8x16xf32>) -> tensor<8x16xf32>
}
";
    let dir = tempfile::tempdir().unwrap();
    let (model, to) = (dir.path().join("model.mlir"), dir.path().join("small.mlir"));
    let reduced_with = |text: &str, more: &[&str]| {
        std::fs::write(&model, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let out = command
            .args(["reduce", model.to_str().unwrap(), "-o", to.to_str().unwrap(), "--crash"])
            .args(more)
            .output()
            .expect("it runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let reduced = |text: &str| reduced_with(text, &[]);
    assert_eq!(reduced(source).0, Some(0));
    let small = std::fs::read_to_string(&to).unwrap();
    assert!(
        small.contains("call @other")
            && !["exp", "matmul", "tanh", "add", "8x"].iter().any(|s| small.contains(s)),
        "{small}"
    );
    // Success is no crash, and neither is a rejection.
    let (code, said) = reduced(SOURCE);
    assert!(code == Some(1) && said.contains("does not fail as it is"), "{code:?} {said}");
    let unsupported = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args([
            "reduce",
            model.to_str().unwrap(),
            "-o",
            to.to_str().unwrap(),
            "--crash",
            "--target",
            "cuda:sm_12",
        ])
        .output()
        .expect("it runs");
    assert_eq!(
        unsupported.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&unsupported.stderr)
    );
    assert!(!to.with_extension("kpkg").exists(), "an attempt is left behind");
    // Attempts inherit the command's options: a pass that rejects a composite op fails, and nothing
    // does without it.
    let composite =
        "func.func @main(%x: tensor<8x32xf32>, %w: tensor<16x32xf32>) -> tensor<8x16xf32> {
  %0 = kiln.exp %x : tensor<8x32xf32>
  %1 = kiln.linear %0, %w : tensor<8x32xf32>, tensor<16x32xf32>
  %2 = kiln.tanh %1 : tensor<8x16xf32>
  return %2 : tensor<8x16xf32>
}
";
    assert_eq!(reduced(composite).0, Some(1));
    let (code, said) =
        reduced_with(composite, &["--passes", "graph: kiln-verify-level{level=prims}"]);
    assert_eq!(code, Some(0), "{said}");
    let small = std::fs::read_to_string(&to).unwrap();
    assert!(
        small.contains("kiln.linear") && !small.contains("exp") && !small.contains("tanh"),
        "{small}"
    );
}
