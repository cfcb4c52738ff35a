//! Small models quantised by torchao and PT2E (`quantized/gen_quantized.py`), compiled, against eager
//! PyTorch. Not interpreted: without rounding, other integers come out of quantising activations.
use super::*;
use crate::capture::{import, tensors};
use kiln::{capture::pt2, dialects::ir::Context, tolerance};
use std::path::PathBuf;

fn folder() -> PathBuf {
    crate::support::repository().join("tests/compiled/quantized")
}

#[test]
fn quantised_models_as_pytorch() {
    let files = std::fs::read_dir(folder()).expect("a folder").flatten().map(|e| e.path());
    let mut all: Vec<PathBuf> =
        files.filter(|p| p.extension().is_some_and(|e| e == "safetensors")).collect();
    all.sort();
    assert!(all.len() > 15, "{} archives", all.len());
    let mut wrong = vec![];
    for file in all {
        crate::watchdog::arm();
        let c = Context::new();
        let captured = import(&c, &file.with_extension("pt2"));
        let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
        let weight = |name: &str| captured.weight(name).map_err(|e| e.to_string());
        let have = native(&captured.module, "main", &weight)
            .and_then(|program| call(&program, &inputs, 2))
            .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for (have, want) in have.iter().zip(&want) {
            match tolerance::compare(have, want) {
                Ok(c) if c.ok => {}
                Ok(c) => wrong.push(format!("{}: {c}", file.display())),
                Err(e) => wrong.push(format!("{}: {e}", file.display())),
            }
        }
        assert_eq!(have.len(), want.len(), "{}", file.display());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tensor_subclasses_are_refused_with_a_way_out() {
    let c = Context::new();
    let refused = pt2::import(c.ctx(), &folder().join("subclass.pt2")).map(|_| ());
    let text = refused.expect_err("pickled weights").to_string();
    assert!(text.contains("weight a.weight: is pickled"), "{text}");
    assert!(text.contains("unwrap_tensor_subclass"), "{text}");
}
