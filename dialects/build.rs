//! Runs TableGen over `td/`, generates the Rust side of the op table, and compiles the C++
//! trampolines.
#[path = "build/codegen.rs"]
mod codegen;
#[path = "build/upstream/mod.rs"]
mod upstream;

use std::{env, fs, path::Path, path::PathBuf, process::Command};

/// Translation units of the op definitions; they compile in parallel.
const SHARDS: usize = 2;
const MISSING: &str = "MLIR 22 was not found under";
const REMEDY: &str = "install libmlir-22-dev mlir-22-tools llvm-22-dev libpolly-22-dev libclang-22-dev libzstd-dev zlib1g-dev libxml2-dev libz3-dev g++, \
    or set MLIR_SYS_220_PREFIX to where it lies";

fn tblgen(prefix: &Path, tool: &str, flags: &[&str]) -> Vec<u8> {
    let mut command = Command::new(prefix.join("bin").join(tool));
    command.args(flags).arg("-I").arg(prefix.join("include")).arg("-I").arg("td").arg("td/Kiln.td");
    match command.output() {
        Ok(out) if out.status.success() => out.stdout,
        Ok(out) => fail(&format!("{tool} {flags:?}: {}", String::from_utf8_lossy(&out.stderr))),
        Err(e) => fail(&format!("{MISSING} {} ({tool}: {e}); {REMEDY}", prefix.display())),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(1)
}

fn main() {
    for path in ["td", "cpp", "build", "build.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=MLIR_SYS_220_PREFIX");
    let prefix = PathBuf::from(
        env::var("MLIR_SYS_220_PREFIX").unwrap_or_else(|_| "/usr/lib/llvm-22".into()),
    );
    if !prefix.join("include/mlir-c/IR.h").exists() {
        fail(&format!("{MISSING} {}; {REMEDY}", prefix.display()));
    }
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let shards = format!("-op-shard-count={SHARDS}");
    for (flags, file) in [
        (&["-gen-dialect-decls"][..], "KilnDialect.h.inc"),
        (&["-gen-dialect-defs"], "KilnDialect.cpp.inc"),
        (&["-gen-op-decls", &shards], "KilnOps.h.inc"),
        (&["-gen-op-defs", &shards], "KilnOps.cpp.inc"),
        (&["-gen-enum-decls"], "KilnEnums.h.inc"),
        (&["-gen-enum-defs"], "KilnEnums.cpp.inc"),
        (&["-gen-typedef-decls"], "KilnTypes.h.inc"),
        (&["-gen-typedef-defs"], "KilnTypes.cpp.inc"),
        (&["-gen-attrdef-decls"], "KilnAttrs.h.inc"),
        (&["-gen-attrdef-defs"], "KilnAttrs.cpp.inc"),
    ] {
        fs::write(out.join(file), tblgen(&prefix, "mlir-tblgen", flags))
            .expect("OUT_DIR is writable");
    }
    // mlir-tblgen has no --dump-json; llvm-tblgen has, and reads MLIR's .td just as well.
    let json = serde_json::from_slice(&tblgen(&prefix, "llvm-tblgen", &["--dump-json"]))
        .expect("llvm-tblgen prints JSON");
    let table = codegen::Table::read(&json);
    fs::write(out.join("kinds.rs"), table.kinds()).expect("OUT_DIR is writable");
    fs::write(out.join("macros.rs"), table.macros()).expect("OUT_DIR is writable");
    fs::write(out.join("nodes.rs"), table.nodes()).expect("OUT_DIR is writable");
    fs::write(out.join("upstream.rs"), upstream_passes(&prefix)).expect("OUT_DIR is writable");
    fs::write(out.join("dialects.rs"), upstream::generate(&prefix)).expect("OUT_DIR is writable");

    // Clippy links nothing, and the C++ takes most of this script's time.
    if env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(|w| w.contains("clippy-driver")) {
        return;
    }
    let compile = |name: &str| {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .flag("-fno-rtti")
            .flag("-fno-exceptions")
            .flag("-fvisibility=hidden")
            .warnings(false)
            .debug(false);
        // Unoptimised in development, where compile time dominates; -O1 is enough otherwise.
        let level = if env::var("OPT_LEVEL").is_ok_and(|l| l == "0") { 0 } else { 1 };
        build
            .opt_level(level)
            .include(prefix.join("include"))
            .include(&out)
            .include("cpp")
            .out_dir(out.join(name));
        build
    };
    let mut objects = vec![];
    std::thread::scope(|scope| {
        let shards: Vec<_> = (0..SHARDS)
            .map(|i| {
                let compile = &compile;
                scope.spawn(move || {
                    compile(&format!("shard{i}"))
                        .define(&format!("GET_OP_DEFS_{i}"), None)
                        .file("cpp/Ops.cpp")
                        .compile_intermediates()
                })
            })
            .collect();
        for shard in shards {
            objects.extend(shard.join().expect("a shard of the op definitions compiles"));
        }
    });
    compile("rest")
        .file("cpp/Dialect.cpp")
        .file("cpp/Passes.cpp")
        .objects(objects)
        .compile("kiln_dialect");
}

/// The flags and summaries of upstream's passes, from upstream's own .td files, for `--list-passes`
/// and nearest names.
fn upstream_passes(prefix: &Path) -> String {
    let include = prefix.join("include");
    let mut files = vec![];
    collect(&include.join("mlir"), &mut files);
    files.sort();
    let mut rows = std::collections::BTreeMap::new();
    for file in files {
        let run = Command::new(prefix.join("bin/llvm-tblgen"))
            .args(["--dump-json", "-I"])
            .arg(&include)
            .arg(&file)
            .output();
        let Some(out) = run.ok().filter(|o| o.status.success()) else { continue };
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&out.stdout) else { continue };
        for name in json["!instanceof"]["PassBase"].as_array().into_iter().flatten() {
            let row = &json[name.as_str().unwrap_or("")];
            if let (Some(flag), Some(summary)) = (row["argument"].as_str(), row["summary"].as_str())
            {
                rows.insert(
                    flag.to_string(),
                    summary.split_whitespace().collect::<Vec<_>>().join(" "),
                );
            }
        }
    }
    let rows: Vec<_> =
        rows.iter().map(|(flag, summary)| format!("    ({flag:?}, {summary:?}),\n")).collect();
    format!(
        "/// Upstream's passes: flag and summary, sorted by flag.\npub const UPSTREAM_PASSES: &[(&str, &str)] = &[\n{}];\n",
        rows.concat()
    )
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files)
        } else if path.file_name().is_some_and(|n| n.to_string_lossy().ends_with("Passes.td")) {
            files.push(path)
        }
    }
}
