//! Autotuning: measurement on this machine, the table as text, and compilations with a table, for a
//! GPU too.
use kiln::{
    Options,
    autotune::{autotune, split_k::SplitKCandidates},
    dialects::{ir::*, rules::Level},
    load,
    lowering::{
        RunOptions, Schedules, Target, analysis::kernels_of, driver::schedules, pipeline_text_for,
        run_pipeline,
    },
    model::{CachePolicy, OwnedTensor},
    runtime::Program,
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const MODEL: &str =
    "func.func @main(%x: tensor<96x64xf32>, %w: tensor<80x64xf32>) -> tensor<96xf32> {
  %0 = kiln.linear %x, %w : tensor<96x64xf32>, tensor<80x64xf32>
  %1 = kiln.gelu %0 {approximate = \"none\"} : tensor<96x80xf32>
  %2 = kiln.softmax %1 axis = 1 : tensor<96x80xf32>
  %3 = kiln.reduce max %2 dims = [1] : tensor<96x80xf32>
  return %3 : tensor<96xf32>
}";

fn ones(p: &Program) -> Result<Vec<OwnedTensor>, kiln::Error> {
    let size = |t: &kiln::runtime::program::Tensor| {
        t.dims.iter().map(|d| d.value(&[], &[]).unwrap() as usize).collect::<Vec<_>>()
    };
    let one = |t: &kiln::runtime::program::Tensor| {
        let shape = size(t);
        let values =
            (0..shape.iter().product::<usize>()).map(|i| (i % 17) as f64 / 8.0 - 1.0).collect();
        OwnedTensor::from_tensor(
            &kiln::dialects::value::Tensor::floats(
                kiln::dialects::value::DType::F32,
                shape,
                values,
            )
            .unwrap(),
        )
    };
    Ok(p.inputs.iter().map(one).collect())
}

fn model(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("m.mlir");
    std::fs::write(&path, MODEL).unwrap();
    path
}

/// A budget that the number of tries ends, not time.
const ENDLESS: Duration = Duration::from_secs(24 * 3600);

/// The model's kernels at linalg, with their default schedules.
fn kernels(path: &Path, target: &Target, act: &mut dyn FnMut(&Module, Vec<Op>)) {
    let context = Context::new();
    let (module, _) = load(path).unwrap().module(&context).unwrap();
    let text = pipeline_text_for(Level::Graph, Level::Linalg, target).unwrap();
    run_pipeline(&module, &text, &RunOptions::default(), &|_, _, _| ()).unwrap();
    act(&module, kernels_of(module.op()));
}

#[test]
fn kernels_are_tuned_and_compilations_use_the_fastest() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let options = Options { cache: CachePolicy::Off, ..Options::default() };
    let mut table = Schedules::default();
    let made = autotune(&load(&path).unwrap(), &options, ENDLESS, &mut table, &ones, &|_, _, _| ())
        .unwrap();
    assert!(!made.is_empty() && made.iter().any(|t| t.tried > t.refused), "{made:?}");
    assert!(made.iter().all(|t| t.after <= t.before), "{made:?}");
    assert_eq!(Schedules::parse(&table.to_string()).unwrap(), table);

    // Nothing is measured twice.
    let mut again = table.clone();
    if made.len() == table.len() {
        let target = Target::host().unwrap();
        kernels(&path, &target, &mut |module, funcs| {
            assert!(
                funcs.iter().all(|f| !table.has(&schedules::key(*f), &target)
                    || f.attr("kiln.schedule").is_none())
            );
            assert_eq!(table.apply(module.op(), &target).unwrap(), table.len());
        });
        let more = autotune(
            &load(&path).unwrap(),
            &options,
            Duration::from_secs(0),
            &mut again,
            &ones,
            &|_, _, _| (),
        )
        .unwrap();
        assert!(more.is_empty() && again == table);
    }

    let file = folder.path().join("table");
    std::fs::write(&file, table.to_string()).unwrap();
    let run = |options: &Options| {
        let exe = load(&path).unwrap().compile(options).unwrap();
        let inputs = ones(exe.program()).unwrap();
        let mut outputs = exe.memory(&inputs).unwrap();
        exe.call_data(&inputs, &mut outputs).unwrap();
        outputs[0].tensor().unwrap()
    };
    let compared = kiln::tolerance::compare(
        &run(&Options { schedules: Some(file.clone()), ..options.clone() }),
        &run(&options),
    )
    .unwrap();
    assert!(compared.ok, "{compared}");
}

