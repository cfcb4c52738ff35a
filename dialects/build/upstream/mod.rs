//! Generates `ir::upstream` from upstream's own .td files: for each dialect a module with its
//! enums, and for each op a marker type, a builder and accessors.
mod attrs;
mod code;
mod enums;
mod ops;

use serde_json::Value as Json;
use std::{collections::BTreeMap, path::Path, process::Command};

/// A dialect: its module, the files below `mlir/Dialect` that define its ops, and which of them are
/// generated; none says all. Of large dialects only what kiln uses is, since 600 further ops would
/// cost some seconds of each build: to use another one, add its name.
struct Dialect(&'static str, &'static [&'static str], &'static [&'static str]);

const DIALECTS: &[Dialect] = &[
    Dialect("affine", &["Affine/IR/AffineOps"], &["apply", "for", "max", "min", "yield"]),
    Dialect("arith", &["Arith/IR/ArithOps"], &[]),
    Dialect("func", &["Func/IR/FuncOps"], &[]),
    Dialect(
        "gpu",
        &["GPU/IR/GPUOps"],
        &["barrier", "binary", "block_id", "grid_dim", "module", "shuffle", "thread_id"],
    ),
    Dialect(
        "linalg",
        &["Linalg/IR/LinalgOps", "Linalg/IR/LinalgStructuredOps"],
        &["fill", "generic", "index", "yield"],
    ),
    Dialect(
        "llvm",
        &["LLVMIR/LLVMOps"],
        &[
            "addrspacecast",
            "alloca",
            "bitcast",
            "call_intrinsic",
            "extractvalue",
            "func",
            "getelementptr",
            "inline_asm",
            "insertvalue",
            "inttoptr",
            "load",
            "mlir.addressof",
            "mlir.constant",
            "mlir.global",
            "mlir.poison",
            "mlir.undef",
            "mul",
            "ptrtoint",
            "store",
        ],
    ),
    Dialect("math", &["Math/IR/MathOps"], &[]),
    Dialect("memref", &["MemRef/IR/MemRefOps"], &[]),
    Dialect(
        "nvvm",
        &["LLVMIR/NVVMOps"],
        &[
            "bar.warp.sync",
            "barrier",
            "barrier0",
            "cluster.arrive",
            "cluster.arrive.relaxed",
            "cluster.wait",
            "cp.async.bulk.commit.group",
            "cp.async.bulk.prefetch",
            "cp.async.bulk.shared.cluster.shared.cta",
            "cp.async.bulk.tensor.global.shared.cta",
            "cp.async.bulk.tensor.shared.cluster.global",
            "cp.async.bulk.wait_group",
            "cp.async.commit.group",
            "cp.async.shared.global",
            "cp.async.wait.group",
            "fence.mbarrier.init",
            "fence.proxy",
            "griddepcontrol",
            "ldmatrix",
            "mapa",
            "mbarrier.arrive",
            "mbarrier.arrive.expect_tx",
            "mbarrier.init",
            "mbarrier.try_wait.parity",
            "mma.sync",
            "prefetch",
            "read.ptx.sreg.ctaid.x",
            "read.ptx.sreg.nctaid.x",
            "read.ptx.sreg.tid.x",
            "setmaxregister",
            "shfl.sync",
            "stmatrix",
            "vote.sync",
            "wgmma.commit.group.sync.aligned",
            "wgmma.fence.aligned",
            "wgmma.mma_async",
            "wgmma.wait.group.sync.aligned",
        ],
    ),
    Dialect("omp", &["OpenMP/OpenMPOps"], &["barrier", "parallel", "terminator"]),
    Dialect("scf", &["SCF/IR/SCFOps"], &[]),
    Dialect("tensor", &["Tensor/IR/TensorOps"], &[]),
    Dialect("vector", &["Vector/IR/VectorOps"], &[]),
];

/// The records of one .td file.
struct Records(Json);

impl Records {
    fn of(&self, class: &str) -> impl Iterator<Item = &Json> {
        let names = self.0["!instanceof"][class].as_array().into_iter().flatten();
        names.filter_map(Json::as_str).map(|n| &self.0[n])
    }
    /// The record that a field refers to.
    fn def(&self, field: &Json) -> &Json {
        field["def"].as_str().map_or(&Json::Null, |n| &self.0[n])
    }
}

fn text(j: &Json) -> &str {
    j.as_str().unwrap_or("")
}

fn is(j: &Json, class: &str) -> bool {
    j["!superclasses"].as_array().is_some_and(|c| c.iter().any(|x| x == class))
}

/// `some_name`, `some.name` or `someName` as `SomeName`.
fn camel(s: &str) -> String {
    s.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(|w| w[..1].to_uppercase() + &w[1..])
        .collect()
}

/// `someName` or `some.name` as `some_name`; words of Rust get a `_` at the end, as in MLIR's
/// Python bindings.
fn snake(s: &str) -> String {
    let mut out = String::new();
    let all: Vec<char> = s.chars().collect();
    for (i, c) in all.iter().enumerate() {
        let before = i.checked_sub(1).map(|j| all[j]);
        let starts = c.is_ascii_uppercase()
            && before.is_some_and(|b| {
                b.is_ascii_lowercase()
                    || b.is_ascii_digit()
                    || (b.is_ascii_uppercase()
                        && all.get(i + 1).is_some_and(char::is_ascii_lowercase))
            });
        if starts && !out.ends_with('_') {
            out.push('_');
        }
        out.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    }
    const WORDS: &[&str] = &[
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
        "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
        "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub",
        "ref", "return", "self", "static", "struct", "super", "trait", "true", "try", "type",
        "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
    ];
    if WORDS.contains(&out.as_str()) {
        out.push('_');
    }
    out
}

/// A summary as a line of documentation.
fn line(s: &str) -> String {
    let all = s.split_whitespace().collect::<Vec<_>>().join(" ");
    all.replace('[', "\\[").replace(']', "\\]").replace('<', "\\<").replace('>', "\\>")
}

/// Runs TableGen on all files, and generates the modules.
pub fn generate(prefix: &Path) -> String {
    let include = prefix.join("include");
    let read = |file: &str| -> Records {
        let path = include.join("mlir/Dialect").join(format!("{file}.td"));
        println!("cargo:rerun-if-changed={}", path.display());
        let run = Command::new(prefix.join("bin/llvm-tblgen"))
            .args(["--dump-json", "-I"])
            .arg(&include)
            .arg(&path)
            .output();
        match run {
            Ok(out) if out.status.success() => {
                Records(serde_json::from_slice(&out.stdout).expect("llvm-tblgen prints JSON"))
            }
            Ok(out) => super::fail(&String::from_utf8_lossy(&out.stderr)),
            Err(e) => super::fail(&format!("llvm-tblgen {}: {e}", path.display())),
        }
    };
    let all: Vec<Vec<Records>> = std::thread::scope(|scope| {
        let start =
            |d: &Dialect| -> Vec<_> { d.1.iter().map(|f| scope.spawn(|| read(f))).collect() };
        let rows: Vec<_> = DIALECTS.iter().map(start).collect();
        let done = |files: Vec<std::thread::ScopedJoinHandle<'_, Records>>| {
            files.into_iter().map(|f| f.join().expect("TableGen's records are read")).collect()
        };
        rows.into_iter().map(done).collect()
    });
    let mut enums = BTreeMap::new();
    for records in all.iter().flatten() {
        enums::collect(records, &mut enums);
    }
    let mut modules: BTreeMap<&str, String> = BTreeMap::new();
    for (Dialect(module, _, wanted), files) in DIALECTS.iter().zip(&all) {
        let named = enums.values().filter(|e| e.module == *module);
        let mut taken: Vec<String> = named.map(|e| e.name.clone()).collect();
        let out = modules.entry(module).or_default();
        let mut missing: Vec<&str> = wanted.to_vec();
        for records in files {
            for op in records.of("Op") {
                let name = text(&op["opName"]);
                let ours = text(&records.def(&op["opDialect"])["name"]) == *module;
                if !ours || !(wanted.is_empty() || wanted.contains(&name)) {
                    continue;
                }
                missing.retain(|m| *m != name);
                out.push_str(&ops::Op::read(records, op, module, &mut taken).code());
            }
        }
        if !missing.is_empty() {
            super::fail(&format!("MLIR's {module} dialect has no op {}", missing.join(", ")));
        }
    }
    // Of enums, what the ops name.
    let ops: String = modules.values().flat_map(|m| m.chars()).collect();
    for e in enums.values().filter(|e| ops.contains(&e.path())) {
        modules.entry(&e.module).or_default().push_str(&e.code());
    }
    let mut out = String::new();
    for (name, body) in modules {
        let doc = format!("/// Ops and enums of `{name}`, by their names in the .td.\n");
        let head = format!("{doc}#[allow(clippy::all)]\npub mod {name} {{\n    use super::*;\n");
        out.push_str(&(head + &body + "}\n"));
    }
    out
}
