//! Options of input, output and listings.
use super::*;

#[test]
fn help_states_exit_codes_and_kiln_passes_but_not_upstream_ones() {
    let help = ok(&["--help"]);
    for line in [
        "0  done",
        "1  the answer is no",
        "2  usage",
        "3  unsupported op",
        "4  compile failed",
        "5  device",
    ] {
        assert!(help.contains(line), "no {line:?} in\n{help}");
    }
    assert!(help.contains("--kiln-simplify") && help.contains("fold-limit=1024"));
    assert!(!help.contains("--affine-loop-tile"));
    assert_eq!(ok(&["--version"]), concat!("kiln-opt ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn lists() {
    let passes = ok(&["--list-passes"]);
    let (own, upstream) = passes.split_once("\nPasses of upstream\n").expect("two sections");
    for part in ["--kiln-decompose\n", "required", "to prims", "reassociates", "keep=attention"] {
        assert!(own.contains(part), "no {part:?} in\n{own}");
    }
    assert!(upstream.contains("--canonicalize\n") && upstream.contains("--affine-loop-tile\n"));
    assert_eq!(own.matches("  --").count(), kiln::lowering::passes().len());
    let levels = ok(&["--list-levels"]);
    let names: Vec<_> = levels.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(names, kiln::dialects::rules::LEVELS.iter().map(|l| l.name()).collect::<Vec<_>>());
    let dialects = ok(&["--show-dialects"]);
    for d in ["kiln", "builtin", "func", "linalg", "gpu", "nvvm", "llvm"] {
        assert!(dialects.lines().any(|l| l == d), "no {d} in\n{dialects}");
    }
}

#[test]
fn completions_know_options_and_passes() {
    for shell in ["bash", "zsh", "fish"] {
        let text = ok(&["--completions", shell]);
        assert!(text.contains("split-input-file") && text.contains("kiln-decompose"), "{shell}");
    }
    fails(2, "bash", &["--completions", "tcsh"]);
}

#[test]
fn typos_get_a_suggestion() {
    let file = input("simple.mlir");
    let cases: [(&str, &[&str]); 12] = [
        ("did you mean '--kiln-simplify'? (--help", &["--kiln-simplfy"]),
        ("did you mean '--canonicalize'?", &["--canonicalise"]),
        ("did you mean '--split-input-file'?", &["--split-input-fil"]),
        (
            "did you mean 'kiln-simplify'? (kiln-opt --list-passes",
            &["--pass-pipeline=builtin.module(kiln-simplfy)"],
        ),
        ("did you mean 'fold-limit'?", &["--kiln-simplify=fold-limt=3"]),
        ("fold-limit expects a non-negative integer, not 'x'", &["--kiln-simplify=fold-limit=x"]),
        (
            "did you mean 'prims'? (levels: graph, prims, kernels, linalg, scheduled, tiled, program, target, llvm; --list-levels)",
            &["--to=prms"],
        ),
        ("did you mean 'cse'?", &["--disable-pass=cs"]),
        ("did you mean 'canonicalize'?", &["--mlir-print-ir-after=canonicalze"]),
        ("there is no target 'cuda:sm_91'; did you mean", &["--target=cuda:sm_91"]),
        (
            "--pass-pipeline and --cse both say what runs",
            &["--pass-pipeline=builtin.module()", "--cse"],
        ),
        ("does not parse", &["--pass-pipeline=builtin.module("]),
    ];
    for (part, args) in cases {
        fails(2, part, &[&[file.as_str()], args].concat());
    }
    // clap's own.
    fails(2, "--bisect-limit", &["--bisect-limit=x", &file]);
    fails(2, "--to", &["--from=graph", &file]);
    fails(2, "cannot be used with", &["--to=prims", "--pass-pipeline=builtin.module()", &file]);
    fails(2, "--execute", &["--inputs=x.safetensors", &file]);
}

#[test]
fn input_and_output_are_files_or_pipes() {
    let file = input("simple.mlir");
    let text = ok(&[&file]);
    snapshot("text", &text);
    let source = std::fs::read(&file).unwrap();
    for args in [&[][..], &["-"]] {
        assert_eq!(pipe(args, &source).text(), text);
    }
    let folder = temporary();
    let out = path(&folder, "out.mlir");
    assert_eq!(ok(&[&file, "-o", &out]), "");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), text);
    // Output can be parsed again, without isolation too.
    assert_eq!(ok(&[&out, "--no-isolate"]), text);
    fails(2, "No such file", &[&file, "-o", &path(&folder, "no/such/folder")]);
    // The output of a failing run is discarded.
    let bad = path(&folder, "bad.mlir");
    fails(
        4,
        "failed",
        &[&input("prims.mlir"), "--kiln-verify-level", "-o", &bad, "--reproducer=/dev/null"],
    );
    assert!(!std::path::Path::new(&bad).exists());
}

#[test]
fn bytecode_comes_back_as_text() {
    let (file, folder) = (input("simple.mlir"), temporary());
    let code = path(&folder, "simple.mlirbc");
    ok(&[&file, "--emit-bytecode", "-o", &code]);
    assert!(std::fs::read(&code).unwrap().starts_with(b"KILNBC1\n"));
    assert_eq!(ok(&[&code]), ok(&[&file]));
    // To a pipe without -o.
    assert!(
        pipe(&["--emit-bytecode"], std::fs::read(&file).unwrap()).stdout.starts_with(b"KILNBC1\n")
    );
    fails(2, "is not text", &[&code, "--split-input-file"]);
    fails(2, "one module", &[&input("split.mlir"), "--split-input-file", "--emit-bytecode"]);
}

#[test]
fn forms_of_printing() {
    let file = input("simple.mlir");
    assert!(ok(&[&file, "--mlir-print-op-generic"]).contains("\"kiln.silu\"(%"));
    let text = ok(&[&file, "--mlir-print-debuginfo"]);
    assert!(text.contains("simple.mlir\":4:10)"), "{text}");
    // A file without a module op names itself in locations too.
    assert!(ok(&[&input("affine.mlir"), "--mlir-print-debuginfo"]).contains("affine.mlir\":2:8)"));
    assert_eq!(pipe(&[], "").text(), "module {\n}\n");
    assert_eq!(pipe(&["--allow-unregistered-dialect"], "\"no.such\"() : () -> ()").code(), 0);
}

#[test]
fn split_input_fails_part_by_part() {
    let done = run(&[&input("split.mlir"), "--split-input-file"]);
    assert_eq!(done.code(), 2);
    snapshot("split", &format!("{}---- stderr\n{}", done.text(), done.stderr));
    fails(2, "exq", &[&input("split.mlir")]);
}