/// Compiles with autotuning and returns the number of tuned kernels.
fn tuned(path: &Path, options: &Options) -> (kiln::model::Executable, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let told = count.clone();
    let model = load(path)
        .unwrap()
        .autotune_progress(move |_, total, _| told.store(total, Ordering::Relaxed));
    let exe = model.compile(options).unwrap();
    (exe, count.load(Ordering::Relaxed))
}

fn result(exe: &kiln::model::Executable) -> kiln::dialects::value::Tensor {
    let inputs = ones(exe.program()).unwrap();
    let mut outputs = exe.memory(&inputs).unwrap();
    exe.call_data(&inputs, &mut outputs).unwrap();
    outputs[0].tensor().unwrap()
}

#[test]
fn autotuning_measures_unknown_kernels_once() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let budget = ENDLESS;
    let cached = |name: &str| Options {
        cache: CachePolicy::Dir(folder.path().join(name)),
        max_autotune: true,
        autotune_budget: budget,
        ..Options::default()
    };
    let options = cached("cache");
    let (first, measured) = tuned(&path, &options);
    assert!(measured > 0 && first.times().compile.is_some(), "{:?}", first.times());
    let file = folder.path().join("cache/autotune.txt");
    let table = Schedules::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(!table.is_empty());
    let plain =
        load(&path).unwrap().compile(&Options { max_autotune: false, ..options.clone() }).unwrap();
    let compared = kiln::tolerance::compare(&result(&first), &result(&plain)).unwrap();
    assert!(compared.ok, "{compared}");

    // What the time limit left is measured later; then all is known, and the program comes from the
    // cache.
    let mut kernels = table.len();
    for _ in 0..measured {
        let (again, more) = tuned(&path, &options);
        let table = Schedules::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(more > 0, table.len() > kernels, "{table}");
        kernels = table.len();
        if more == 0 {
            assert!(
                again.times().compile.is_none() && again.times().tuning.is_empty(),
                "{:?}",
                again.times()
            );
            break;
        }
    }
    assert_eq!(kernels, measured);

    // On another machine of this kind the table suffices, and the program has its schedules.
    let shipped = Options { schedules: Some(file.clone()), ..cached("other") };
    let (other, more) = tuned(&path, &shipped);
    assert!(more == 0 && other.times().compile.is_some());
    // An entry of another model does not affect this program; one of its kernels does.
    let mut lines = table.to_string();
    lines += "another\tcuda:sm_90a\t1.0\tx\n";
    std::fs::write(&file, &lines).unwrap();
    assert!(tuned(&path, &shipped).0.times().compile.is_none());
}

#[test]
fn without_a_device_for_the_target_schedules_are_the_default_ones() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let options = Options {
        target: Some("cuda:sm_90a".into()),
        cache: CachePolicy::Dir(folder.path().join("cache")),
        max_autotune: true,
        ..Options::default()
    };
    let (package, times) = load(&path).unwrap().build(&options, &|_, _| ()).unwrap();
    assert!(
        times.tuning.len() == 1 && times.tuning[0].contains("no GPU is named as the device"),
        "{:?}",
        times.tuning
    );
    let (plain, _) = load(&path)
        .unwrap()
        .build(&Options { max_autotune: false, ..options }, &|_, _| ())
        .unwrap();
    assert_eq!(package.program, plain.program);
}

