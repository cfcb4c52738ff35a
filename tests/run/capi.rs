//! The C ABI: C programs with `libkiln_runtime.so`, on packages built here, and with `libkiln.so`,
//! which compiles.
use crate::support::{build_libraries, emulated, libraries};
use kiln::{
    Options,
    capture::weight::{self, Weight},
    dialects::value::{DType, Tensor},
    load,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `libkiln_runtime.so`, built once.
static RUNTIME: LazyLock<PathBuf> = LazyLock::new(|| {
    build_libraries();
    libraries().join("libkiln_runtime.so")
});

/// `libkiln.so`, which includes the compiler, built once.
static FULL: LazyLock<PathBuf> = LazyLock::new(|| {
    build_libraries();
    libraries().join("libkiln.so")
});

const PRODUCT: &str = "module attributes {kiln.level = \"graph\"} {
  kiln.global \"private\" @w : tensor<3x4xf32> from \"w.safetensors#w\"
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x3xf32> {
    %n = kiln.sym @n {min = 1, max = 64}
    kiln.bind_shape %x, [%n, 4] : tensor<?x4xf32>
    %w = kiln.get_global @w : tensor<3x4xf32>
    %0 = kiln.linear %x, %w : tensor<?x4xf32>, tensor<3x4xf32>
    %1 = kiln.splat [%n, 3], 1.0 : f32
    %2 = kiln.add %0, %1 : tensor<?x3xf32>
    return %2 : tensor<?x3xf32>
  }
}
";
const SUM: &str = "module attributes {kiln.level = \"graph\"} {
  func.func @main(%x: tensor<?xi64>, %y: tensor<?xi64>) -> tensor<?xi64> {
    %n = kiln.sym @n {min = 1, max = 64}
    %one = arith.constant 1 : index
    %more = kiln.sym_expr add %n, %one
    kiln.bind_shape %x, [%n] : tensor<?xi64>
    kiln.bind_shape %y, [%more] : tensor<?xi64>
    %zero = kiln.splat [], 0 : i64
    %0 = kiln.pad %x, %zero low = [0] high = [1] : tensor<?xi64>, tensor<i64>
    %1 = kiln.reshape %0 sizes = [%more] : tensor<?xi64>
    %2 = kiln.add %1, %y : tensor<?xi64>
    return %2 : tensor<?xi64>
  }
}
";

/// A package of IR in a folder for a target, with its weights.
fn package(dir: &Path, source: &str, target: &str, name: &str) -> PathBuf {
    let w =
        Tensor::floats(DType::F32, vec![3, 4], (0..12).map(|i| (i / 4 + i % 4) as f64).collect())
            .unwrap();
    let (file, weights, to) = (dir.join("model.mlir"), dir.join("w.safetensors"), dir.join(name));
    weight::write(&weights, &[("w".into(), Weight::from_tensor(&w))]).unwrap();
    std::fs::write(&file, source).unwrap();
    let model = load(&file).unwrap();
    let options = Options { target: Some(target.into()), ..super::options(2) };
    let (mut package, _) = model.build(&options, &|_, _| ()).unwrap_or_else(|e| panic!("{e}"));
    model.embed_weights(&mut package, &options).unwrap();
    package.save(&to).unwrap();
    std::fs::remove_file(weights).unwrap();
    to
}

/// Two packages for any CPU with AVX2, and a corrupt one.
fn packages(dir: &Path) -> [PathBuf; 3] {
    let [product, sum] = [(PRODUCT, "product.kpkg"), (SUM, "sum.kpkg")]
        .map(|(source, name)| package(dir, source, "x86_64:haswell", name));
    let damaged = dir.join("damaged.kpkg");
    let bytes = std::fs::read(&product).unwrap();
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    [product, sum, damaged]
}

/// One of the project's C programs, linked with a library.
fn compiled(source: &str, library: &Path, to: &Path) {
    let folder = library.parent().expect("a folder");
    let out = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread", "-D_DEFAULT_SOURCE"])
        .arg(root().join(source))
        .arg(library)
        .args(["-lm", "-ldl"])
        .arg("-I")
        .arg(root().join("include"))
        .arg("-o")
        .arg(to)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .output()
        .expect("a C compiler");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

fn run(command: &mut Command) -> String {
    let out = command.output().expect("it runs");
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{:?}\n{text}", out.status);
    text
}

#[test]
fn a_c_program_calls_packages_and_gets_errors() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let packages = packages(dir.path());
    let program = dir.path().join("check");
    compiled("tests/c/check.c", &RUNTIME, &program);
    let text = run(Command::new(&program).args(&packages));
    assert!(text.contains("all is well"), "{text}");
    // Again under valgrind, where available. It lacks AVX-512, which the packages do not use.
    if Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success()) {
        let watched = run(Command::new("valgrind")
            .args(["--quiet", "--error-exitcode=9"])
            .arg(&program)
            .args(&packages));
        assert!(watched.contains("all is well"), "{watched}");
    }
}

