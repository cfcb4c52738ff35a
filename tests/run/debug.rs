//! Debugging wrong or slow compilations: bisect, reduce, ablate, dumps.
use super::{agree, file, models, options};
use kiln::{
    Error, Options, debug,
    dialects::{
        ir::{Context, Module, Op, arith, walk},
        rules::Level,
    },
    load,
    lowering::{
        CancellationError, CancellationToken, RunOptions, UserPasses,
        driver::compile::CompileError, run_pipeline,
    },
    passes::{Numerics, Pass, pass, pass_options},
};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

// A wrong pass: it swaps the operands of subtractions.
pass_options! {
    /// The pass.
    pub struct SwapSub {}
}

impl Pass for SwapSub {
    const FLAG: &'static str = "test-swap-sub";
    const SUMMARY: &'static str = "Swaps operands of subtractions, which is wrong";
    const LEVELS: &'static [Level] = &[Level::Graph, Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;
    fn run(&self, op: Op) -> kiln::passes::Result<()> {
        for sub in walk(op).into_iter().filter(|o| o.is("kiln.sub")) {
            let (a, b) = (sub.operand(0), sub.operand(1));
            sub.set_operand(0, b);
            sub.set_operand(1, a);
        }
        Ok(())
    }
}

// A wrong pass on kernels: it turns linalg subtractions into additions.
pass_options! {
    /// The pass.
    pub struct AddForSub {}
}

impl Pass for AddForSub {
    const FLAG: &'static str = "test-add-for-sub";
    const SUMMARY: &'static str = "Adds where a kernel subtracts, which is wrong";
    const LEVELS: &'static [Level] = &[Level::Linalg, Level::Scheduled];
    const NUMERICS: Numerics = Numerics::Exact;
    fn run(&self, op: Op) -> kiln::passes::Result<()> {
        for sub in walk(op).into_iter().filter(|o| o.isa::<arith::SubF>()) {
            let b = kiln::dialects::ir::Builder::before(sub).ok_or("it is in no block")?;
            sub.result(0).replace_uses(arith::addf(b, sub.operand(0), sub.operand(1))?);
            sub.erase();
        }
        Ok(())
    }
}

/// The token that [`Cancel`] cancels.
static CANCELLED: Mutex<Option<CancellationToken>> = Mutex::new(None);
// A pass during which the compilation is cancelled.
pass_options! {
    /// The pass.
    pub struct Cancel {}
}

impl Pass for Cancel {
    const FLAG: &'static str = "test-cancel";
    const SUMMARY: &'static str = "Ends the compilation";
    const LEVELS: &'static [Level] = &[Level::Graph, Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;
    fn run(&self, _: Op) -> kiln::passes::Result<()> {
        CANCELLED.lock().unwrap().iter().for_each(CancellationToken::cancel);
        Ok(())
    }
}

fn registered() {
    pass::register::<Cancel>().expect("registered");
    pass::register::<SwapSub>().expect("registered");
    pass::register::<AddForSub>().expect("registered");
}

fn inserted(behind: &str, pass: &str) -> Options {
    registered();
    Options {
        passes: UserPasses::parse(&format!("{behind}: {pass}")).expect("passes"),
        ..options(2)
    }
}

const SOURCE: &str = "module attributes {kiln.level = \"graph\"} {
  func.func @main(%x: tensor<8x32xf32>, %y: tensor<32x16xf32>, %z: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8xf32>, tensor<8x32xf32>) {
    %0 = kiln.exp %x : tensor<8x32xf32>
    %1 = kiln.matmul %0, %y : tensor<8x32xf32>, tensor<32x16xf32>
    %2 = kiln.tanh %1 : tensor<8x16xf32>
    %3 = kiln.sub %2, %z : tensor<8x16xf32>
    %4 = kiln.mul %3, %3 : tensor<8x16xf32>
    %5 = kiln.softmax %3 axis = 1 : tensor<8x16xf32>
    %6 = kiln.reduce sum %4 dims = [1] : tensor<8x16xf32>
    %7 = kiln.add %5, %3 : tensor<8x16xf32>
    return %7, %6, %0 : tensor<8x16xf32>, tensor<8xf32>, tensor<8x32xf32>
  }
}
";

fn source(dir: &Path) -> PathBuf {
    let path = dir.join("model.mlir");
    std::fs::write(&path, SOURCE).unwrap();
    path
}

#[test]
fn bisect_finds_nothing_in_a_correct_pipeline() {
    crate::watchdog::arm();
    let found = debug::bisect(&load(models().join("mlp.pt2")).unwrap(), &options(2), None).unwrap();
    assert_eq!(found, debug::Bisection::default(), "{found}");
}

#[test]
fn bisect_finds_a_wrong_pass_above_the_kernels() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let model = load(source(dir.path())).unwrap();
    let found =
        debug::bisect(&model, &inserted("kiln-reciprocals", "test-swap-sub"), None).unwrap();
    assert!(found.mismatch.is_some(), "{found}");
    assert_eq!(found.pass.as_ref().map(|p| p.0.as_str()), Some("test-swap-sub"), "{found}");
    // Each kernel computes what the wrong graph says.
    assert!(found.kernel.is_none(), "{found}");
}

