//! The launches of a program.
use super::*;
use kiln::runtime::program::{Arg, Dim};

#[test]
fn launches_are_plain_data_over_sizes() {
    let package = build(&models().join("mlp.pt2"), "sm_90a").unwrap();
    let p = &package.program;
    let launches: Vec<_> = p.kernels.iter().filter_map(|k| k.launch.as_ref()).collect();
    assert!(
        launches.iter().any(|l| matches!(l.grid, Dim::Expr(_) | Dim::Symbol(_))),
        "a size of the call decides how many blocks run"
    );
    assert!(launches.iter().flat_map(|l| &l.args).any(|a| *a == Arg::Input(0)));
    assert!(launches.iter().flat_map(|l| &l.args).any(|a| *a == Arg::Output(0)));
    let symbols = vec![64; p.symbols.len()];
    let exprs = p.expr_values(&symbols).unwrap();
    assert!(launches.iter().all(|l| l.grid.value(&symbols, &exprs).unwrap() >= 1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mlp.kpkg");
    package.save(&path).unwrap();
    assert_eq!(Package::load(&path).unwrap(), package);
}

#[test]
fn launches_have_source_locations() {
    let package = build(&models().join("bert_tiny.pt2"), "sm_90a").unwrap();
    for k in &package.program.kernels {
        assert!(
            !k.sources.is_empty()
                && k.sources.iter().all(|s| s.contains(" (") && s.contains(".py:")),
            "{}: {:?}",
            k.name,
            k.sources
        );
    }
    // One kernel, launched from several places.
    let (first, again) = package
        .program
        .kernels
        .iter()
        .enumerate()
        .find_map(|(i, k)| {
            let again =
                package.program.kernels[i + 1..].iter().find(|other| other.symbol == k.symbol)?;
            Some((k, again))
        })
        .expect("two layers have kernels in common");
    assert_ne!(first.sources, again.sources);
}
