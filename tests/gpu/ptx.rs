//! External PTX kernels (`tests/front/ptx.rs`): as launches, in packages, and on the emulator.
use super::*;
use crate::front::{
    control::differences,
    ptx::{AXPY, BY_HOST, case, ptx_only},
};
use kiln::{
    Model, Ptx, Tensor, custom_op,
    dialects::{
        ir::{Context, Module},
        value::DType,
    },
    runtime::{
        View, ViewMut,
        cuda::Mode,
        device_id::DeviceId,
        program::{Arg, Dim},
    },
};
use std::sync::atomic::Ordering;

#[test]
fn the_plan_matches_the_op() {
    crate::watchdog::arm();
    let traced = ptx_only("test::planned", "sm_80");
    let model = Model::from_module(traced.module(), Path::new(""));
    let (package, _) = model.build(&options("sm_86"), &|_, _| ()).unwrap();
    let p = &package.program;
    let k = p.kernels.iter().find(|k| k.kind == "ptx").expect("a kernel of the op's");
    assert_eq!(
        (k.name.as_str(), &k.ops[..], k.reads.len()),
        ("test__planned", &["test::planned".to_string()][..], 1)
    );
    assert!(k.sources.iter().any(|s| s.contains("front/ptx.rs:")), "{:?}", k.sources);
    assert_eq!(package.objects[&k.symbol], AXPY.as_bytes());
    let l = k.launch.as_ref().expect("a launch");
    assert_eq!((l.threads, l.shared, l.entry.as_deref()), (256, 0, Some("axpy")));
    let [Arg::Arena(_), Arg::Input(0), Arg::Arena(_), Arg::Size(n)] = l.args[..] else {
        panic!("{:?}", l.args)
    };
    let at = |rows: i64, d: Dim| {
        let symbols = [rows];
        d.value(&symbols, &p.expr_values(&symbols).unwrap()).unwrap()
    };
    assert_eq!(
        [2, 85, 86, 4096].map(|rows| (at(rows, n), at(rows, l.grid))),
        [(6, 1), (255, 1), (258, 2), (12288, 48)]
    );
    let wrong = assembled(&package, "sm_86");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Hand-written IR: a driver would read parameters that nobody passed.
#[test]
fn parameters_are_revalidated() {
    crate::watchdog::arm();
    let call = |sizes: &str| {
        let types = "(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>";
        let how = format!(
            "blocks = [1] sizes = [{sizes}] entry = \"axpy\" threads = 32 shared = 0 ptx = {AXPY:?}"
        );
        format!(
            "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {{\n  %0 = kiln.ptx_call \"a\"(%x, %x) {how} : {types}\n  return %0 : tensor<4xf32>\n}}"
        )
    };
    for (sizes, wrong) in [
        ("", Some("passes 3 parameters to axpy, which takes 4")),
        ("4, 4", Some("passes 5 parameters")),
        ("4", None),
    ] {
        let c = Context::new();
        let (module, _) = Module::parse(c.ctx(), call(sizes).as_bytes(), "given.mlir")
            .unwrap_or_else(|e| panic!("{e}"));
        let options = Options { function: "f".into(), ..options("sm_80") };
        match (Model::from_module(&module, Path::new("")).build(&options, &|_, _| ()), wrong) {
            (Ok(_), None) => {}
            (Err(e), Some(part))
                if e.exit() == Exit::Unsupported && e.to_string().contains(part) => {}
            (made, _) => panic!("{sizes}: {:?}", made.map(|_| ()).map_err(|e| e.to_string())),
        }
    }
}

#[test]
fn ptx_kernels_run_between_others() {
    crate::watchdog::arm();
    emulated::run_emulated("gpu::ptx::on_a_gpu", &[]);
    emulated::run_emulated("gpu::ptx::faults_name_the_op", &[]);
}

#[test]
#[ignore = "a process of given_kernels_run_between_others"]
fn on_a_gpu() {
    for (mode, _) in Mode::ALL {
        for open in [false, true] {
            // First eagerly, on the host.
            let before = BY_HOST.load(Ordering::Relaxed);
            let (name, f, calls) = case();
            let by_host = calls
                .iter()
                .map(|x| f(x.clone()).map(|_| ()))
                .collect::<Result<Vec<_>, _>>()
                .map(|_| BY_HOST.load(Ordering::Relaxed) - before);
            let wrong =
                differences(&(name, f, calls), ("on the card", "kiln", Some(open)), "cuda:0", mode);
            assert!(wrong.is_empty(), "{mode}, {open}:\n{}", wrong.join("\n"));
            assert_eq!(
                Ok(BY_HOST.load(Ordering::Relaxed) - before),
                by_host.map(|n| 2 * n).map_err(|_| ()),
                "the card's calls are the card's"
            );
        }
        // One program is one graph; the PTX kernel is a node like others. The two that feed it are one.
        let f = kiln::compile(|x: Tensor| crate::front::ptx::axpy().one(&[&x + 1, x.exp()]) * 2)
            .device("cuda:0")
            .mode(mode)
            .dynamic(true)
            .fullgraph(true);
        for n in [7usize, 300, 7] {
            let x: Vec<f32> = (0..n).map(|i| i as f32 / 64.0).collect();
            let y = f.call(Tensor::from_slice(&[n], &x).unwrap()).unwrap().to_vec::<f32>().unwrap();
            let want = |x: &f32| 2.0 * (2.5 * (x + 1.0) + x.exp());
            assert!(x.iter().map(want).zip(&y).all(|(a, b)| (a - b).abs() <= 1e-5 * a), "{y:?}");
        }
        let explained = f.explain();
        let g = &explained.graphs[0];
        assert!(
            g.kinds.contains(&"ptx".to_string())
                && g.kernels.len() == 3
                && g.cudagraphs.iter().all(|t| t.contains("copied")),
            "{explained}"
        );
    }
    // That of the example.
    let swish = Ptx::new(include_str!("../../examples/swish.ptx"), "swish");
    let swish = custom_op("test::swish").shape(|x| Ok(x.to_vec())).ptx(swish).register().unwrap();
    let f = kiln::compile(move |x: Tensor| swish.one(&[x * 2])).device("cuda:0").fullgraph(true);
    let e = f
        .call(Tensor::from_slice(&[300], &[0.0f32; 300]).unwrap())
        .expect_err("two sizes are passed")
        .to_string();
    assert!(
        e.contains("passes 4 parameters (1 inputs, 1 results and 2 sizes) to swish, which takes 3"),
        "{e}"
    );
    let swish =
        Ptx::new(include_str!("../../examples/swish.ptx"), "swish").sizes(|x, _| vec![x[0].1[0]]);
    let swish =
        custom_op("test::swish_of").shape(|x| Ok(x.to_vec())).ptx(swish).register().unwrap();
    let f = kiln::compile(move |x: Tensor| swish.one(&[x * 2])).device("cuda:0").fullgraph(true);
    let x: Vec<f32> = (0..300).map(|i| i as f32 / 32.0 - 4.0).collect();
    let y = f.call(Tensor::from_slice(&[300], &x).unwrap()).unwrap().to_vec::<f32>().unwrap();
    assert!(
        x.iter()
            .map(|x| 2.0 * x / (1.0 + (-2.0 * x).exp()))
            .zip(&y)
            .all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(0.01)),
        "{y:?}"
    );
    // A package, in a process without the op.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given.kpkg");
    let traced = ptx_only("test::packed", "sm_80");
    let model = Model::from_module(traced.module(), Path::new(""));
    let (package, _) = model.build(&options("sm_90a"), &|_, _| ()).unwrap();
    package.save(&path).unwrap();
    let exe = load(&path)
        .unwrap()
        .compile(&Options {
            device: DeviceId::Cuda(0),
            cache: CachePolicy::Off,
            ..Options::default()
        })
        .unwrap();
    for rows in [2usize, 100] {
        let x: Vec<f32> = (0..3 * rows).map(|i| i as f32).collect();
        let (shape, mut y) = ([rows, 3], vec![0.0f32; x.len()]);
        exe.call(
            &[View::from_slice(&shape, &x).unwrap()],
            &mut [ViewMut::from_slice(&shape, &mut y).unwrap()],
        )
        .unwrap();
        assert!(x.iter().zip(&y).all(|(x, y)| *y == 7.0 * x), "{y:?}");
    }
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(args)
            .env("KILN_CACHE_DIR", "off")
            .output()
            .expect("it runs");
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stdout).into_owned()
                + &String::from_utf8_lossy(&out.stderr),
        )
    };
    let source = folder.path().join("given.mlir");
    std::fs::write(&source, traced.module().print(Default::default())).unwrap();
    let [source, made] =
        [source, folder.path().join("made.kpkg")].map(|p| p.to_str().unwrap().to_string());
    let (code, text) = run(&["compile", &source, "--target", "cuda:sm_90a", "-o", &made]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run(&["run", &made, "--device", "cuda:0", "--repeat", "1"]);
    assert!(code == Some(0) && text.contains("test__packed"), "{text}");
    let (code, text) = run(&["compile", &source, "-o", &made]);
    assert!(code == Some(3) && text.contains("custom op 'test::packed' has PTX alone"), "{text}");
}

#[test]
#[ignore = "a process of given_kernels_run_between_others"]
fn faults_name_the_op() {
    let ptx =
        Ptx::new(AXPY, "axpy").sizes(|_, _| vec![(1i64 << 40).into()]).blocks(|_, _| 4096.into());
    let op = custom_op("test::wild").shape(|x| Ok(vec![x[0].clone()])).ptx(ptx).register().unwrap();
    let f = kiln::compile(move |x: Tensor| op.one(&[&x + 1, x.to(DType::F32)]))
        .device("cuda:0")
        .fullgraph(true);
    let e = f
        .call(Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]).unwrap())
        .expect_err("a fault")
        .to_string();
    assert!(
        e.contains("GPU 0 does no more work in this process")
            && e.contains("test__wild (test::wild) of custom_op (")
            && e.contains("gpu/ptx.rs:"),
        "{e}"
    );
}
