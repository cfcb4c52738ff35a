//! Pipelines by flags, text and levels; reproducers; instrumentation.
use super::*;

/// The pipeline that flags build.
fn pipeline(args: &[&str]) -> String {
    let done = run(&[&[input("affine.mlir").as_str(), "--dump-pass-pipeline"], args].concat());
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let text = done.stderr.trim().to_string();
    regex::Regex::new(r"\{[^}]*\}").unwrap().replace_all(&text, "").into_owned()
}

#[test]
fn flags_run_in_order_and_nest_by_themselves() {
    assert_eq!(
        pipeline(&["--cse", "--kiln-simplify", "-canonicalize", "--cse"]),
        "builtin.module(cse,kiln-simplify,canonicalize,cse)"
    );
    let nested =
        pipeline(&["--cse", "--affine-loop-tile", "--affine-loop-unroll", "--canonicalize"]);
    assert_eq!(
        nested,
        "builtin.module(cse,func.func(affine-loop-tile,affine-loop-unroll),canonicalize)"
    );
    let with = run(&[
        &input("simple.mlir"),
        "--dump-pass-pipeline",
        "--kiln-simplify=fold-limit=3",
        "--kiln-decompose=keep=attention,softmax",
    ]);
    assert!(
        with.stderr.starts_with(
            "builtin.module(kiln-simplify{fold-limit=3 rounds=16},kiln-decompose{chip=none keep="
        ),
        "{}",
        with.stderr
    );
    snapshot("cleaned", &ok(&[&input("simple.mlir"), "--cse", "--canonicalize"]));
}

#[test]
fn a_textual_pipeline_is_the_same_as_flags() {
    let file = input("simple.mlir");
    let by_flags = ok(&[&file, "--cse", "--canonicalize"]);
    assert_eq!(
        ok(&[&file, "--pass-pipeline=builtin.module(func.func(cse,canonicalize))"]),
        by_flags
    );
    assert_eq!(
        ok(&[&file, "--pass-pipeline", "builtin.module(cse,canonicalize)", "--verify-each=false"]),
        by_flags
    );
}

/// Every listed flag is accepted and ends with a documented exit code, whatever the pass does.
#[test]
fn every_pass_has_a_flag() {
    let upstream = kiln::dialects::ops::UPSTREAM_PASSES
        .iter()
        .map(|p| p.0)
        .filter(|f| kiln::dialects::ffi::is_registered(f));
    let flags: Vec<&str> =
        upstream.chain(kiln::lowering::passes().iter().map(|p| p.flag)).collect();
    assert!(flags.len() > 250, "{}", flags.len());
    let folder = temporary();
    let reproducer = format!("--reproducer={}", path(&folder, "reproducer.mlir"));
    let mut crashed = vec![];
    for flag in flags {
        // This one opens a viewer.
        if flag == "view-op-graph" {
            continue;
        }
        let done = run(&[&input("affine.mlir"), &format!("--{flag}"), &reproducer]);
        assert!([0, 2, 4].contains(&done.code()), "{flag}: {}", done.stderr);
        assert!(!done.stderr.contains("there is no"), "{flag}: {}", done.stderr);
        if done.stderr.contains("crashed (") {
            crashed.push(flag);
        }
    }
    println!("passes of upstream that crash: {crashed:?}");
    assert!(crashed.len() < 10, "{crashed:?}");
}

#[test]
fn levels_are_pipelines() {
    let file = input("simple.mlir");
    let done = ok(&[&file, "--from=graph", "--to=prims", "--target=host"]);
    assert!(
        done.contains("kiln.level = \"prims\"")
            && done.contains("kiln.target = \"host\"")
            && !done.contains("kiln.silu"),
        "{done}"
    );
    assert_eq!(ok(&[&file, "--to=prims", "--target=host"]), done);
    assert_eq!(pipe(&["--to=prims"], &done).text(), done);
    fails(2, "comes before", &[&input("prims.mlir"), "--to=graph"]);
    fails(2, "the module is on level prims", &[&input("prims.mlir"), "--from=graph", "--to=prims"]);
}

#[test]
fn passes_can_be_bisected_and_disabled() {
    let file = input("simple.mlir");
    let flags = ["--cse", "--canonicalize", "--kiln-decompose"];
    let count = |more: &[&str]| {
        let done = run(&[&[file.as_str()], &flags[..], more].concat());
        (
            done.text().matches("kiln.silu").count(),
            done.text().matches("kiln.exp").count(),
            done.stderr,
        )
    };
    assert_eq!(count(&["--bisect-limit=0"]).0, 2);
    let (silu, _, said) = count(&["--bisect-limit=1"]);
    assert_eq!(silu, 1);
    assert_eq!(
        said,
        "bisect: ran 1 cse on builtin.module\nbisect: skipped 2 canonicalize on builtin.module\nbisect: skipped 3 kiln-decompose on builtin.module\n"
    );
    assert_eq!(count(&["--disable-pass=cse,canonicalize,kiln-decompose"]).0, 2);
    assert!(count(&["--disable-pass=kiln-decompose"]).2.contains("kiln-decompose is required"));
    // A pass nested on functions counts once per function.
    let nested =
        run(&[&file, "--pass-pipeline=builtin.module(func.func(cse))", "--bisect-limit=1"]);
    assert!(
        nested.stderr.contains("ran 1 cse on func.func")
            && nested.stderr.contains("skipped 2 cse on func.func"),
        "{}",
        nested.stderr
    );
}

