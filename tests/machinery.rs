//! Pass infrastructure: options, pipelines, errors, bisection, dumps, reproducers, contexts and
//! threads.
use kiln_dialects::{
    ir::*,
    rules::{LEVELS, Level},
};
use kiln_lowering::{
    PassError, RunOptions,
    driver::manager::{parse, split_reproducer},
    passes, run_pipeline,
};
use kiln_passes::{Numerics, Pass};
use std::{
    panic::catch_unwind,
    sync::atomic::{AtomicUsize, Ordering},
};

const TWO: &str = "func.func @a(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = kiln.neg %x : tensor<4xf32>\n  %1 = kiln.neg %0 : tensor<4xf32>\n  return %1 : tensor<4xf32>\n}\n\
    func.func @b(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = kiln.exp %x : tensor<4xf32>\n  %1 = kiln.exp %x : tensor<4xf32>\n  %2 = kiln.add %0, %1 : tensor<4xf32>\n  return %2 : tensor<4xf32>\n}";

fn module(c: &Context, text: &str) -> Module {
    crate::watchdog::arm();
    Module::parse(c.ctx(), text.as_bytes(), "test.mlir").unwrap_or_else(|e| panic!("{e}")).0
}
fn run(
    m: &Module,
    pipeline: &str,
    options: &RunOptions,
) -> Result<kiln_lowering::Report, PassError> {
    run_pipeline(m, pipeline, options, &|_, _, _| ())
}

kiln_passes::pass_options! {
    /// A pass that fails on request.
    pub struct FailOnRequest {
        /// none, fail, op, panic
        pub mood: String = "none".into(),
        /// Numbers
        pub list: Vec<usize> = vec![],
    }
}
impl Pass for FailOnRequest {
    const FLAG: &'static str = "test-moody";
    const SUMMARY: &'static str = "Fails as it is told";
    const ANCHOR: &'static str = "func.func";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;
    fn run(&self, op: Op) -> Result<()> {
        match self.mood.as_str() {
            "fail" => Err("is in a bad mood".into()),
            "op" => Err(Error::at(walk(op)[1], "is not liked")),
            "panic" => panic!("the mood is {}", self.mood),
            _ => Ok(()),
        }
    }
}
fn register() {
    kiln_passes::pass::register::<FailOnRequest>().expect("registered");
}

#[test]
fn options_survive_a_textual_round_trip() {
    let c = Context::new();
    for p in passes() {
        let rows = (p.options)();
        let defaults: Vec<&str> = rows.iter().map(|o| o.default.as_str()).collect();
        assert_eq!((p.round_trip)(&defaults).expect("defaults parse"), defaults, "{}", p.flag);
        // As upstream prints and parses them: text to pipeline to text is a fixed point.
        let given: Vec<String> = (0..rows.len())
            .map(|i| {
                let takes = |v: &&str| {
                    let mut all = defaults.clone();
                    all[i] = v;
                    (p.round_trip)(&all).is_ok()
                };
                // An empty default is no text: a level, or a list of numbers.
                let empty = || ["graph", "0"].into_iter().find(takes).expect("a value");
                let value = if defaults[i].is_empty() { empty() } else { defaults[i] };
                format!("{}={value}", rows[i].name)
            })
            .collect();
        let text = format!("builtin.module({}{{{}}})", p.flag, given.join(" "));
        let once = parse(c.ctx(), &text).unwrap_or_else(|e| panic!("{text}: {e}")).text();
        assert_eq!(parse(c.ctx(), &once).expect("parses again").text(), once);
        for o in &rows {
            assert!(once.contains(&o.name), "{once} lacks {}", o.name);
        }
    }
    register();
    let once = parse(
        c.ctx(),
        "builtin.module(func.func(test-moody{list=1,2 mood={a b}},canonicalize,cse))",
    )
    .expect("parses")
    .text();
    assert!(
        once.contains("list=1,2") && once.contains("mood={a b}") && once.contains("canonicalize"),
        "{once}"
    );
    assert_eq!(parse(c.ctx(), &once).expect("parses again").text(), once);
}

#[test]
fn typos_get_a_suggestion() {
    register();
    let c = Context::new();
    let error = |p: &str| parse(c.ctx(), p).map(|_| ()).expect_err(p).to_string();
    for (pipeline, parts) in [
        (
            "builtin.module(kiln-simplfy)",
            &["no pass 'kiln-simplfy'", "did you mean 'kiln-simplify'", "--list-passes"][..],
        ),
        (
            "builtin.module(func.func(canonicalise))",
            &["no pass 'canonicalise'", "did you mean 'canonicalize'"],
        ),
        (
            "builtin.module(kiln-simplify{fold-limt=3})",
            &["no such option fold-limt", "did you mean 'fold-limit'"],
        ),
        (
            "builtin.module(kiln-simplify{fold-limit=x})",
            &["fold-limit expects a non-negative integer, not 'x'"],
        ),
        ("builtin.module(kiln-simplify", &["does not parse"]),
        ("builtin.module(kiln-decompose{keep=gelu})", &[]),
    ] {
        if parts.is_empty() {
            continue;
        }
        let text = error(pipeline);
        assert!(parts.iter().all(|p| text.contains(p)), "{pipeline}: {text}");
    }
    let m = module(&c, TWO);
    let e = run(&m, "builtin.module(kiln-decompose{keep=gelu})", &RunOptions::default())
        .expect_err("gelu cannot stay")
        .to_string();
    assert!(e.contains("keep names 'gelu', which has no kernel strategy"), "{e}");
    let e = run(&m, "builtin.module(kiln-verify-level{level=prim})", &RunOptions::default())
        .expect_err("no level prim")
        .to_string();
    assert!(e.contains("no level 'prim'; did you mean 'prims'?"), "{e}");
}

