//! Unsupported programs are clear errors, and corrupt files never panic.
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

/// Rewrites an entry's bytes, by its name.
pub type Rewrite<'a> = &'a dyn Fn(&str, Vec<u8>) -> Option<Vec<u8>>;

/// The archive with each entry rewritten or dropped by `f`.
pub fn rewritten(archive: &[u8], f: Rewrite<'_>) -> Vec<u8> {
    let mut from = zip::ZipArchive::new(Cursor::new(archive)).expect("a zip");
    let mut to = zip::ZipWriter::new(Cursor::new(vec![]));
    for i in 0..from.len() {
        let mut entry = from.by_index(i).expect("an entry");
        let (name, mut bytes) = (entry.name().to_string(), vec![]);
        entry.read_to_end(&mut bytes).expect("an entry");
        let Some(bytes) = f(&name, bytes) else { continue };
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored);
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
    assert_eq!(
        counts,
        [
            ("aten._fake_quantize_learnable_per_tensor_affine.default", 2),
            ("aten._standard_gamma_grad.default", 1)
        ]
    );
    for u in all {
        let line = u.location.strip_prefix("gen_aten.py:").and_then(|l| l.parse::<u32>().ok());
        assert!(line.is_some(), "{}", u.location);
    }
    assert!(e.to_string().contains("2 unsupported ops") && e.to_string().contains("2x"), "{e}");
}

#[test]
fn files_that_are_no_archives() {
    let says = |e: CaptureError, part: &str| {
        assert!(matches!(&e, CaptureError::File { .. }) && e.to_string().contains(part), "{e}")
    };
    says(failure(&root().join("capture")), "is a directory");
    says(failure(&root().join("no such file.pt2")), "No such file");
    says(failure_of(b""), "");
    says(failure_of(b"not a zip"), "is no .pt2 archive");
    let good = state();
    says(failure_of(&good[..good.len() / 2]), "is no .pt2 archive");
    says(
        failure_of(&rewritten(&good, &|n, b| (!n.ends_with("model.json")).then_some(b))),
        "has no models/model.json",
    );
    says(failure_of(&model(&good, &|t| t[..t.len() / 2].to_string())), "model.json");
    says(
        failure_of(&model(&good, &|t| t.replacen("\"major\": 8", "\"major\": 7", 1))),
        "has schema version 7; 8 is supported",
    );
    let short = |n: &str, mut b: Vec<u8>| {
        if n.contains("data/weights/weight") {
            b.truncate(b.len() / 2);
        }
        Some(b)
    };
    says(failure_of(&rewritten(&good, &short)), "reaches beyond its storage");
    says(
        failure_of(&rewritten(&good, &|n, b| (!n.contains("data/weights/weight")).then_some(b))),
        "not found",
    );
}
