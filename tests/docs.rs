//! Generated pages are fresh, and what the other pages say still holds.
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares a page with its generator; `KILN_BLESS=1` writes it.
fn fresh(file: &str, text: &str) {
    let path = root().join(file);
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(&path, text).expect("docs can be written");
    }
    let have = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(have == text, "{file} is stale; `./x bless` writes it anew");
}

#[test]
fn the_op_reference_is_fresh() {
    fresh("docs/ops.md", &kiln::docs::ops());
}

#[test]
fn the_pass_reference_is_fresh() {
    fresh("docs/passes.md", &kiln::docs::passes());
}

#[test]
fn the_aten_reference_is_fresh() {
    fresh("docs/aten.md", &kiln::docs::aten());
}

#[test]
fn the_walkthrough_is_fresh() {
    fresh("docs/walkthrough.md", &kiln::walkthrough::page().expect("every level"));
}

/// Every path in backticks that looks like one of the project's own exists.
#[test]
fn pages_name_files_that_exist() {
    let mut pages = vec![root().join("README.md")];
    pages.extend(
        std::fs::read_dir(root().join("docs"))
            .expect("docs")
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.extension().is_some_and(|e| e == "md")),
    );
    let folders = ["dialects/", "passes/", "lowering/", "src/", "tests/", "snapshots/", "examples/", "docs/", "benches/", ".ci/"];
    let mut missing = vec![];
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for word in text.split('`').skip(1).step_by(2) {
            let generic = word.contains(['<', '*', ' ', '{', '…']);
            if folders.iter().any(|f| word.starts_with(f)) && !generic && !word.contains("div_to_mul") && !root().join(word).exists() {
                missing.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
