//! What cannot be captured is a sentence, and broken files never panic.
use super::*;
use kiln::capture::CaptureError;
use std::io::{Cursor, Read, Write};

fn failure(path: &Path) -> CaptureError {
    crate::watchdog::arm();
    let c = Context::new();
    match pt2::import(c.ctx(), path) {
        Ok(_) => panic!("{} was captured", path.display()),
        Err(e) => e,
    }
}

/// The error of an archive with these bytes.
fn failure_of(bytes: &[u8]) -> CaptureError {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.pt2");
    std::fs::write(&path, bytes).expect("written");
    failure(&path)
}

/// What becomes of an entry's bytes, by its name.
type Rewrite<'a> = &'a dyn Fn(&str, Vec<u8>) -> Option<Vec<u8>>;

/// The archive with each entry as `f` gives it back, or without it.
fn rewritten(archive: &[u8], f: Rewrite<'_>) -> Vec<u8> {
    let mut from = zip::ZipArchive::new(Cursor::new(archive)).expect("a zip");
    let mut to = zip::ZipWriter::new(Cursor::new(vec![]));
    for i in 0..from.len() {
        let mut entry = from.by_index(i).expect("an entry");
        let (name, mut bytes) = (entry.name().to_string(), vec![]);
        entry.read_to_end(&mut bytes).expect("an entry");
        let Some(bytes) = f(&name, bytes) else { continue };
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        to.start_file(name, options).expect("an entry");
        to.write_all(&bytes).expect("an entry");
    }
    to.finish().expect("a zip").into_inner()
}

fn model(archive: &[u8], f: &dyn Fn(String) -> String) -> Vec<u8> {
    rewritten(archive, &|name, bytes| {
        let json = name.ends_with("models/model.json");
        Some(if json { f(String::from_utf8(bytes).expect("text")).into_bytes() } else { bytes })
    })
}

fn state() -> Vec<u8> {
    std::fs::read(root().join("capture/state.pt2")).expect("an archive")
}

#[test]
fn unsupported_ops_are_listed_at_once() {
    let e = failure(&root().join("capture/unsupported.pt2"));
    let CaptureError::Unsupported(all) = &e else { panic!("{e}") };
    let counts: Vec<_> = all.iter().map(|u| (u.target.as_str(), u.count)).collect();
    assert_eq!(counts, [("aten.lgamma.default", 2), ("aten.erfinv.default", 1)]);
    for u in all {
        let line = u.place.strip_prefix("gen_aten.py:").and_then(|l| l.parse::<u32>().ok());
        assert!(line.is_some(), "{}", u.place);
    }
    assert!(e.to_string().contains("2 unsupported ops") && e.to_string().contains("2x"), "{e}");
}

#[test]
fn training_is_a_sentence() {
    for (file, target) in [("batch_norm_training", "aten.batch_norm.default"), ("dropout_training", "aten.dropout.default")] {
        let e = failure(&root().join(format!("capture/{file}.pt2")));
        let CaptureError::Op { place, target: t, reason } = &e else { panic!("{e}") };
        assert_eq!(t, target);
        assert!(reason.contains("in training is not supported; export the model in eval mode"), "{reason}");
        assert!(place.starts_with("gen_aten.py:"), "{place}");
    }
}

#[test]
fn files_that_are_no_archives() {
    let says = |e: CaptureError, part: &str| assert!(matches!(&e, CaptureError::File { .. }) && e.to_string().contains(part), "{e}");
    says(failure(&root().join("capture")), "is a directory");
    says(failure(&root().join("no such file.pt2")), "No such file");
    says(failure_of(b""), "");
    says(failure_of(b"not a zip"), "is no .pt2 archive");
    let good = state();
    says(failure_of(&good[..good.len() / 2]), "is no .pt2 archive");
    says(failure_of(&rewritten(&good, &|n, b| (!n.ends_with("model.json")).then_some(b))), "has no models/model.json");
    says(failure_of(&model(&good, &|t| t[..t.len() / 2].to_string())), "model.json");
    says(failure_of(&model(&good, &|t| t.replacen("\"major\": 8", "\"major\": 7", 1))), "has schema version 7; 8 is supported");
    let short = |n: &str, mut b: Vec<u8>| {
        if n.contains("data/weights/weight") {
            b.truncate(b.len() / 2);
        }
        Some(b)
    };
    says(failure_of(&rewritten(&good, &short)), "reaches beyond its storage");
    says(failure_of(&rewritten(&good, &|n, b| (!n.contains("data/weights/weight")).then_some(b))), "not found");
}

/// A small generator of positions and bytes; the same ones in every run.
struct Dice(u64);
impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// Imports it and, if that works, reads all weights.
fn survives(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("written");
    crate::watchdog::arm();
    let c = Context::new();
    if let Ok(captured) = pt2::import(c.ctx(), path) {
        captured.weights.values().for_each(|w| drop(w.read()));
    }
}

#[test]
fn mutants_of_archives_do_not_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.pt2");
    let mut dice = Dice(7);
    let good = state();
    for _ in 0..60 {
        survives(&path, &good[..dice.below(good.len())]);
    }
    for _ in 0..150 {
        let mut bad = good.clone();
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(bad.len());
            bad[at] ^= 1 << dice.below(8);
        }
        survives(&path, &bad);
    }
}

/// Numbers, names and lists of a graph, one after the other replaced by what should not be there.
#[test]
fn mutants_of_graphs_do_not_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.pt2");
    let mut dice = Dice(11);
    for file in ["aten_view", "aten_index", "aten_image", "aten_norm", "aten_reduce", "aten_contract", "state"] {
        let good = std::fs::read(root().join(format!("capture/{file}.pt2"))).expect("an archive");
        let mut text = String::new();
        let mut zip = zip::ZipArchive::new(Cursor::new(&good)).expect("a zip");
        let name = zip.file_names().find(|n| n.ends_with("models/model.json")).expect("a model").to_string();
        zip.by_name(&name).expect("a model").read_to_string(&mut text).expect("text");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for _ in 0..100 {
            let mut bad = json.clone();
            mutate(&mut bad, &mut dice);
            survives(&path, &model(&good, &|_| bad.to_string()));
        }
    }
}

/// Changes one value that an argument, a size or a specification holds.
fn mutate(json: &mut serde_json::Value, dice: &mut Dice) {
    use serde_json::{Value, json};
    let graph = &mut json["graph_module"];
    let nodes = graph["graph"]["nodes"].as_array().map_or(0, Vec::len);
    let mut at = match dice.below(8) {
        0 => &mut graph["graph"]["tensor_values"],
        1 => &mut graph["signature"],
        2 => &mut graph["graph"]["nodes"],
        // Mostly the arguments of one op.
        _ => &mut graph["graph"]["nodes"][dice.below(nodes)]["inputs"],
    };
    loop {
        let stop = dice.below(12) == 0;
        let n = match at {
            Value::Array(a) if !a.is_empty() && !stop => a.len(),
            Value::Object(o) if !o.is_empty() && !stop => o.len(),
            _ => break,
        };
        let i = dice.below(n);
        at = match at {
            Value::Array(a) => &mut a[i],
            Value::Object(o) => o.values_mut().nth(i).expect("a value"),
            _ => unreachable!(),
        };
    }
    let others = [
        json!(-1),
        json!(0),
        json!(1),
        json!(7),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(1.5),
        json!("x"),
        json!([]),
        json!(null),
        json!({"as_int": -3}),
        json!([1, 2, 3, 4, 5]),
    ];
    *at = others[dice.below(others.len())].clone();
}
