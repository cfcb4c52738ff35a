//! `.pt2` archives as input, their weights, and the log.
use super::*;
use crate::watchdog;

fn model(name: &str) -> String {
    format!("{}/tests/models/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn an_archive_is_printed_lowered_run_and_checked() {
    let (archive, tensors) = (model("mlp.pt2"), model("mlp.safetensors"));
    let graph = ok(&[&archive]);
    // Names and locations come from Python.
    assert!(
        graph.contains("%layer_norm = kiln.layer_norm %gelu")
            && graph.contains("kiln.sym @s77 {max = 512"),
        "{graph}"
    );
    assert!(ok(&[&archive, "--mlir-print-debuginfo"]).contains("make.py"));
    assert!(
        ok(&[&archive, "--to=prims"]).contains("%linear = kiln.dot_general %x, %p_net_0_weight")
    );
    for level in ["graph", "prims"] {
        let text =
            ok(&[&archive, &format!("--to={level}"), "--execute", "--inputs", &tensors, "--check"]);
        assert!(text.contains("check output_0: ok"), "{text}");
    }
}

#[test]
fn a_level_of_an_archive_can_be_written_out_edited_and_resumed() {
    let (folder, tensors) = (temporary(), model("mlp.safetensors"));
    let graph = ok(&[&model("mlp.pt2")]).replace("mlp.pt2#", &format!("{}#", model("mlp.pt2")));
    let file = path(&folder, "graph.mlir");
    std::fs::write(&file, &graph).unwrap();
    assert!(
        ok(&[&file, "--to=prims", "--execute", "--inputs", &tensors, "--check"]).contains("ok")
    );
    // A mutation of the result is detected.
    std::fs::write(&file, graph.replace("kiln.gelu", "kiln.silu")).unwrap();
    fails(1, "", &[&file, "--execute", "--inputs", &tensors, "--check"]);
}

#[test]
fn invalid_archives_are_errors() {
    let folder = temporary();
    let file = path(&folder, "broken.pt2");
    let whole = std::fs::read(model("mlp.pt2")).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    fails(2, "is no .pt2 archive", &[&file]);
    let done = pipe(&[], &whole);
    assert!(done.code() == 2 && done.stderr.contains("not from standard input"), "{}", done.stderr);
}

#[test]
fn the_log_says_which_passes_run() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln-opt"));
    command.args([&input("simple.mlir"), "--kiln-simplify"]).env("KILN_LOG", "kiln::passes=debug");
    let done = watchdog::run(&mut command, b"", LIMIT);
    assert!(done.code() == 0 && done.stderr.contains("kiln-simplify"), "{}", done.stderr);
    command.env("KILN_LOG", "kiln::passes=loud");
    let done = watchdog::run(&mut command, b"", LIMIT);
    assert!(done.code() == 2 && done.stderr.contains("KILN_LOG"), "{}", done.stderr);
}

#[test]
fn the_example_of_the_readme_works() {
    let example = |name: &str| format!("{}/examples/{name}", env!("CARGO_MANIFEST_DIR"));
    let (file, tensors) = (example("mlp.mlir"), example("mlp.safetensors"));
    ok(&["--kiln-simplify", "--cse", &file]);
    for level in ["graph", "prims"] {
        let to = format!("--to={level}");
        assert!(
            ok(&[&file, &to, "--execute", "--inputs", &tensors, "--check"])
                .contains("check output_0: ok")
        );
    }
}
