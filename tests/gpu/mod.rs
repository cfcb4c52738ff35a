//! NVIDIA GPU programs, tested without a GPU: PTX of every model and small kernel, assembled where
//! `ptxas` is found, and errors for a missing driver or unsupported ops. `benches/gpu/check.sh`
//! compares results on a GPU.
mod attention;
pub mod card;
mod control;
mod convolution;
mod cudnn;
mod divisors;
mod emulated;
mod gemm;
mod indices;
mod launches;
mod library;
mod math;
mod parts;
mod products;
mod ptx;
mod quantized;
mod refused;
mod rows;
mod scans;
mod transposes;

use crate::compiled::graphs::against_with;
use kiln::{
    Error, Exit, Options,
    dialects::{ir::Module, value::Tensor},
    load,
    model::{CachePolicy, Executable},
    runtime::Package,
    tolerance,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// All chips with code generation.
const CHIPS: [&str; 4] = ["sm_90a", "sm_80", "sm_86", "sm_89"];

fn options(chip: &str) -> Options {
    Options { target: Some(format!("cuda:{chip}")), cache: CachePolicy::Off, ..Options::default() }
}

fn models() -> PathBuf {
    crate::support::repository().join("tests/models")
}

fn build(path: &Path, chip: &str) -> Result<Package, Error> {
    load(path)?.build(&options(chip), &|_, _| ()).map(|(package, _)| package)
}

/// A function's PTX for a chip, kernel by kernel, checked by the assembler.
fn assembled_ptx(text: &str, chip: &str) -> Vec<String> {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlir");
    std::fs::write(&path, text).unwrap();
    let package = build(&path, chip).unwrap_or_else(|e| panic!("{text}: {e}"));
    let wrong = assembled(&package, chip);
    assert!(wrong.is_empty(), "{text} for {chip}:\n{}", wrong.join("\n"));
    let of = |symbol: &String| String::from_utf8_lossy(&package.objects[symbol]).into_owned();
    package.program.kernels.iter().map(|k| of(&k.symbol)).collect()
}

/// Whether a program's results equal the interpreter's.
fn as_interpreted(module: &Module, inputs: &[Tensor], exe: &Executable) -> Result<(), String> {
    let call = |inputs: &[Tensor]| {
        let have = exe.call_values(&inputs.iter().collect::<Vec<_>>());
        have.map(|results| vec![results]).map_err(|e| e.to_string())
    };
    against_with(module, inputs, tolerance::for_dtype, |_| Ok(call))
}

/// `ptxas`, from `KILN_PTXAS` or the PATH.
fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("KILN_PTXAS").map(PathBuf::from);
    let found = named
        .into_iter()
        .chain(std::env::split_paths(&std::env::var_os("PATH")?).map(|p| p.join("ptxas")))
        .find(|p| p.is_file());
    if found.is_none() {
        eprintln!("skipped: assembling, since there is neither KILN_PTXAS nor a ptxas on the PATH");
    }
    found
}

/// Assembles a package; returns errors, register spills, and warnings C75xx (serialised wgmma).
fn assembled(package: &Package, chip: &str) -> Vec<String> {
    // An epilogue on 128 accumulators may spill two registers, before and after the loop.
    assembled_with_spills(package, chip, 8)
}

/// The same where kernels with wgmma may spill so many bytes.
fn assembled_with_spills(package: &Package, chip: &str, bytes: usize) -> Vec<String> {
    let Some(ptxas) = ptxas() else { return vec![] };
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = vec![];
    for (name, ptx) in &package.objects {
        let file = folder.path().join("k.ptx");
        std::fs::write(&file, ptx).unwrap();
        let out = Command::new(&ptxas)
            .arg(format!("-arch={chip}"))
            .args(["-v", "-o", "/dev/null"])
            .arg(&file)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned()
            + &String::from_utf8_lossy(&out.stdout);
        let spilled = said
            .split(" bytes spill stores")
            .next()
            .and_then(|s| s.rsplit(' ').next())
            .and_then(|n| n.parse::<usize>().ok());
        let products = String::from_utf8_lossy(ptx).contains("wgmma.mma_async");
        let most = if products { bytes } else { 0 };
        if !out.status.success() || spilled.is_none_or(|n| n > most) || said.contains("C75") {
            let of = package
                .program
                .kernels
                .iter()
                .find(|k| k.symbol == *name)
                .map_or("prepare", |k| k.name.as_str());
            wrong.push(format!("{of} ({name}): {said}"));
        }
    }
    wrong
}

#[test]
fn every_model_becomes_ptx() {
    for entry in std::fs::read_dir(models())
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "pt2"))
    {
        crate::watchdog::arm();
        let package =
            build(&entry, "sm_90a").unwrap_or_else(|e| panic!("{}: {e}", entry.display()));
        assert_eq!(
            (package.program.target.arch.as_str(), package.program.target.cpu.as_str()),
            ("cuda", "sm_90a")
        );
        for k in &package.program.kernels {
            let launch = k.launch.as_ref().unwrap_or_else(|| panic!("{} has no launch", k.name));
            let text = std::str::from_utf8(&package.objects[&k.symbol]).expect("PTX is text");
            let params = text.matches(&format!("{}_param_", k.symbol)).filter(|_| true).count();
            assert!(
                text.contains(".target sm_90a")
                    && text.contains(&format!(".reqntid {}", launch.threads))
                    && params >= launch.args.len()
            );
        }
        let wrong = assembled(&package, "sm_90a");
        assert!(wrong.is_empty(), "{}:\n{}", entry.display(), wrong.join("\n"));
    }
}

#[test]
fn code_for_older_chips_assembles() {
    for chip in &CHIPS[1..] {
        crate::watchdog::arm();
        let package = build(&models().join("bert_tiny.pt2"), chip).unwrap();
        let wrong = assembled(&package, chip);
        assert!(wrong.is_empty(), "{chip}:\n{}", wrong.join("\n"));
    }
}

/// The scheduled kernels of the module; tensor-core matmuls if there are any.
fn scheduled(path: &Path, chip: &str) -> PathBuf {
    let out = path.with_extension("scheduled.mlir");
    let run = |args: &[&str], from: &Path| {
        let done = Command::new(env!("CARGO_BIN_EXE_kiln-opt"))
            .args(args)
            .arg(from)
            .arg("-o")
            .arg(&out)
            .output()
            .expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["--from=graph", "--to=linalg", &format!("--target=cuda:{chip}")], path);
    run(
        &[&format!(
            "--pass-pipeline=builtin.module(kiln-online-reductions,kiln-gpu-schedule{{chip={chip} tensor-cores=true}})"
        )],
        &out,
    );
    out
}