/// On the emulator; with `KILN_CARD_DEVICE` on the machine's own GPU.
#[test]
fn a_c_program_calls_on_a_gpu_stream() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let product = package(dir.path(), PRODUCT, "cuda:sm_90a", "product.kpkg");
    let program = dir.path().join("stream");
    compiled("tests/c/stream.c", &RUNTIME, &program);
    let mut command = Command::new(&program);
    command.arg(&product);
    if std::env::var_os("KILN_CARD_DEVICE").is_none() {
        emulated(&mut command);
    }
    let text = run(&mut command);
    assert!(text.contains("all is well on the card"), "{text}");
}

#[test]
fn the_example_in_c_runs() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let [product, ..] = packages(dir.path());
    let program = dir.path().join("run");
    compiled("examples/c/run.c", &RUNTIME, &program);
    let text = run(Command::new(&program).arg(&product));
    // Rows of ones: the sum of a row of w, and one.
    assert!(
        text.contains("[n, 4]")
            && text.contains("[n, 3]")
            && text.contains("output 0 starts with 7"),
        "{text}"
    );
    let out = Command::new(&program).arg("/nowhere").output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn the_example_in_python_compiles_and_calls() {
    crate::watchdog::arm();
    if !Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: there is no python3");
        return;
    }
    let (dir, model) = (tempfile::tempdir().unwrap(), super::models().join("mlp.pt2"));
    let ones = vec![1.0; 8 * 64];
    let ones = Tensor::floats(DType::F32, vec![8, 64], ones).unwrap();
    let exe = load(&model).unwrap().compile(&super::options(1)).unwrap();
    let want = exe.call_values(&[&ones]).unwrap();
    let example = |model: &Path, width: &str| {
        let mut command = Command::new("python3");
        command.arg(root().join("examples/python/call.py")).arg(&*FULL).arg(model);
        command.args(["8", width]).env("KILN_CACHE_DIR", dir.path()).output().unwrap()
    };
    let out = example(&model, "64");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let found = text.strip_prefix("[8, 10]").expect("a shape").split_whitespace();
    let found: Vec<f64> = found.map(|n| n.parse().expect("a number")).collect();
    let want = &want[0].as_f().expect("floats")[..4];
    assert!(
        found.len() == 4 && found.iter().zip(want).all(|(f, w)| (f - w).abs() < 1e-4),
        "{text}"
    );
    let out = example(&model, "63");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("has size 63 in dimension 1; the program takes 64"), "{said}");
}

/// What of C's functions a library offers, by name; the dialect in C++ calls others of
/// `libkiln.so`.
fn offered(library: &Path) -> Vec<String> {
    let names = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let mut all: Vec<String> = names
        .lines()
        .filter_map(|l| l.split_whitespace().last())
        .filter(|n| n.starts_with("kiln_"))
        .map(str::to_string)
        .collect();
    all.sort_unstable();
    all
}

/// The functions that the header declares.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(root().join("include/kiln.h")).unwrap();
    let words = header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let mut all: Vec<String> = words
        .filter(|n| n.starts_with("kiln_") && header.contains(&format!("{n}(")))
        .map(str::to_string)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The libraries export what the header declares, and no more; the package runtime has no MLIR.
#[test]
fn the_libraries_export_what_the_header_declares() {
    crate::watchdog::arm();
    let bytes = std::fs::read(&*RUNTIME).unwrap();
    assert!(!bytes.windows(11).any(|w| w == b"mlirContext"), "MLIR is in it");
    let all = declared();
    assert!(all.len() > 10 && all.contains(&"kiln_program_compile".to_string()), "{all:?}");
    assert_eq!(offered(&FULL), all);
    let without: Vec<String> = all.into_iter().filter(|n| n != "kiln_program_compile").collect();
    assert_eq!(offered(&RUNTIME), without);
}

#[test]
fn a_c_program_compiles_queries_and_calls() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let [program, broken, x, y] = ["compile", "broken.mlir", "x", "y"].map(|n| dir.path().join(n));
    compiled("tests/c/compile.c", &FULL, &program);
    let text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @other(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @other(tensor<2xf32>) -> tensor<2xf32>
";
    std::fs::write(&broken, text).unwrap();
    let data = super::file("mlp");
    for (name, to) in [("input_0", &x), ("output_0", &y)] {
        let tensor = &data.iter().find(|(n, _)| *n == name).expect("a tensor").1;
        let bytes: Vec<u8> =
            tensor.as_f().expect("floats").iter().flat_map(|v| (*v as f32).to_ne_bytes()).collect();
        std::fs::write(to, bytes).unwrap();
    }
    let said = run(Command::new(&program)
        .arg(super::models().join("mlp.pt2"))
        .args([&broken, &x, &y])
        .env("KILN_CACHE_DIR", dir.path()));
    assert_eq!(said, "all is well\n");
}