#[test]
fn bisect_finds_a_wrong_kernel_and_its_op() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let model = load(source(dir.path())).unwrap();
    let found =
        debug::bisect(&model, &inserted("kiln-to-linalg", "test-add-for-sub"), None).unwrap();
    assert_eq!(found.pass.as_ref().map(|p| p.0.as_str()), Some("test-add-for-sub"), "{found}");
    assert!(found.kernel.is_some(), "{found}");
    assert!(found.op.as_ref().is_some_and(|o| o.0.starts_with("kiln.sub")), "{found}");
}

/// On a level and after a pass alike: in order, timed, dumped, disabled by flag, cancelled, a row
/// of ablate, found by bisect.
#[test]
fn user_passes_run_like_builtin_ones() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let model = load(source(dir.path())).unwrap();
    for place in ["prims", "kiln-reciprocals"] {
        let options = inserted(place, "test-swap-sub");
        let exe = model
            .compile(&Options { dump: Some(dir.path().join(place)), ..options.clone() })
            .unwrap();
        let ran: Vec<(&str, usize)> = exe
            .times()
            .compile
            .iter()
            .flat_map(|c| &c.passes)
            .map(|p| (p.pass.as_str(), p.runs))
            .filter(|p| p.0.starts_with("test"))
            .collect();
        assert_eq!(ran, [("test-swap-sub", 1)], "{place}");
        let dumped = exe.times().dump.clone().unwrap().join("graph/run-0");
        let names: Vec<String> = std::fs::read_dir(dumped)
            .unwrap()
            .map(|f| f.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names.iter().filter(|n| n.ends_with("-test-swap-sub.mlir")).count(),
            1,
            "{names:?}"
        );
        let found = debug::bisect(&model, &options, None).unwrap();
        assert_eq!(found.pass.as_ref().map(|p| p.0.as_str()), Some("test-swap-sub"), "{found}");
        let without = Options { disable: vec!["test-swap-sub".into()], ..options };
        assert_eq!(
            debug::bisect(&model, &without, None).unwrap(),
            debug::Bisection::default(),
            "{place}"
        );
    }
    let rows = debug::ablate(
        &model,
        &inserted("prims", "test-swap-sub"),
        None,
        std::time::Duration::from_millis(1),
    )
    .unwrap()
    .rows;
    assert!(
        rows.iter().any(|r| r.without.as_deref() == Some("test-swap-sub") && r.measured.is_ok()),
        "no row"
    );
    // Passes after the cancellation do not run.
    let stop = CancellationToken::new();
    *CANCELLED.lock().unwrap() = Some(stop.clone());
    let ended = model
        .compile(&Options { cancellation: stop, ..inserted("graph", "test-cancel,no-such-pass") })
        .err()
        .expect("an error");
    assert!(ended.to_string().contains("no-such-pass"), "{ended}");
    let stop = CANCELLED.lock().unwrap().clone().unwrap();
    let ended = model
        .compile(&Options {
            cancellation: stop,
            ..inserted("graph", "test-cancel,test-add-for-sub")
        })
        .err()
        .expect("an error");
    assert!(
        matches!(ended, Error::Compile(CompileError::Cancelled(CancellationError::Cancelled))),
        "{ended}"
    );
    *CANCELLED.lock().unwrap() = None;
}

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

/// On GPU kernels too, after a pass that runs per kernel.
#[test]
fn user_passes_run_on_gpu_kernels() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let subtractions = |options: &Options| {
        let options = Options { target: Some("cuda:sm_80".into()), ..options.clone() };
        let (package, report) = load(source(dir.path()))
            .unwrap()
            .build(&options, &|_, _| ())
            .unwrap_or_else(|e| panic!("{e}"));
        let texts = package.objects.values().map(|ptx| String::from_utf8_lossy(ptx).into_owned());
        (
            texts.filter(|t| t.contains("\tsub.")).count(),
            report
                .compile
                .expect("it is compiled")
                .passes
                .iter()
                .filter(|p| p.pass == AddForSub::FLAG)
                .map(|p| p.runs)
                .sum::<usize>(),
        )
    };
    let (without, runs) = subtractions(&options(2));
    assert!(without > 0 && runs == 0, "{without} {runs}");
    let (with, runs) = subtractions(&inserted("kiln-gpu-schedule", AddForSub::FLAG));
    assert!(with < without && runs > 0, "{with} of {without}, {runs} runs");
}

