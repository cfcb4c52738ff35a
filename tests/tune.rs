//! Measured schedules: measuring on this machine, the table as text, and that a compilation takes what stands there, for a GPU too.
use kiln::{
    Options,
    autotune::autotune,
    dialects::{ir::*, rules::Level},
    load,
    lowering::{RunOptions, Schedules, Target, host::kernels_of, pipeline_text_for, run_pipeline, schedules},
    model::{CachePolicy, Data},
    runtime::Program,
};
use std::{path::Path, time::Duration};

const MODEL: &str = "func.func @main(%x: tensor<96x64xf32>, %w: tensor<80x64xf32>) -> tensor<96xf32> {
  %0 = kiln.linear %x, %w : tensor<96x64xf32>, tensor<80x64xf32>
  %1 = kiln.gelu %0 {approximate = \"none\"} : tensor<96x80xf32>
  %2 = kiln.softmax %1 axis = 1 : tensor<96x80xf32>
  %3 = kiln.reduce max %2 dims = [1] : tensor<96x80xf32>
  return %3 : tensor<96xf32>
}";

fn ones(p: &Program) -> Result<Vec<Data>, kiln::Error> {
    let size = |t: &kiln::runtime::program::Tensor| t.dims.iter().map(|d| d.value(&[], &[]).unwrap() as usize).collect::<Vec<_>>();
    let one = |t: &kiln::runtime::program::Tensor| {
        let shape = size(t);
        let values = (0..shape.iter().product::<usize>()).map(|i| (i % 17) as f64 / 8.0 - 1.0).collect();
        Data::of(&kiln::dialects::value::Tensor::floats(kiln::dialects::value::DType::F32, shape, values).unwrap())
    };
    Ok(p.inputs.iter().map(one).collect())
}

fn model(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("m.mlir");
    std::fs::write(&path, MODEL).unwrap();
    path
}

/// The model's kernels at linalg, and the schedule that each gets by itself.
fn kernels(path: &Path, target: &Target, act: &mut dyn FnMut(&Module, Vec<Op>)) {
    let context = Context::new();
    let (module, _) = load(path).unwrap().module(&context).unwrap();
    let text = pipeline_text_for(Level::Graph, Level::Linalg, target).unwrap();
    run_pipeline(&module, &text, &RunOptions::default(), &|_, _, _| ()).unwrap();
    act(&module, kernels_of(module.op()));
}

#[test]
fn kernels_are_measured_and_compilations_take_the_fastest() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let options = Options { cache: CachePolicy::Off, ..Options::default() };
    let mut table = Schedules::default();
    let made = autotune(&load(&path).unwrap(), &options, Duration::from_secs(2), &mut table, &ones, &|_, _, _| ()).unwrap();
    assert!(!made.is_empty() && made.iter().any(|t| t.tried > t.refused), "{made:?}");
    assert!(made.iter().all(|t| t.after <= t.before), "{made:?}");
    assert_eq!(Schedules::parse(&table.to_string()).unwrap(), table);

    // Nothing is measured twice.
    let mut again = table.clone();
    if made.len() == table.len() {
        let target = Target::host().unwrap();
        kernels(&path, &target, &mut |module, funcs| {
            assert!(funcs.iter().all(|f| !table.has(&schedules::key(*f), &target) || f.attr("kiln.schedule").is_none()));
            assert_eq!(table.apply(module.op(), &target).unwrap(), table.len());
        });
        let more = autotune(&load(&path).unwrap(), &options, Duration::from_secs(0), &mut again, &ones, &|_, _, _| ()).unwrap();
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
    let compared = kiln::tolerance::compare(&run(&Options { schedules: Some(file.clone()), ..options.clone() }), &run(&options)).unwrap();
    assert!(compared.ok, "{compared}");
}

#[test]
fn a_table_is_text_with_a_line_for_each_kernel() {
    let text = "# a remark\n\na\tcuda:sm_90a\t2.5\tx\na\tcuda:sm_90a\t1.5\ty\nb\tcuda:sm_80\t3\tz\n";
    let table = Schedules::parse(text).unwrap();
    assert_eq!(table.to_string(), "a\tcuda:sm_90a\t1.500\ty\nb\tcuda:sm_80\t3.000\tz\n");
    for (text, why) in [("a b c d", "line 1 has 1 fields"), ("\na\tb\tc\td", "line 2 has no number of microseconds")] {
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
    let schedule =
        |m: i64| format!("#kiln.schedule<\"wgmma\", {{k = 64 : i64, m = {m} : i64, n = 64 : i64, resident = 0 : i64, stages = 4 : i64}}>");
    let mut own = String::new();
    kernels(&path, &target, &mut |_, funcs| own = schedules::key(funcs[0]));
    let file = folder.path().join("table");
    for (m, threads) in [(64, 256), (128, 384)] {
        std::fs::write(&file, format!("{own}\tcuda:sm_90a\t5.0\t{}\n", schedule(m))).unwrap();
        let options =
            Options { target: Some("cuda:sm_90a".into()), cache: CachePolicy::Off, schedules: Some(file.clone()), ..Options::default() };
        let (package, _) = load(&path).unwrap().build(&options, &|_, _| ()).unwrap();
        assert_eq!(package.program.kernels[0].launch.as_ref().unwrap().threads, threads);
        // Of another chip's kernels it says nothing.
        let (other, _) = load(&path).unwrap().build(&Options { target: Some("cuda:sm_80".into()), ..options }, &|_, _| ()).unwrap();
        assert!(other.objects.values().any(|p| String::from_utf8_lossy(p).contains("mma.sync")));
    }
}

#[test]
fn neighbours_of_a_schedule_differ_from_it() {
    let context = Context::new();
    let c = context.ctx();
    let text = "#kiln.schedule<\"few\", {pieces = 2 : i64, rows = 16 : i64, warps = 1 : i64}>";
    let made: Vec<String> = schedules::variants(Attr::parse(c, text).unwrap(), c).iter().map(ToString::to_string).collect();
    assert_eq!(made.len(), 5, "{made:?}");
    assert!(
        !made.contains(&text.to_string()) && made.iter().any(|m| m.contains("warps = 2")) && !made.iter().any(|m| m.contains("warps = 0"))
    );
}
