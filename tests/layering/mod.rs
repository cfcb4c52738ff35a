//! Imports point one way: between the folders of `lowering`, and between the files of every crate
//! but for the cycles listed here.
mod cycles;
mod imports;
mod upstream;

use crate::support::repository;
use imports::{Crate, Module};
use std::collections::{BTreeMap, BTreeSet};

/// The folders of `lowering/src`; each imports only from those before it.
const FOLDERS: [&str; 11] = [
    "target",
    "analysis",
    "emit",
    "math",
    "strategies",
    "kernels",
    "program",
    "linalg",
    "cpu",
    "gpu",
    "driver",
];

/// The source folders of all crates with levels of their own.
const SOURCES: [&str; 7] = [
    "linalg/src",
    "dialects/src",
    "passes/src",
    "lowering/src",
    "runtime/src",
    "emulator/src",
    "src",
];

fn shown(module: &Module) -> String {
    if module.is_empty() { "lib".into() } else { module.join("/") }
}

/// Imports of a folder that stands before the imported one.
fn upwards(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let place = |m: &Module| {
        let folder = m.first()?;
        let place = FOLDERS.iter().position(|f| f == folder);
        Some(place.unwrap_or_else(|| panic!("lowering/src/{folder} has no place in FOLDERS")))
    };
    let mut wrong = vec![];
    for (from, all) in edges {
        for to in all {
            if let (Some(a), Some(b)) = (place(from), place(to))
                && b > a
            {
                wrong.push(format!("lowering/src/{} imports {}", shown(from), shown(to)));
            }
        }
    }
    wrong
}

/// The strongly connected components of more than one file.
fn cycles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reached = |from: &Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(m) = open.pop() {
            let next = edges.get(m).into_iter().flatten();
            open.extend(next.filter(|n| seen.insert((*n).clone())));
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> = edges.keys().map(|m| (m, reached(m))).collect();
    let mut found = vec![];
    let mut done = BTreeSet::new();
    for (m, to) in &all {
        if to.contains(*m) && !done.contains(*m) {
            let cycle: BTreeSet<Module> =
                to.iter().filter(|o| all[*o].contains(*m)).cloned().collect();
            done.extend(cycle.iter().cloned());
            found.push(cycle);
        }
    }
    found
}

#[test]
fn folders_of_lowering_import_one_way() {
    let edges = Crate::read(&repository().join("lowering/src")).edges();
    assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 200, "imports are read");
    let wrong = upwards(&edges);
    assert!(wrong.is_empty(), "imports upwards:\n{}", wrong.join("\n"));
}

#[test]
fn no_new_cycle_of_imports() {
    let mut wrong = vec![];
    for source in SOURCES {
        let edges = Crate::read(&repository().join(source)).edges();
        let known = cycles::KNOWN.iter().filter(|(s, _)| *s == source);
        let known: BTreeSet<BTreeSet<String>> =
            known.map(|(_, files)| files.split_whitespace().map(String::from).collect()).collect();
        let found = cycles(&edges);
        let present: BTreeSet<BTreeSet<String>> =
            found.iter().map(|c| c.iter().map(shown).collect()).collect();
        for gone in known.difference(&present) {
            wrong.push(format!("{source}: take out of tests/layering/cycles.rs: {gone:?}"));
        }
        for cycle in found.iter().filter(|c| !known.contains(&c.iter().map(shown).collect())) {
            wrong.push(format!("{source}: {} files import each other:", cycle.len()));
            for m in cycle {
                let to: Vec<String> = edges[m].intersection(cycle).map(shown).collect();
                wrong.push(format!("    {} -> {}", shown(m), to.join(" ")));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "cycles of imports have changed; a new one is to be broken, and a smaller one listed:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn imports_are_resolved() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("lib.rs", "mod target; mod gpu; pub use gpu::emit::{Emit,};"),
        ("target.rs", "use crate::gpu::*; #[cfg(test)] mod tests { use crate::gpu::emit::X; }"),
        ("gpu/mod.rs", "mod emit; pub use emit::{Emit, other as renamed};"),
        (
            "gpu/emit.rs",
            "mod inner { use super::super::renamed; }\npub struct Emit; // crate::x::y",
        ),
        (
            "driver.rs",
            "use {crate::{Emit as E,}, std::io,}; fn f() { crate::target::g(\"crate::gpu\") }",
        ),
    ] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }
    let edges = Crate::read(folder.path()).edges();
    let said: Vec<String> = edges
        .iter()
        .map(|(m, to)| {
            format!("{}: {}", shown(m), to.iter().map(shown).collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(said, ["lib: ", "driver: gpu/emit target", "gpu: ", "gpu/emit: ", "target: gpu"]);
    assert_eq!(upwards(&edges), ["lowering/src/target imports gpu"]);
    assert!(cycles(&edges).is_empty());
    let circle = ["a", "b", "c"].map(|m| vec![m.to_string()]);
    let of = |i: usize| (circle[i].clone(), BTreeSet::from([circle[(i + 1) % 2].clone()]));
    assert_eq!(
        cycles(&(0..3).map(of).collect()),
        [BTreeSet::from([circle[0].clone(), circle[1].clone()])]
    );
}
