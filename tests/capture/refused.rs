//! Calls that eager PyTorch refuses are refused, and changed calls that it takes are taken.
use super::*;
use kiln::capture::CaptureError;
use serde_json::{Value, json};
use std::{collections::BTreeMap, io::Write};

/// An archive whose graph is this one call (`gen_refused.py` says how it is written).
fn archive(call: &Value) -> Vec<u8> {
    let (mut types, mut inputs) = (serde_json::Map::new(), vec![]);
    for (name, t) in call["tensors"].as_object().expect("tensors") {
        let sizes: Vec<usize> = serde_json::from_value(t["sizes"].clone()).expect("sizes");
        let mut strides = vec![1; sizes.len()];
        for i in (1..sizes.len()).rev() {
            strides[i - 1] = strides[i] * sizes[i].max(1);
        }
        let ints = |all: &[usize]| all.iter().map(|n| json!({ "as_int": n })).collect::<Vec<_>>();
        let ty = json!({
            "dtype": t["dtype"], "sizes": ints(&sizes), "strides": ints(&strides), "storage_offset": { "as_int": 0 },
        });
        types.insert(name.clone(), ty);
        inputs.push(json!({ "user_input": { "arg": { "as_tensor": { "name": name } } } }));
    }
    let target = format!("torch.ops.{}", call["target"].as_str().expect("an overload"));
    let node = json!({ "target": target, "inputs": call["inputs"], "outputs": [] });
    let model = json!({
        "graph_module": {
            "graph": { "nodes": [node], "tensor_values": types },
            "signature": { "input_specs": inputs, "output_specs": [] },
        },
        "schema_version": { "major": 8 },
    });
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(vec![]));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.start_file("x/models/model.json", stored).expect("an entry");
    zip.write_all(model.to_string().as_bytes()).expect("an entry");
    zip.finish().expect("a zip").into_inner()
}

/// Why a call is refused; empty if it is not.
fn said(call: &Value, folder: &Path) -> String {
    let path = folder.join("call.pt2");
    std::fs::write(&path, archive(call)).expect("written");
    let c = Context::new();
    match pt2::import(c.ctx(), &path) {
        Ok(_) => String::new(),
        Err(CaptureError::Op { reason, .. }) => reason,
        Err(other) => panic!("{call}: {other}"),
    }
}

fn calls(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("calls")
}

#[test]
fn what_eager_refuses_is_refused_and_what_it_takes_is_taken() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().expect("a folder");
    let (mut wrong, mut refused) = (vec![], 0);
    for call in calls(&root().join("capture/refused.json")) {
        let eager = call["eager"].as_str().expect("what eager says");
        let kiln = said(&call, folder.path());
        refused += usize::from(!eager.is_empty());
        if eager.is_empty() != kiln.is_empty() {
            wrong.push(format!("{call}: {kiln}"));
        }
    }
    assert!(refused > 400, "{refused}");
    assert!(wrong.is_empty(), "{} calls\n{}", wrong.len(), wrong.join("\n"));
}

/// Reasons that are PyTorch's, word for word.
const SAME: &[&str] = &[
    "mm.default",
    "bmm.default",
    "split.Tensor",
    "split_with_sizes.default",
    "chunk.default",
    "select.int",
    "slice.Tensor",
    "narrow.default",
    "unbind.int",
    "t.default",
    "roll.default",
    "cat.default",
    "stack.default",
    "gather.default",
    "scatter.src",
    "scatter.value",
    "scatter_add.default",
    "index_select.default",
    "slice_scatter.default",
    "select_scatter.default",
    "expand.default",
    "view.default",
    "arange.start_step",
    "topk.default",
    "add.Tensor",
    "where.self",
    "squeeze.dims",
    "amax.default",
    "softmax.int",
    "cumsum.default",
    "dropout.default",
    "mean.dim",
    "tril.default",
    "outer.default",
    "gelu.default",
    "unsqueeze.default",
    "transpose.int",
];

/// Reasons of kernels and of the schema, and C++'s names of dtypes.
const OTHER_WORDS: &[&str] =
    &["expected scalar type", "c10::", "Expected a value of type", "torch.FloatTensor{"];

#[test]
fn reasons_are_pytorchs() {
    crate::watchdog::arm();
    let folder = tempfile::tempdir().expect("a folder");
    let (mut wrong, mut same) = (vec![], BTreeMap::new());
    for call in calls(&root().join("capture/refused.json")) {
        let target = call["target"].as_str().expect("an overload").trim_start_matches("aten.");
        let eager = call["eager"].as_str().expect("what eager says");
        let (Some(name), false) = (SAME.iter().find(|n| **n == target), eager.is_empty()) else {
            continue;
        };
        let kiln = said(&call, folder.path());
        *same.entry(*name).or_insert(0) += 1;
        if kiln != eager && !OTHER_WORDS.iter().any(|w| eager.contains(w)) {
            wrong.push(format!("{target}:\n    kiln  {kiln}\n    eager {eager}"));
        }
    }
    let without: Vec<_> = SAME.iter().filter(|n| !same.contains_key(*n)).collect();
    assert!(without.is_empty(), "no refused call of {without:?}");
    assert!(wrong.is_empty(), "{} reasons\n{}", wrong.len(), wrong.join("\n"));
}

/// A size that is a symbol is not compared.
#[test]
fn symbols_are_not_compared() {
    let file = std::fs::read(root().join("models/mlp.pt2")).expect("an archive");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mlp.pt2");
    std::fs::write(&path, file).expect("written");
    let c = Context::new();
    assert!(pt2::import(c.ctx(), &path).is_ok());
}

/// For `gen_refused.py`: where kiln and eager differ on the calls of `KILN_ATEN_CALLS`.
#[test]
#[ignore = "needs calls in KILN_ATEN_CALLS"]
fn calls_of_a_file() {
    let Some(path) = std::env::var_os("KILN_ATEN_CALLS").map(PathBuf::from) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (mut taken, mut all) = (0, 0);
    for call in calls(&path) {
        let kiln = said(&call, folder.path());
        all += 1;
        if call["eager"].as_str().is_some_and(str::is_empty) != kiln.is_empty() {
            println!("{call}: kiln says {kiln:?}");
            taken += usize::from(kiln.is_empty());
        }
    }
    println!("{all} calls; {taken} are taken that eager refuses");
}
