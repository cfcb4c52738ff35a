//! The C ABI: programs in C against `libkiln_runtime.so`, on packages that are made here.
use kiln::{
    Options,
    capture::weight::{self, Weight},
    dialects::value::{DType, Tensor},
    load,
};
use std::{
    ffi::{CString, c_char, c_void},
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// The functions of `libkiln.so`, in this binary: the library is as large, and takes as long to link.
#[path = "../../capi/full/src/lib.rs"]
#[allow(unused_imports)]
mod full;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the library is, built once.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let done = Command::new(env!("CARGO")).args(["build", "--quiet", "-p", "kiln-capi"]).current_dir(root()).status().expect("cargo");
    assert!(done.success(), "libkiln_runtime.so is not built");
    // Where cargo puts the binaries of this profile; the library is always of the dev profile.
    Path::new(env!("CARGO_BIN_EXE_kiln")).parent().and_then(Path::parent).expect("target").join("debug")
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

/// Two packages for any processor with AVX2, and a damaged one.
fn packages(dir: &Path) -> [PathBuf; 3] {
    let w = Tensor::floats(DType::F32, vec![3, 4], (0..12).map(|i| (i / 4 + i % 4) as f64).collect()).unwrap();
    weight::write(&dir.join("w.safetensors"), &[("w".into(), Weight::of(&w))]).unwrap();
    let options = Options { target: Some("x86_64:haswell".into()), ..super::options(2) };
    let [product, sum, damaged] = ["product.kpkg", "sum.kpkg", "damaged.kpkg"].map(|n| dir.join(n));
    for (source, to) in [(PRODUCT, &product), (SUM, &sum)] {
        let file = dir.join("model.mlir");
        std::fs::write(&file, source).unwrap();
        let model = load(&file).unwrap();
        let (mut package, _) = model.build(&options, &|_, _| ()).unwrap_or_else(|e| panic!("{e}"));
        model.hold_weights(&mut package).unwrap();
        package.save(to).unwrap();
    }
    let bytes = std::fs::read(&product).unwrap();
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    std::fs::remove_file(dir.join("w.safetensors")).unwrap();
    [product, sum, damaged]
}

/// A program in C of the project's, linked with the library.
fn compiled(source: &str, to: &Path) {
    let (include, library) = (root().join("include"), LIBRARY.as_path());
    let out = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread", "-D_DEFAULT_SOURCE"])
        .arg(root().join(source))
        .arg("-I")
        .arg(include)
        .arg("-o")
        .arg(to)
        .arg("-L")
        .arg(library)
        .arg("-lkiln_runtime")
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .expect("a C compiler");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

fn run(command: &mut Command) -> String {
    let out = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{:?}\n{text}", out.status);
    text
}

#[test]
fn a_program_in_c_calls_packages_and_is_refused_what_is_wrong() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let packages = packages(dir.path());
    let program = dir.path().join("check");
    compiled("tests/c/check.c", &program);
    let text = run(Command::new(&program).args(&packages));
    assert!(text.contains("all is well"), "{text}");
    // The same with every access watched, where the tool is. It knows no AVX-512, which the packages do not use.
    if Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success()) {
        let watched = run(Command::new("valgrind").args(["--quiet", "--error-exitcode=9"]).arg(&program).args(&packages));
        assert!(watched.contains("all is well"), "{watched}");
    }
}

#[test]
fn the_example_in_c_runs() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let [product, ..] = packages(dir.path());
    let program = dir.path().join("run");
    compiled("examples/c/run.c", &program);
    let text = run(Command::new(&program).arg(&product));
    // Rows of ones: the sum of a row of w, and one.
    assert!(text.contains("[n, 4]") && text.contains("[n, 3]") && text.contains("output 0 starts with 7"), "{text}");
    let out = Command::new(&program).arg("/nowhere").output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stderr));
}

/// What the library offers is what the header declares, and no more; there is nothing of MLIR in it.
#[test]
fn the_library_offers_what_the_header_says() {
    let file = LIBRARY.join("libkiln_runtime.so");
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(11).any(|w| w == b"mlirContext"), "MLIR is in it");
    let names = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&file));
    let mut offered: Vec<&str> = names.lines().filter_map(|l| l.split_whitespace().last()).filter(|n| n.starts_with("kiln")).collect();
    let header = std::fs::read_to_string(root().join("include/kiln.h")).unwrap();
    let mut declared: Vec<&str> = header
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .zip(header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).skip(1))
        .filter_map(|(name, _)| name.starts_with("kiln_").then_some(name))
        .filter(|n| header.contains(&format!("{n}(")))
        // The one that compiles is of the other library.
        .filter(|n| *n != "kiln_program_compile")
        .collect();
    offered.sort_unstable();
    declared.sort_unstable();
    declared.dedup();
    assert_eq!(offered, declared);
}

/// What C gets of `libkiln.so`.
#[repr(C)]
struct Functions([*const c_void; 10]);

#[test]
fn a_program_in_c_compiles_asks_and_calls() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("compile.so");
    let out = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-shared", "-fPIC"])
        .arg(root().join("tests/c/compile.c"))
        .arg("-I")
        .arg(root().join("include"))
        .arg("-o")
        .arg(&library)
        .args(["-lm"])
        .output()
        .expect("a C compiler");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let broken = dir.path().join("broken.mlir");
    let text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @other(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @other(tensor<2xf32>) -> tensor<2xf32>
";
    std::fs::write(&broken, text).unwrap();
    let data = super::file("mlp");
    let floats =
        |name: &str| data.iter().find(|(n, _)| *n == name).expect("a tensor").1.as_f().expect("floats").iter().map(|x| *x as f32).collect();
    let (mut x, want): (Vec<f32>, Vec<f32>) = (floats("input_0"), floats("output_0"));
    let rows = x.len() / 64;
    assert!(rows >= 4 && want.len() == rows * 10);
    let functions = Functions([
        full::kiln_last_error as *const c_void,
        full::kiln_default_options as *const c_void,
        full::kiln_program_compile as *const c_void,
        full::kiln_program_free as *const c_void,
        full::kiln_program_input_count as *const c_void,
        full::kiln_program_output_count as *const c_void,
        full::kiln_program_input as *const c_void,
        full::kiln_program_output as *const c_void,
        full::kiln_program_output_shape as *const c_void,
        full::kiln_program_call as *const c_void,
    ]);
    type Check = unsafe extern "C" fn(*const Functions, *const c_char, *const c_char, *mut f32, *const f32, i64) -> i32;
    let path = |p: &Path| CString::new(p.to_str().unwrap()).unwrap();
    let (model, broken) = (path(&super::models().join("mlp.pt2")), path(&broken));
    // SAFETY: the object was made of `compile.c`, whose `check` has this type; the tensors have as many elements as it reads.
    let failures = unsafe {
        let handle = libc::dlopen(path(&library).as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "the object is not loaded");
        let check = libc::dlsym(handle, c"check".as_ptr());
        assert!(!check.is_null(), "it has no check");
        let check: Check = std::mem::transmute(check);
        check(&functions, model.as_ptr(), broken.as_ptr(), x.as_mut_ptr(), want.as_ptr(), rows as i64)
    };
    assert_eq!(failures, 0, "the lines above say which");
}
