//! Control flow in GPU programs.
use super::*;
use crate::front::control::looping;
use kiln::{
    Model,
    dialects::{
        ir::{Context, Module},
        rules::SIZE_RESULTS,
    },
    runtime::control::{Body, Step},
};

/// The package's description of each launch, and the locations of its steps.
fn package_launches(package: &Package, chip: &str) {
    let p = &package.program;
    let control = p.control.as_deref().expect("control flow");
    assert!(p.kernels.is_empty() && !control.parts.is_empty());
    for part in p.parts() {
        assert_eq!((part.target.arch.as_str(), part.target.cpu.as_str()), ("cuda", chip));
        for k in &part.kernels {
            assert!(
                k.launch.is_some() && package.objects.contains_key(&k.symbol),
                "{} of {}",
                k.name,
                part.name
            );
        }
    }
    let wrong = assembled(package, chip);
    assert!(wrong.is_empty(), "{chip}:\n{}", wrong.join("\n"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.kpkg");
    package.save(&path).unwrap();
    assert_eq!(Package::load(&path).unwrap(), *package);
}

/// The op and source location of all steps except calls.
fn steps(body: &Body, all: &mut Vec<(&'static str, String)>) {
    for step in &body.steps {
        match step {
            Step::Call { .. } => {}
            Step::If { then, otherwise, source, .. } => {
                all.push(("if", source.clone()));
                [then, otherwise].into_iter().for_each(|b| steps(b, all));
            }
            Step::While { condition, body, source, .. } => {
                all.push(("while", source.clone()));
                [condition, body].into_iter().for_each(|b| steps(b, all));
            }
            Step::Scan { body, source, .. } => {
                all.push(("scan", source.clone()));
                steps(body, all);
            }
            Step::UnbackedSize { source, .. } => all.push(("size", source.clone())),
            Step::Custom { source, .. } => all.push(("custom", source.clone())),
        }
    }
}

#[test]
fn exported_control_flow_becomes_ptx() {
    for chip in ["sm_90a", "sm_80"] {
        crate::watchdog::arm();
        package_launches(
            &build(&crate::capture::root().join("capture/control.pt2"), chip).unwrap(),
            chip,
        );
    }
}

#[test]
fn loops_are_plain_data_with_locations() {
    crate::watchdog::arm();
    let traced = looping();
    let model = Model::from_module(traced.module(), Path::new(""));
    let (package, _) = model.build(&options("sm_90a"), &|_, _| ()).unwrap();
    package_launches(&package, "sm_90a");
    let mut all = vec![];
    steps(&package.program.control.as_deref().unwrap().body, &mut all);
    assert!(
        all.len() == 1
            && all[0].0 == "while"
            && all[0].1.contains("while_loop")
            && all[0].1.contains("control.rs:"),
        "{all:?}"
    );
}

const MODULE: &str = r#"
func.func @f(%c: tensor<i1>, %x: tensor<6x5xf32>) -> (tensor<6x5xf32>, tensor<5xf32>) {
  %y = kiln.custom_call "test::of_a_gpu"(%x) : (tensor<6x5xf32>) -> tensor<6x5xf32>
  %z = kiln.if %c : tensor<i1> -> tensor<6x5xf32> {
    %e = kiln.exp %y : tensor<6x5xf32>
    kiln.yield %e : tensor<6x5xf32>
  } else {
    kiln.yield %x : tensor<6x5xf32>
  }
  %0 = kiln.constant dense<0.0> : tensor<5xf32>
  %1:2 = kiln.scan inits(%0 : tensor<5xf32>) over(%z : tensor<6x5xf32>) -> tensor<5xf32>, tensor<6x5xf32> {
  ^bb0(%carried: tensor<5xf32>, %row: tensor<5xf32>):
    %sum = kiln.add %carried, %row : tensor<5xf32>
    kiln.yield %sum, %carried : tensor<5xf32>, tensor<5xf32>
  }
  return %1#1, %1#0 : tensor<6x5xf32>, tensor<5xf32>
}
"#;

#[test]
fn host_functions_run_between_programs() {
    crate::watchdog::arm();
    let c = Context::new();
    let (module, _) =
        Module::parse(c.ctx(), MODULE.as_bytes(), "control.mlir").unwrap_or_else(|e| panic!("{e}"));
    let options = Options { function: "f".into(), ..options("sm_80") };
    let (package, _) =
        Model::from_module(&module, Path::new("")).build(&options, &|_, _| ()).unwrap();
    package_launches(&package, "sm_80");
    let mut all = vec![];
    steps(&package.program.control.as_deref().unwrap().body, &mut all);
    let found: Vec<&str> = all.iter().map(|(what, _)| *what).collect();
    assert_eq!(found, ["custom", "if", "scan"]);
    assert!(all.iter().all(|(_, source)| source.contains("control.mlir:")), "{all:?}");
}

/// Sizes that only intermediates have are not read, unless nothing bounds them or their least value
/// is a condition of the call.
#[test]
fn sizes_of_no_result_are_not_read() {
    crate::watchdog::arm();
    const READ: [&str; 5] =
        ["repeat_interleave", "repeat_interleave_1", "item", "bincount_1", "bincount_3"];
    let c = Context::new();
    let archive = crate::capture::root().join("capture/aten_data_sizes.pt2");
    for i in 0..crate::compiled::results("aten_data_sizes") {
        let captured = crate::capture::import(&c, &archive);
        let main = captured.module.find("main").expect("main");
        crate::compiled::keep_results(main, &[i]);
        main.remove_attr(SIZE_RESULTS);
        let end = main.regions()[0].first().and_then(|b| b.terminator()).expect("a return");
        if end.operand(0).ty().dims().iter().any(|d| d.known().is_none()) {
            continue;
        }
        let model = Model::from_graph(&captured.module, captured.weights.clone());
        let (package, _) = model.build(&options("sm_90a"), &|_, _| ()).unwrap();
        let mut all = vec![];
        steps(&package.program.control.as_deref().expect("control flow").body, &mut all);
        let read: Vec<&str> = all.iter().filter_map(|(_, at)| at.split(' ').next()).collect();
        assert_eq!(read, READ, "result {i}");
    }
}