#[test]
fn the_command_line_tunes_merges_and_logs() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.mlir");
    let text = "func.func @main(%x: tensor<64x48xf32>) -> tensor<64xf32> {
        %0 = kiln.reduce max %x dims = [1] : tensor<64x48xf32>
        return %0 : tensor<64xf32>\n}";
    std::fs::write(&path, text).unwrap();
    let kiln = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"));
        command
            .args(arguments)
            .current_dir(folder.path())
            .env("KILN_CACHE_DIR", folder.path().join("cache"))
            .env("KILN_LOG", "autotune");
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{said}");
        // The log goes to stderr, and without a terminal there is no progress bar.
        said
    };
    let said = kiln(&[
        "run",
        "small.mlir",
        "--mode",
        "max-autotune",
        "--autotune-budget",
        "86400",
        "--option",
        "autotune_candidates=4",
        "--repeat",
        "1",
    ]);
    let lines = |what: &str| said.lines().filter(|l| l.contains(what)).count();
    assert!(
        said.contains("1 kernels to measure for x86_64")
            && lines("the default") == 1
            && lines("tried,") == 1,
        "{said}"
    );
    assert!(lines(" us, #kiln.schedule") + lines("refused, #kiln.schedule") > 1, "{said}");
    let again =
        kiln(&["run", "small.mlir", "--mode", "max-autotune-no-cudagraphs", "--repeat", "1"]);
    assert!(!again.contains("to measure") && !again.contains(" us"), "{again}");

    std::fs::write(folder.path().join("a"), "k\tcuda:sm_90a\t2.0\tslow\n").unwrap();
    std::fs::write(
        folder.path().join("b"),
        "k\tcuda:sm_90a\t1.0\tfast\nl\tcuda:sm_90a\t1.0\tone\n",
    )
    .unwrap();
    kiln(&["tune", "--merge", "a", "--merge", "b", "-o", "both"]);
    let both = std::fs::read_to_string(folder.path().join("both")).unwrap();
    assert_eq!(both, "k\tcuda:sm_90a\t1.000\tfast\nl\tcuda:sm_90a\t1.000\tone\n");
}

#[test]
fn compiled_functions_are_autotuned() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap().to_string();
    let f = kiln::compile(|x: kiln::Tensor| x.relu() * 2).mode("max-autotune").options([
        ("cache_dir", dir.as_str()),
        ("autotune_budget", "86400"),
        ("autotune_candidates", "2"),
    ]);
    let x = kiln::Tensor::from_slice(&[4], &[-1f32, 0.0, 1.0, 2.0]).unwrap();
    assert_eq!(f.call(x).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0, 2.0, 4.0]);
    let text = std::fs::read_to_string(folder.path().join("autotune.txt")).unwrap();
    assert!(
        !Schedules::parse(&text).unwrap().is_empty()
            && !f.explain().to_string().contains("autotune:"),
        "{text}"
    );
}

#[test]
fn a_table_is_text_with_a_line_for_each_kernel() {
    let text =
        "# a remark\n\na\tcuda:sm_90a\t2.5\tx\na\tcuda:sm_90a\t1.5\ty\nb\tcuda:sm_80\t3\tz\n";
    let table = Schedules::parse(text).unwrap();
    assert_eq!(table.to_string(), "a\tcuda:sm_90a\t1.500\ty\nb\tcuda:sm_80\t3.000\tz\n");
    for (text, why) in [
        ("a b c d", "line 1 has 1 fields"),
        ("\na\tb\tc\td", "line 2 has no number of microseconds"),
    ] {
        assert!(Schedules::parse(text).unwrap_err().starts_with(why));
    }
}

#[test]
fn a_machine_without_a_gpu_compiles_with_a_table() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let text = "func.func @main(%x: tensor<512x512xbf16>, %w: tensor<512x512xbf16>) -> tensor<512x512xbf16> {
        %0 = kiln.linear %x, %w : tensor<512x512xbf16>, tensor<512x512xbf16>
        return %0 : tensor<512x512xbf16>\n}";
    std::fs::write(&path, text).unwrap();
    let target = Target::parse("cuda:sm_90a").unwrap();
    let schedule = |m: i64| {
        format!(
            "#kiln.schedule<\"wgmma_gemm\", {{block_k = 64 : i64, block_m = {m} : i64, block_n = 64 : i64, ctas_per_sm = 0 : i64, split_k = 1 : i64, stages = 4 : i64}}>"
        )
    };
    let mut own = String::new();
    kernels(&path, &target, &mut |_, funcs| own = schedules::key(funcs[0]));
    let file = folder.path().join("table");
    for (m, threads) in [(64, 256), (128, 384)] {
        std::fs::write(&file, format!("{own}\tcuda:sm_90a\t5.0\t{}\n", schedule(m))).unwrap();
        let options = Options {
            target: Some("cuda:sm_90a".into()),
            cache: CachePolicy::Off,
            schedules: Some(file.clone()),
            ..Options::default()
        };
        let (package, _) = load(&path).unwrap().build(&options, &|_, _| ()).unwrap();
        assert_eq!(package.program.kernels[0].launch.as_ref().unwrap().threads, threads);
        // Entries of another chip do not apply.
        let (other, _) = load(&path)
            .unwrap()
            .build(&Options { target: Some("cuda:sm_80".into()), ..options }, &|_, _| ())
            .unwrap();
        assert!(other.objects.values().any(|p| String::from_utf8_lossy(p).contains("mma.sync")));
    }
}

