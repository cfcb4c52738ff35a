//! User passes run like those of the pipeline, wherever they are inserted.
use super::{AddForSub, CANCELLED, SOURCE, inserted, registered, source};
use crate::run::options;
use kiln::{
    Error, Options, debug,
    dialects::ir::{Context, Module},
    load,
    lowering::{
        CancellationError, CancellationToken, RunOptions, driver::compile::CompileError,
        run_pipeline,
    },
    passes::Pass,
};

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
