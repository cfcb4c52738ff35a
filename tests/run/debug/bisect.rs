//! Bisect: the first wrong pass, and the wrong kernel with its op.
use super::{inserted, source};
use crate::run::{models, options};
use kiln::{debug, load};

#[test]
fn bisect_finds_nothing_in_a_correct_pipeline() {
    crate::watchdog::arm();
    let found = debug::bisect(&load(models().join("mlp.pt2")).unwrap(), &options(2), None).unwrap();
    assert_eq!(found, debug::Bisection::default(), "{found}");
}

#[test]
fn bisect_finds_a_wrong_pass_above_the_kernels() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let model = load(source(dir.path())).unwrap();
    let found =
        debug::bisect(&model, &inserted("kiln-reciprocals", "test-swap-sub"), None).unwrap();
    assert!(found.mismatch.is_some(), "{found}");
    assert_eq!(found.pass.as_ref().map(|p| p.0.as_str()), Some("test-swap-sub"), "{found}");
    // Each kernel computes what the wrong graph says.
    assert!(found.kernel.is_none(), "{found}");
}

#[test]
fn bisect_finds_a_wrong_kernel_and_its_op() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let model = load(source(dir.path())).unwrap();
    let found =
        debug::bisect(&model, &inserted("kiln-to-linalg", "test-add-for-sub"), None).unwrap();
    assert_eq!(found.pass.as_ref().map(|p| p.0.as_str()), Some("test-add-for-sub"), "{found}");
    assert!(found.kernel.is_some(), "{found}");
    assert!(found.op.as_ref().is_some_and(|o| o.0.starts_with("kiln.sub")), "{found}");
}