#[test]
fn failures_name_pass_op_and_location() {
    register();
    std::panic::set_hook(Box::new(|_| ()));
    let c = Context::new();
    for (mood, parts) in [
        ("fail", &["test-moody failed", "test-moody: is in a bad mood", "test.mlir:1:1"][..]),
        ("op", &["test.mlir:2:8", "'kiln.neg' op is not liked"]),
        ("panic", &["pass test-moody on 'func.func' @a panicked: the mood is panic"]),
    ] {
        let m = module(&c, TWO);
        let e = run(
            &m,
            &format!("builtin.module(func.func(test-moody{{mood={mood}}}))"),
            &RunOptions::default(),
        )
        .expect_err(mood)
        .to_string();
        assert!(parts.iter().all(|p| e.contains(p)), "{mood}: {e}");
    }
    let _ = std::panic::take_hook();
}

#[test]
fn passes_are_timed_counted_bisected_and_disabled() {
    let c = Context::new();
    let m = module(&c, TWO);
    let report = run(&m, "builtin.module(kiln-simplify,func.func(cse))", &RunOptions::default())
        .expect("runs");
    let runs: Vec<_> = report
        .passes
        .iter()
        .map(|p| (p.pass.as_str(), p.anchor.as_str(), p.ops_before, p.ops_after, p.skipped))
        .collect();
    assert_eq!(
        runs,
        [
            ("kiln-simplify", "builtin.module", 10, 8, false),
            ("cse", "func.func", 2, 2, false),
            ("cse", "func.func", 5, 4, false)
        ]
    );
    assert!(report.seconds > 0.0 && report.table().contains("kiln-simplify"));

    let m = module(&c, TWO);
    let options = RunOptions {
        bisect_limit: Some(1),
        disable: vec!["kiln-simplify".into()],
        ..Default::default()
    };
    let report = run(&m, "builtin.module(kiln-simplify,func.func(cse))", &options).expect("runs");
    assert!(report.passes.iter().all(|p| p.skipped), "{:?}", report.passes);
    assert_eq!(walk(m.op()).len(), 10);
}

#[test]
fn dumps_are_numbered_in_a_new_folder_and_reproducers_replay() {
    register();
    let dir = tempfile::tempdir().expect("a folder");
    let c = Context::new();
    for k in 0..2 {
        let options = RunOptions { dump: Some(dir.path().join("dump")), ..Default::default() };
        let report =
            run(&module(&c, TWO), "builtin.module(kiln-simplify,func.func(cse))", &options)
                .expect("runs");
        let folder = report.dump.expect("a dump");
        assert!(folder.ends_with(format!("run-{k}")));
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .expect("files")
            .flatten()
            .map(|e| e.file_name().into_string().expect("text"))
            .collect();
        names.sort();
        assert_eq!(names, ["00-input.mlir", "01-kiln-simplify.mlir", "02-cse.mlir", "03-cse.mlir"]);
        let last = std::fs::read_to_string(folder.join("03-cse.mlir")).expect("a dump");
        assert!(
            !last.contains("kiln.neg") && last.contains("@a") && last.contains("test.mlir"),
            "{last}"
        );
    }
    let path = dir.path().join("repro.mlir");
    let options = RunOptions { reproducer: Some(path.clone()), ..Default::default() };
    let pipeline = "builtin.module(kiln-simplify,func.func(test-moody{mood=fail}))";
    let e = run(&module(&c, TWO), pipeline, &options).expect_err("fails").to_string();
    assert!(e.contains("repro.mlir"), "{e}");
    let text = std::fs::read_to_string(&path).expect("a reproducer");
    let (ir, pipeline) = split_reproducer(&text).expect("two parts");
    let again = run(&module(&c, ir), &pipeline, &RunOptions::default())
        .expect_err("fails again")
        .to_string();
    assert!(again.contains("is in a bad mood"), "{again}");
}

