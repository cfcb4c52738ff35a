//! Ablation: the program without each optional pass.
use crate::run::{models, options};
use kiln::{debug, load};

#[test]
fn ablation_has_a_row_for_each_optional_pass() {
    crate::watchdog::arm();
    let model = load(models().join("mlp.pt2")).unwrap();
    let found =
        debug::ablate(&model, &options(2), None, std::time::Duration::from_millis(1)).unwrap();
    let row = |name: &str| {
        found
            .rows
            .iter()
            .find(|r| r.without.as_deref() == Some(name))
            .and_then(|r| r.measured.as_ref().ok())
    };
    let whole = found.rows[0].measured.as_ref().expect("it compiles");
    for name in ["kiln-simplify", "canonicalize", "kiln-pack", "kiln-in-place"] {
        assert!(
            found.rows.iter().any(|r| r.without.as_deref() == Some(name)),
            "no row without {name}\n{found}"
        );
    }
    assert!(
        row("kiln-pack").is_some_and(|m| m.launches > 0 && !m.call.is_zero()) && whole.kernels > 0,
        "{found}"
    );
    assert!(found.to_string().contains("(nothing)"), "{found}");
    // What a pipeline is wrong without is not left out.
    let required = |f: &str| kiln::lowering::passes().iter().any(|p| p.flag == f && p.required);
    assert!(required("kiln-refine-shapes"));
    let left_out = || found.rows.iter().filter_map(|r| r.without.as_deref());
    assert!(left_out().all(|f| !required(f)), "{found}");
}
