//! The example of docs/write-a-pass.md: the page shows exactly these files, and the pass works as
//! described.
use crate::passes::run_file;

#[path = "../docs/write-a-pass/div_to_mul.rs"]
mod div_to_mul;

const PAGE: &str = include_str!("../docs/write-a-pass.md");
const RUST: &str = include_str!("../docs/write-a-pass/div_to_mul.rs");
const INPUT: &str = include_str!("../docs/write-a-pass/div_to_mul.mlir");

#[test]
fn the_page_matches_the_files() {
    assert!(
        PAGE.contains(&format!("```rust\n{RUST}```")),
        "docs/write-a-pass.md shows another docs/write-a-pass/div_to_mul.rs"
    );
    assert!(
        PAGE.contains(&format!("```mlir\n{INPUT}```")),
        "docs/write-a-pass.md shows another docs/write-a-pass/div_to_mul.mlir"
    );
    assert!(
        RUST.lines().count() + INPUT.lines().count() < 60,
        "a first pass and its test should not need 60 lines"
    );
}

/// A tool that registers a pass has a flag for it, and lists it.
#[test]
fn a_registered_pass_is_a_flag_of_kiln_opt() {
    kiln_passes::pass::register::<div_to_mul::DivToMul>().expect("registered");
    let command = kiln::opt::command();
    let flag = command.get_arguments().find(|a| a.get_long() == Some("kiln-div-to-mul"));
    assert!(flag.is_some_and(|f| !f.is_hide_set()));
    let list = kiln::opt::passes::list();
    let own = list.split("Passes of this tool's own").nth(1).expect("a heading");
    let own = own.split("Passes of upstream").next().expect("a part");
    assert!(own.contains("  --kiln-div-to-mul\n") && own.contains("limit=1024"), "{own}");
    assert!(!own.contains("--kiln-simplify"), "{own}");
    let found = kiln::opt::passes::known("kiln-div-to-mull").expect_err("there is none");
    assert!(found.to_string().contains("did you mean 'kiln-div-to-mul'?"), "{found}");
}

#[test]
fn the_documented_pass_works() {
    kiln_passes::pass::register::<div_to_mul::DivToMul>().expect("registered");
    let snapshots = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/write-a-pass");
    let failures = run_file("div_to_mul", INPUT, &snapshots, kiln_passes::Numerics::Exact);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