#[test]
fn split_k_follows_the_table() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    let text = "func.func @main(%x: tensor<64x4096xbf16>, %w: tensor<128x4096xbf16>) -> tensor<64x128xbf16> {
        %0 = kiln.linear %x, %w : tensor<64x4096xbf16>, tensor<128x4096xbf16>
        return %0 : tensor<64x128xbf16>\n}";
    std::fs::write(&path, text).unwrap();
    let (target, options) = (
        Target::parse("cuda:sm_90a").unwrap(),
        Options { cache: CachePolicy::Off, ..Options::default() },
    );
    let products = SplitKCandidates::of(&load(&path).unwrap(), &options, &target).unwrap();
    let keys: Vec<&str> = products.keys().collect();
    let [key] = keys[..] else { panic!("{keys:?}") };
    assert!(key.starts_with("parts tensor<64x4096xbf16> tensor<128x4096xbf16>"), "{key}");
    let file = folder.path().join("table");
    for (parts, launches) in [(1, 1), (4, 2), (64, 2)] {
        std::fs::write(&file, format!("{key}\tcuda:sm_90a\t5.0\t{parts}\n")).unwrap();
        let options = Options {
            target: Some("cuda:sm_90a".into()),
            schedules: Some(file.clone()),
            ..options.clone()
        };
        let (package, _) = load(&path).unwrap().build(&options, &|_, _| ()).unwrap();
        let program = package.program;
        assert_eq!(program.kernels.len(), launches);
        // Partial sums are stored in f32.
        let bytes = if launches == 1 { 0 } else { parts * 64 * 128 * 4 };
        assert_eq!(program.arena, kiln::runtime::program::Dim::Known(bytes));
    }
}

#[test]
fn neighbour_schedules_are_distinct() {
    let context = Context::new();
    let c = context.ctx();
    let (module, _) = Module::parse(c, b"func.func private @k()", "k.mlir").unwrap();
    let func = kiln::dialects::ir::walk(module.op())[1];
    let target = Target::parse("cuda:sm_90a").unwrap();
    let candidates = |text: &str| {
        let schedule = Attr::parse(c, text).unwrap();
        schedules::candidates(func, schedule, &target).map_err(|f| f.message).unwrap()
    };
    let text = "#kiln.schedule<\"skinny_gemm\", {block_m = 16 : i64, prefetch = 0 : i64, stages = 0 : i64, unroll = 2 : i64, warps = 1 : i64}>";
    let made: Vec<String> = candidates(text).iter().map(ToString::to_string).collect();
    // block_m = 8 is outside of its domain.
    assert_eq!(made.len(), 4, "{made:?}");
    assert!(
        !made.contains(&text.to_string())
            && made.iter().any(|m| m.contains("warps = 2"))
            && !made.iter().any(|m| m.contains("warps = 0"))
    );
    let text = "#kiln.schedule<\"transpose\", {threads = 256 : i64, tile_columns = 32 : i64, tile_rows = 32 : i64, vector = 4 : i64}>";
    let made: Vec<String> = candidates(text).iter().map(ToString::to_string).collect();
    let tile = |down: i64, over: i64| {
        made.iter()
            .any(|m| m.contains(&format!("tile_columns = {over} : i64, tile_rows = {down} : i64")))
    };
    assert!(
        tile(64, 64)
            && tile(128, 128)
            && tile(16, 32)
            && tile(32, 64)
            && !made.contains(&text.to_string()),
        "{made:?}"
    );
}
