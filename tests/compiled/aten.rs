//! Every row of the ATen table, compiled, against PyTorch's results.
use super::*;
use crate::capture::{import, root, tensors};
use kiln::{dialects::ir::Context, tolerance};

/// Results that do not compile yet, with the compiler's message. The list may only shrink: a result
/// that compiles fails the test until its line is removed.
const NOT_COMPILED: &[(&str, usize, &str)] = &[];

pub const ARCHIVES: [&str; 22] = [
    "aten_binary",
    "aten_complex",
    "aten_contract",
    "aten_create",
    "aten_empty",
    "aten_float8",
    "aten_fourier",
    "aten_fourier_symbolic",
    "aten_fuzz_02",
    "aten_image",
    "aten_in_place",
    "aten_index",
    "aten_narrow",
    "aten_norm",
    "aten_promotion",
    "aten_writes",
    "aten_quantized",
    "aten_reduce",
    "aten_roundings",
    "aten_special",
    "aten_unary",
    "aten_view",
];

/// Compiles the named results of an archive and compares them; `Err` if they do not compile.
fn differences(archive: &str, kept: &[usize]) -> Result<Vec<String>, String> {
    let c = Context::new();
    let captured = import(&c, &root().join(format!("capture/{archive}.pt2")));
    let func = captured.module.find("main").expect("main");
    if let Some(attr) = func.attr("res_attrs") {
        return Err(format!("has attributes on results: {attr}"));
    }
    keep_results(func, kept);
    let file = root().join(format!("capture/{archive}.safetensors"));
    let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
    let program =
        native(&captured.module, "main", &|name| captured.weight(name).map_err(|e| e.to_string()))?;
    let mut wrong = vec![];
    for threads in [1, 2] {
        let have = call(&program, &inputs, threads)?;
        for (i, have) in kept.iter().zip(&have) {
            match tolerance::compare(have, &want[*i]) {
                Ok(c) if c.ok => {}
                Ok(c) => wrong.push(format!(
                    "{archive} {i}, {threads} threads: {c}\n  have {:?}\n  want {:?}",
                    have.data(),
                    want[*i].data()
                )),
                Err(e) => wrong.push(format!("{archive} {i}, {threads} threads: {e}")),
            }
        }
    }
    Ok(wrong)
}

/// The number of results of an archive.
pub fn results(archive: &str) -> usize {
    tensors(&root().join(format!("capture/{archive}.safetensors")), "output").len()
}

#[test]
fn every_row_as_pytorch() {
    let mut wrong = vec![];
    for archive in ARCHIVES {
        crate::watchdog::arm();
        let listed = |i: usize| NOT_COMPILED.iter().any(|(a, k, _)| (*a, *k) == (archive, i));
        let kept: Vec<usize> = (0..results(archive)).filter(|i| !listed(*i)).collect();
        match differences(archive, &kept) {
            Ok(d) => wrong.extend(d),
            Err(e) => wrong.push(format!("{archive} does not compile: {e}")),
        }
    }
    for (archive, i, reason) in NOT_COMPILED {
        match differences(archive, &[*i]) {
            Ok(_) => wrong.push(format!("{archive} {i} compiles now: take it off the list")),
            Err(e) if e.contains(reason) => {}
            Err(e) => wrong.push(format!("{archive} {i}: {e}, not {reason}")),
        }
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}

/// Each result on its own, to locate a failure; KILN_ARCHIVE selects an archive.
#[test]
#[ignore = "slow, and says no more than the other"]
fn each_result_separately() {
    let only = std::env::var("KILN_ARCHIVE").ok();
    for archive in ARCHIVES.into_iter().filter(|a| only.as_deref().is_none_or(|o| o == *a)) {
        for i in 0..results(archive) {
            match differences(archive, &[i]) {
                Ok(d) => d.iter().take(1).for_each(|d| println!("{d}")),
                Err(e) => println!("{archive} {i}: {e}"),
            }
        }
    }
}