#[test]
fn ir_is_printed_around_passes() {
    let file = input("simple.mlir");
    let seen = |args: &[&str]| {
        let done = run(&[
            &[file.as_str(), "--pass-pipeline=builtin.module(cse,func.func(canonicalize))"],
            args,
        ]
        .concat());
        assert_eq!(done.code(), 0, "{}", done.stderr);
        done.stderr
            .lines()
            .filter(|l| l.starts_with("// -----//"))
            .map(|l| l["// -----// IR Dump ".len()..l.len() - " //----- //".len()].to_string())
            .collect::<Vec<_>>()
    };
    let (a, b, c) = (
        "cse ('builtin.module' operation)",
        "canonicalize ('func.func' operation: @main)",
        "canonicalize ('func.func' operation: @other)",
    );
    assert_eq!(seen(&["--mlir-print-ir-before=cse"]), [format!("Before {a}")]);
    assert_eq!(
        seen(&["--mlir-print-ir-after=canonicalize"]),
        [format!("After {b}"), format!("After {c}")]
    );
    let all = |when: &str| [a, b, c].map(|x| format!("{when} {x}"));
    assert_eq!(seen(&["--mlir-print-ir-after-all"]), all("After"));
    assert_eq!(seen(&["--mlir-print-ir-after"]), all("After"));
    assert_eq!(seen(&["--mlir-print-ir-before-all"]), all("Before"));
    assert_eq!(seen(&["--mlir-print-ir-before", "--mlir-print-ir-after=cse"]).len(), 4);
    assert_eq!(seen(&["--mlir-print-ir-after-all", "--disable-pass=cse"]).len(), 2);
    snapshot("printed_after", &run(&[&file, "--cse", "--mlir-print-ir-after-all"]).stderr);
    let folder = temporary();
    let tree = format!("--mlir-print-ir-tree-dir={}", path(&folder, "tree"));
    assert!(seen(&[&tree]).is_empty());
    let main = folder.path().join("tree/builtin_module/func_func_main/02-after-canonicalize.mlir");
    assert!(std::fs::read_to_string(main).unwrap().contains("func.func @main"));
    assert!(folder.path().join("tree/builtin_module/01-after-cse.mlir").exists());
}

#[test]
fn dumps_are_numbered_in_a_new_folder() {
    let folder = temporary();
    let dir = format!("--dump-dir={}", path(&folder, "dumps"));
    for n in 0..2 {
        ok(&[&input("simple.mlir"), "--cse", "--canonicalize", &dir]);
        let mut names: Vec<_> = std::fs::read_dir(folder.path().join(format!("dumps/run-{n}")))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["00-input.mlir", "01-cse.mlir", "02-canonicalize.mlir"]);
    }
    // A dump can be parsed again.
    ok(&[&path(&folder, "dumps/run-0/01-cse.mlir"), "--canonicalize"]);
    fails(2, "", &[&input("simple.mlir"), "--cse", "--dump-dir=/dev/null/x"]);
}

#[test]
fn times_as_table_and_json() {
    let file = input("simple.mlir");
    let table = run(&[&file, "--cse", "--canonicalize", "--mlir-timing"]).stderr;
    snapshot("timing", &table);
    let json = run(&[&file, "--cse", "--canonicalize", "--mlir-timing=json"]).stderr;
    let times: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(times["passes"][1]["pass"], "canonicalize");
    assert!(times["parse"].as_f64().unwrap() > 0.0 && times["run"].as_f64().unwrap() > 0.0);
    fails(2, "json", &[&file, "--mlir-timing=xml"]);
}

#[test]
fn a_failing_pass_leaves_a_reproducer() {
    let folder = temporary();
    let reproducer = path(&folder, "r.mlir");
    let said = fails(
        4,
        &format!("reproducer: {reproducer}"),
        &[&input("prims.mlir"), "--cse", "--kiln-verify-level", "--reproducer", &reproducer],
    );
    snapshot("failed", &said.replace(&reproducer, "REPRODUCER"));
    let text = std::fs::read_to_string(&reproducer).unwrap();
    assert!(text.contains("pipeline: \"builtin.module(cse,kiln-verify-level"), "{text}");
    let again = fails(
        4,
        "'kiln.silu' op is not an op of level prims",
        &["--run-reproducer", &reproducer, "--reproducer", &path(&folder, "r2.mlir")],
    );
    assert!(again.contains("prims.mlir:4:10"), "{again}");
    // The default is a new file in the temporary folder.
    let said = fails(4, "reproducer: ", &[&input("prims.mlir"), "--kiln-verify-level"]);
    let name = said
        .lines()
        .find_map(|l| l.strip_prefix("reproducer: "))
        .and_then(|l| l.split(' ').next())
        .unwrap();
    std::fs::remove_file(name).unwrap();
    // mlir-opt's own reproducers replay too.
    let theirs = "func.func @f() { return }\n{-#\n  external_resources: {\n    mlir_reproducer: {\n      pipeline: \"builtin.module(cse)\",\n      disable_threading: true\n    }\n  }\n#-}\n";
    assert_eq!(pipe(&["--run-reproducer"], theirs).code(), 0);
    fails(2, "holds no pipeline", &["--run-reproducer", &input("simple.mlir")]);
}
