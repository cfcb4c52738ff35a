//! What the `kiln` binary prints: tables as wide as the terminal, messages with what to do.
use super::{
    command::{kiln, text},
    models,
};
use std::process::Command;

/// Lines are as long as the terminal is wide, and kinds of kernels are whole words.
#[test]
fn tables_fit_the_terminal() {
    let narrow = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(args)
            .current_dir(models())
            .env("KILN_CACHE_DIR", "off")
            .env("COLUMNS", "80")
            .output()
            .expect("it runs");
        let all = text(&out.stdout);
        assert!(out.status.success() && !all.is_empty(), "{args:?}: {}", text(&out.stderr));
        for line in all.lines() {
            // Only a word that is longer than a line stands out.
            let long = line.split_whitespace().any(|w| w.chars().count() > 70);
            assert!(line.chars().count() <= 80 || long, "{args:?}: {line}");
        }
        all
    };
    let run = narrow(&["run", "gpt2_tiny.pt2", "--repeat", "1"]);
    assert!(run.contains(" attention ") && run.contains(" pointwise "), "{run}");
    assert!(run.contains("inputs were made up (ids [2, 8]); --inputs gives others"), "{run}");
    let rows = run.lines().filter(|l| l.ends_with('%')).count();
    assert_eq!(rows, 15, "a row is a line: {run}");
    let explained = narrow(&["explain", "gpt2_tiny.pt2"]);
    assert!(explained.starts_with("main: 23 launches of 15 kernels\n"), "{explained}");
    assert!(explained.contains("memory between kernels: at s27 = 8, 50304 bytes;"), "{explained}");
    let doctor = narrow(&["doctor"]);
    assert!(!doctor.contains("libcuda64"), "{doctor}");
}

#[test]
fn what_cannot_be_read_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |args: &[&str], want: &str| {
        let out = kiln(args);
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(want), "{args:?}: {said}");
    };
    fails(&["run", "README.md"], "README.md: is no .pt2 archive, no .kpkg package and no MLIR (");
    let damaged = dir.path().join("damaged.kpkg");
    std::fs::write(&damaged, "x").unwrap();
    let damaged = damaged.to_str().unwrap();
    fails(&["run", damaged], &format!("{damaged}: is no readable package: "));
    fails(&["run", "mlp.pt2", "--option", "mode=fast"], "(modes: default, reduce-overhead, ");
    fails(&["run", "mlp.pt2", "--passes", "prim: cse"], "'prim'; did you mean 'prims'?");
    fails(
        &["run", "mlp.pt2", "--inputs", "bert_tiny.safetensors"],
        "has size 32 in dimension 1; the program takes 64",
    );
}

/// IR that names the weights of an archive is resumed in another folder.
#[test]
fn weights_are_looked_for_where_an_option_says() {
    let dir = tempfile::tempdir().unwrap();
    let ir = dir.path().join("mlp.mlir");
    let out = Command::new(env!("CARGO_BIN_EXE_kiln-opt"))
        .args(["mlp.pt2", "--to=prims", "-o", ir.to_str().unwrap()])
        .current_dir(models())
        .output()
        .expect("it runs");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let ir = ir.to_str().unwrap();
    let out = kiln(&["run", ir, "--repeat", "1"]);
    let folder = dir.path().canonicalize().unwrap();
    let want = format!("'mlp.pt2' is not in {}; option weights (KILN_WEIGHTS)", folder.display());
    let said = text(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains(&want), "{said}");
    let weights = format!("weights={}", models().display());
    let option = ["--repeat", "1", "--inputs", "mlp.safetensors", "--expect", "mlp.safetensors"];
    let out = kiln(&[&["run", ir, "--option", &weights][..], &option].concat());
    assert!(text(&out.stdout).contains("agrees with PyTorch"), "{}", text(&out.stderr));
    // The same of kiln-opt.
    let opt = |more: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_kiln-opt"))
            .args([ir, "--execute", "--check", "--inputs"])
            .arg(models().join("mlp.safetensors"))
            .args(more)
            .output()
            .expect("it runs");
        (out.status.code(), text(&out.stdout) + &text(&out.stderr))
    };
    let (code, said) = opt(&[]);
    assert!(code == Some(2) && said.contains("--weights names the folder"), "{said}");
    let (code, said) = opt(&["--weights", models().to_str().unwrap()]);
    assert!(code == Some(0) && said.contains("check output_0: ok"), "{said}");
}
