//! Checks that MLIR 22 is where the variables of its bindings say, and says what to do if not.
use std::{env, path::Path, process::Command};

const PREFIX: &str = "MLIR_SYS_220_PREFIX";
const CONFIG: &str = "\
Install MLIR 22 (Debian: libmlir-22-dev mlir-22-tools llvm-22-dev libpolly-22-dev libclang-22-dev
libzstd-dev zlib1g-dev libxml2-dev libz3-dev g++), and write where it lies to .cargo/config.toml of
your workspace; cargo reads that of a dependency nowhere:

    [env]
    MLIR_SYS_220_PREFIX = \"/usr/lib/llvm-22\"
    TABLEGEN_220_PREFIX = \"/usr/lib/llvm-22\"
";

fn main() {
    println!("cargo:rerun-if-env-changed={PREFIX}");
    println!("cargo:rerun-if-env-changed=PATH");
    if let Err(why) = check() {
        eprintln!("kiln needs MLIR 22: {why}.\n\n{CONFIG}");
        std::process::exit(1);
    }
}

fn check() -> Result<(), String> {
    let Some(prefix) = env::var_os(PREFIX).filter(|p| !p.is_empty()) else {
        // mlir-sys asks the llvm-config of PATH.
        return match version("llvm-config") {
            Some(v) if v.starts_with("22.") => Ok(()),
            Some(v) => Err(format!("{PREFIX} is not set, and the llvm-config of PATH is {v}")),
            None => Err(format!("{PREFIX} is not set, and there is no llvm-config in PATH")),
        };
    };
    let prefix = Path::new(&prefix);
    if !prefix.join("include/mlir-c/IR.h").exists() {
        return Err(format!("{PREFIX} is {}, where include/mlir-c/IR.h is not", prefix.display()));
    }
    match version(&prefix.join("bin/llvm-config").to_string_lossy()) {
        Some(v) if v.starts_with("22.") => Ok(()),
        Some(v) => Err(format!("{PREFIX} is {}, where llvm-config is {v}", prefix.display())),
        None => Err(format!("{PREFIX} is {}, where bin/llvm-config is not", prefix.display())),
    }
}

fn version(config: &str) -> Option<String> {
    let out = Command::new(config).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&out.stdout).trim().to_string())
}