#[test]
fn levels_only_go_forward() {
    let c = Context::new();
    let m = module(
        &c,
        "module attributes {kiln.level = \"prims\"} { func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n %0 = kiln.gelu %x : tensor<4xf32>\n return %0 : tensor<4xf32> } }",
    );
    let e = run(&m, "builtin.module(kiln-verify-level)", &RunOptions::default())
        .expect_err("gelu is no prim")
        .to_string();
    assert!(e.contains("'kiln.gelu' op is not an op of level prims"), "{e}");
    let to = kiln_lowering::pipeline_text(Level::Graph, Level::Prims, None).expect("forward");
    run(&m, &to, &RunOptions::default()).expect("lowers");
    assert_eq!(kiln_passes::pass::level_of(m.op()), Some(Level::Prims));
    let e = kiln_lowering::pipeline_text(Level::Prims, Level::Graph, None).expect_err("backward");
    assert!(e.message.contains("level graph comes before level prims"), "{e}");
    assert_eq!(
        kiln_lowering::pipeline_text(Level::Prims, Level::Prims, None).as_deref(),
        Ok("builtin.module()")
    );
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("linux");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

/// In a child process: other tests of this binary allocate too.
#[test]
fn contexts_come_and_go_without_growth() {
    const FLAG: &str = "KILN_TEST_CONTEXTS";
    if std::env::var_os(FLAG).is_none() {
        let me = std::env::current_exe().expect("this binary");
        let out = std::process::Command::new(me)
            .args(["--exact", "machinery::contexts_come_and_go_without_growth", "--nocapture"])
            .env(FLAG, "1")
            .output();
        let out = out.expect("runs");
        assert!(
            out.status.success(),
            "{}\n{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        return;
    }
    let mut after_warm_up = 0;
    for i in 0..10_000 {
        let c = Context::new();
        // Run passes in some of them; in all it would take minutes.
        if i % 100 == 0 {
            let m = module(&c, TWO);
            run(&m, "builtin.module(kiln-simplify,cse)", &RunOptions::default()).expect("runs");
            let bad = Module::parse(c.ctx(), b"func.func @f() { %0 = kiln.add }", "bad.mlir");
            assert!(bad.is_err());
        }
        if i == 1000 {
            after_warm_up = resident_kib();
        }
    }
    let grown = resident_kib().saturating_sub(after_warm_up);
    assert!(grown < 4096, "9,000 contexts left {grown} KiB behind");
}

#[test]
fn eight_threads_compile_at_once() {
    let done = AtomicUsize::new(0);
    let expected = {
        let c = Context::new();
        let m = module(&c, TWO);
        run(
            &m,
            "builtin.module(kiln-simplify,func.func(cse),kiln-decompose)",
            &RunOptions::default(),
        )
        .expect("runs");
        m.print(PrintOptions::default())
    };
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..50 {
                    let c = Context::new();
                    let m = module(&c, TWO);
                    run(
                        &m,
                        "builtin.module(kiln-simplify,func.func(cse),kiln-decompose)",
                        &RunOptions::default(),
                    )
                    .expect("runs");
                    assert_eq!(m.print(PrintOptions::default()), expected);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 400);
}

#[test]
fn panicking_instrumentation_does_not_unwind_through_cpp() {
    let c = Context::new();
    let m = module(&c, TWO);
    let options = RunOptions {
        print_after: kiln_lowering::driver::manager::Selection::All,
        ..Default::default()
    };
    let quiet = catch_unwind(|| ()).is_ok();
    assert!(quiet);
    std::panic::set_hook(Box::new(|_| ()));
    let report = run_pipeline(&m, "builtin.module(cse)", &options, &|_, _, _| {
        panic!("the printer is wrong")
    });
    let _ = std::panic::take_hook();
    assert!(report.is_ok());
}

/// The build script that runs before that of mlir-sys says what to write where.
#[test]
fn a_build_without_mlir_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let script = dir.path().join("check");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/dialects/mlir-check/build.rs");
    let built = std::process::Command::new("rustc")
        .args(["--edition", "2024", source, "-o"])
        .arg(&script)
        .status();
    assert!(built.expect("rustc").success());
    let said = |prefix: Option<&std::path::Path>| {
        let mut command = std::process::Command::new(&script);
        command.env_remove("MLIR_SYS_220_PREFIX").env("PATH", dir.path());
        prefix.map(|p| command.env("MLIR_SYS_220_PREFIX", p));
        let out = command.output().expect("it runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, text) = said(None);
    assert!(code == Some(1) && text.contains("MLIR_SYS_220_PREFIX is not set"), "{text}");
    assert!(text.contains("[env]\n    MLIR_SYS_220_PREFIX = \"/usr/lib/llvm-22\""), "{text}");
    let (code, text) = said(Some(dir.path()));
    assert!(code == Some(1) && text.contains("where include/mlir-c/IR.h is not"), "{text}");
    let here = std::env::var_os("MLIR_SYS_220_PREFIX").expect("cargo's configuration sets it");
    assert_eq!(said(Some(here.as_ref())), (Some(0), String::new()));
}

#[test]
fn unknown_locations_are_shown() {
    let c = Context::new();
    let unknown = Loc::unknown(c.ctx());
    assert_eq!(unknown.to_string(), "unknown location");
    assert_eq!(Loc::fused(c.ctx(), &[unknown, unknown]).to_string(), "unknown location");
    let m = Module::new(unknown);
    let said = kiln_dialects::Error::at(m.op(), "has no meaning").to_string();
    assert_eq!(said, "unknown location: 'builtin.module' op has no meaning");
}
