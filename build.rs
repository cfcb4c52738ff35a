//! Names the build, so that a cache of compiled code never mixes compilers.
use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
};

fn sources(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| ["rs", "td", "cpp", "h"].iter().any(|x| e == *x))
        {
            all.push(path);
        }
    }
}

fn main() {
    let mut all = vec![];
    for dir in ["dialects", "passes/src", "lowering/src", "src/capture"] {
        println!("cargo:rerun-if-changed={dir}");
        sources(Path::new(dir), &mut all);
    }
    all.sort();
    let mut hasher = DefaultHasher::new();
    for path in all {
        std::fs::read(&path).unwrap_or_default().hash(&mut hasher);
    }
    println!("cargo:rustc-env=KILN_BUILD={:016x}", hasher.finish());
}
