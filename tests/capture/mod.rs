//! Capture of exported PyTorch programs against PyTorch's results: every row of the ATen table,
//! whole models, mutation through views, corrupt files.
mod aten;
mod conditions;
mod control;
mod data_sizes;
mod errors;
mod models;
pub mod mutation;
pub mod random;
mod refused;

use kiln::{
    capture::{Captured, Output, pt2},
    dialects::{
        interp::{Interpreter, Mode},
        ir::*,
        rules::Level,
        value::{DType, Tensor},
    },
    lowering::{pipeline_text, run_pipeline},
    tolerance,
};
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    crate::support::repository().join("tests")
}

/// Numbered tensors (`input_0`, …) of a safetensors file.
pub fn tensors(path: &Path, prefix: &str) -> Vec<Tensor> {
    use safetensors::Dtype as D;
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let read = |name: &str| {
        let view = file.tensor(name).ok()?;
        let dtype = match view.dtype() {
            D::F64 => DType::F64,
            D::F32 => DType::F32,
            D::F16 => DType::F16,
            D::BF16 => DType::BF16,
            D::F8_E4M3 => DType::F8E4M3FN,
            D::F8_E5M2 => DType::F8E5M2,
            D::I64 => DType::I64,
            D::I32 => DType::I32,
            D::I16 => DType::I16,
            D::I8 => DType::I8,
            D::U8 => DType::UI8,
            D::BOOL => DType::I1,
            other => panic!("{name}: {other:?}"),
        };
        Some(dtype.decode(view.shape(), view.data()).expect("a tensor"))
    };
    (0..).map_while(|i| read(&format!("{prefix}_{i}"))).collect()
}

pub fn import(c: &Context, path: &Path) -> Captured {
    pt2::import(c.ctx(), path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs `main`; the differences from `want`, one line each.
pub fn differences(captured: &Captured, inputs: &[Tensor], want: &[Tensor]) -> Vec<String> {
    differences_in(Mode::Exact, captured, inputs, want)
}

/// As [`differences`], interpreted in a mode.
pub fn differences_in(
    mode: Mode,
    captured: &Captured,
    inputs: &[Tensor],
    want: &[Tensor],
) -> Vec<String> {
    let weights = |name: &str, _: &str| Ok(captured.weight(name)?);
    let interpreter = Interpreter { globals: &weights, ..Interpreter::new(mode) };
    let have = match interpreter.run(captured.module.op(), "main", inputs) {
        Ok(have) => have,
        Err(e) => return vec![format!("does not run: {e}")],
    };
    // Sizes that depend on data follow the others.
    let sizes = captured.outputs.iter().filter(|o| matches!(o, Output::Size(_))).count();
    if have.len() - sizes != want.len() {
        return vec![format!("{} results, but {} are expected", have.len(), want.len())];
    }
    let mut wrong = vec![];
    for (i, (have, want)) in have.iter().zip(want).enumerate() {
        let name = match captured.outputs.get(i) {
            Some(Output::User(n) | Output::Buffer(n) | Output::Input(n) | Output::Size(n)) => n,
            None => "?",
        };
        match tolerance::compare(have, want) {
            Ok(c) if c.ok => {}
            Ok(c) => wrong.push(format!(
                "output {i} ({name}): {c}\n    have {:?}\n    want {:?}",
                have.data(),
                want.data()
            )),
            Err(e) => wrong.push(format!("output {i} ({name}) {e}")),
        }
    }
    wrong
}

/// Lowers the module from `graph` to `prims`.
pub fn lower(captured: &Captured) {
    let pipeline = pipeline_text(Level::Graph, Level::Prims, None).expect("a pipeline");
    run_pipeline(&captured.module, &pipeline, &Default::default(), &|_, _, _| ())
        .unwrap_or_else(|e| panic!("{pipeline}: {e}"));
}
