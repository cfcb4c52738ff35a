//! Upstream's ops are built and read by their types in `ir::upstream`, not by strings and numbers.
use crate::support::repository;
use regex::Regex;
use std::{collections::BTreeMap, fs, path::Path};

/// Sources that build or read upstream's ops.
const SOURCES: [&str; 4] = ["dialects/src", "passes/src", "lowering/src", "src"];

/// What a line must not have, and what to write in its place.
const PATTERNS: [(&str, &str); 4] = [
    (
        r#""(arith|math|scf|vector|memref|tensor|linalg|func|affine|gpu|nvvm|llvm|omp|cf|ub|bufferization)\.[a-z_.0-9]+""#,
        "names an upstream op as a string: `arith::mulf`, `op.isa::<arith::MulF>()` or `arith::MulF::NAME`",
    ),
    (r"\b(compare|cmpi|cmpf)\([0-9]", "has a predicate as a number: `CmpIPredicate::Slt`"),
    (
        r"\b(Attr|Type)::parse\(",
        "parses an attribute or a type: a constructor of `Attr` or `Type`, or an enum",
    ),
    (
        r"\.ty\(\)\.to_string\(\)",
        "compares a type as text: `Type::dtype`, `Type::memory_space` and the like",
    ),
];

/// Files with such lines, how many, and why.
const ALLOWED: [(&str, usize, &str); 23] = [
    ("dialects/src/ir/upstream.rs", 1, "enum attributes: the C API has no constructor"),
    ("lowering/src/analysis/generalize/attention.rs", 1, "the text of loops as a map"),
    ("lowering/src/analysis/generalize/mod.rs", 1, "iterator types: the C API has no constructor"),
    ("lowering/src/analysis/read.rs", 1, "linalg.contract, whose region upstream fills"),
    ("lowering/src/analysis/structure.rs", 1, "linalg.contract, whose region upstream fills"),
    ("lowering/src/cpu/llvm/one_lane.rs", 1, "an intrinsic of LLVM, not an op"),
    ("lowering/src/driver/schedules.rs", 1, "the user's text of a schedule"),
    ("lowering/src/emit/code.rs", 1, "LLVM's loop annotation: the C API has no constructor"),
    ("lowering/src/gpu/gpu_module.rs", 4, "intrinsics by stem; nvvm's target has no constructor"),
    ("lowering/src/linalg/kernel.rs", 1, "linalg.contract, whose region upstream fills"),
    ("lowering/src/strategies/cpu/blocked_gemm/microkernel.rs", 1, "amx's tile type"),
    ("lowering/src/strategies/gpu/common/grid.rs", 1, "the text of a grid as a map"),
    ("lowering/src/strategies/gpu/common/ptx.rs", 1, "nvvm's shapes: no constructor"),
    ("lowering/src/target/kernel_attrs.rs", 11, "names of attributes, which the .td does not give"),
    ("src/capture/aten/linear.rs", 2, "names of PyTorch's functions in messages"),
    ("src/capture/aten/matrices/condition.rs", 2, "names of PyTorch's functions in messages"),
    ("src/capture/aten/matrices/factors.rs", 7, "names of PyTorch's functions in messages"),
    ("src/capture/aten/matrices/general.rs", 2, "names of PyTorch's functions in messages"),
    ("src/capture/aten/matrices/inverses.rs", 4, "names of PyTorch's functions in messages"),
    ("src/capture/aten/matrices/orthogonal.rs", 1, "names of PyTorch's functions in messages"),
    ("src/capture/aten/matrices/spectra.rs", 8, "names of PyTorch's functions in messages"),
    ("src/capture/aten/matrices/systems.rs", 3, "names of PyTorch's functions in messages"),
    ("src/capture/aten/symbolic.rs", 3, "functions of Python's module math"),
];

fn sources(folder: &Path, all: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).expect("a source folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
}

#[test]
fn upstream_ops_are_typed() {
    let patterns = PATTERNS.map(|(p, why)| (Regex::new(p).expect("a pattern"), why));
    let mut files = vec![];
    SOURCES.iter().for_each(|s| sources(&repository().join(s), &mut files));
    files.sort();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a source");
        let name = path.strip_prefix(repository()).expect("inside").display().to_string();
        for (n, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for (_, why) in patterns.iter().filter(|(p, _)| p.is_match(line)) {
                let said = format!("{name}:{}: {why}\n    {}", n + 1, line.trim());
                found.entry(name.clone()).or_default().push(said);
            }
        }
    }
    let mut wrong = vec![];
    for (name, lines) in &found {
        let allowed = ALLOWED.iter().find(|(file, ..)| file == name).map_or(0, |row| row.1);
        if lines.len() > allowed {
            wrong.extend(lines.iter().cloned());
        }
    }
    for (file, count, _) in ALLOWED {
        let have = found.get(file).map_or(0, Vec::len);
        if have < count {
            wrong.push(format!("{file} has {have} such lines, fewer than the {count} of the list"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