#[test]
fn ablation_has_a_row_for_each_optional_pass() {
    crate::watchdog::arm();
    let model = load(models().join("mlp.pt2")).unwrap();
    let found =
        debug::ablate(&model, &options(2), None, std::time::Duration::from_millis(1)).unwrap();
    let row = |name: &str| {
        found
            .rows
            .iter()
            .find(|r| r.without.as_deref() == Some(name))
            .and_then(|r| r.measured.as_ref().ok())
    };
    let whole = found.rows[0].measured.as_ref().expect("it compiles");
    for name in ["kiln-simplify", "canonicalize", "kiln-pack", "kiln-in-place"] {
        assert!(
            found.rows.iter().any(|r| r.without.as_deref() == Some(name)),
            "no row without {name}\n{found}"
        );
    }
    assert!(
        row("kiln-pack").is_some_and(|m| m.launches > 0 && !m.call.is_zero()) && whole.kernels > 0,
        "{found}"
    );
    assert!(found.to_string().contains("(nothing)"), "{found}");
    // What a pipeline is wrong without is not left out.
    let required = |f: &str| kiln::lowering::passes().iter().any(|p| p.flag == f && p.required);
    assert!(required("kiln-refine-shapes"));
    let left_out = || found.rows.iter().filter_map(|r| r.without.as_deref());
    assert!(left_out().all(|f| !required(f)), "{found}");
}

/// A dump has every pass, standalone kernels, times, and a page with complete data.
#[test]
fn a_dump_is_complete() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let with = Options { dump: Some(dir.path().join("dump")), ..options(2) };
    for n in 0..2 {
        let with = Options { diagram: n == 1, ..with.clone() };
        let exe = load(models().join("mlp.pt2")).unwrap().compile(&with).unwrap();
        agree(&exe, &file("mlp"), "with a dump");
        assert!(dir.path().join(format!("dump/mlp-{n}")).is_dir(), "each compilation has a folder");
    }
    let folder = dir.path().join("dump/mlp-0");
    assert!(!folder.join("graph.svg").exists());
    let diagram = std::fs::read_to_string(dir.path().join("dump/mlp-1/graph.svg")).unwrap();
    assert!(diagram.starts_with("<svg") && diagram.contains(" µs · f32 "), "{diagram}");
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    let data = page
        .split("<script id=\"data\" type=\"application/json\">")
        .nth(1)
        .and_then(|s| s.split("</script>").next())
        .expect("data");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert!(
        !page.contains("http://")
            || page.matches("http://").count()
                == page.matches("http://www.w3.org/2000/svg").count(),
        "it needs the net"
    );
    let passes: Vec<&str> =
        data["passes"].as_array().unwrap().iter().filter_map(|p| p["pass"].as_str()).collect();
    for flag in [
        "input",
        "kiln-simplify",
        "kiln-fuse",
        "kiln-to-linalg",
        "kiln-tile",
        "kiln-plan",
        "kiln-host-abi",
    ] {
        assert!(passes.contains(&flag), "no {flag} in {passes:?}");
    }
    let texts = super::page::texts(&page);
    let known = |p: &serde_json::Value| p["after"].as_u64().map(|i| (i as usize) < texts.len());
    assert!(data["passes"].as_array().unwrap().iter().all(|p| known(p) == Some(true)));
    assert!(texts.iter().all(|t| !t.contains(" loc(")), "places are left out");
    let timings: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("timings.json")).unwrap()).unwrap();
    assert!(timings["passes"].as_array().is_some_and(|p| p.len() > 20), "{timings}");
    let kernels = data["kernels"].as_array().unwrap();
    assert!(
        !kernels.is_empty()
            && kernels.iter().all(|k| k["time_us"].as_f64().is_some_and(|t| t > 0.0)),
        "{kernels:?}"
    );
    for k in kernels {
        let file = k["file"].as_str().expect("a file");
        let out = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["bench", file, "--seconds", "0.001", "--no-cache"])
            .output()
            .expect("it runs");
        assert!(out.status.success(), "{file}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// For control flow, a dump and `KILN_LOG`'s page have the kernels of every called program, with
/// their sizes.
#[test]
fn a_dump_has_the_kernels_of_control_flow() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("loop.mlir");
    std::fs::write(&model, super::LOOP).unwrap();
    let exe = load(&model)
        .unwrap()
        .compile(&Options { dump: Some(dir.path().join("dump")), ..options(1) })
        .unwrap();
    assert!(exe.program().control.is_some() && exe.program().kernels.is_empty());
    let timings = std::fs::read(dir.path().join("dump/loop-0/timings.json")).unwrap();
    let timings: serde_json::Value = serde_json::from_slice(&timings).unwrap();
    let kernels = timings["kernels"].as_array().unwrap();
    let bytes: Vec<&str> = kernels.iter().filter_map(|k| k["bytes"].as_str()).collect();
    // The exponential of 5 rows of 8, and a step: a row, the loop-carried values, and the sum.
    assert_eq!(bytes, ["320", "96"], "{timings}");
    assert!(
        kernels.iter().all(|k| k["time_us"].as_f64() > Some(0.0) && k["file"].is_string()),
        "{timings}"
    );
    assert_eq!(kiln::dump::svg(exe.program(), &[]).matches("class=\"launch\"").count(), 2);
}

/// Passes outside the pipeline run where they are inserted.
#[test]
fn an_inserted_pass_runs() {
    registered();
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), SOURCE.as_bytes(), "model.mlir").unwrap();
    run_pipeline(&module, "builtin.module(test-swap-sub)", &RunOptions::default(), &|_, _, _| ())
        .unwrap();
    assert!(module.op().to_string().contains("kiln.sub %arg2, %"), "{}", module.op());
}
