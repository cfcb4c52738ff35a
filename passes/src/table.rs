//! The pass table: one row a pass. Registration, `--list-passes`, `--help` and docs/passes.md come from it.
use crate::{decompose::Decompose, pass::PassRow, refine_shapes::RefineShapes, simplify::Simplify, verify_level::VerifyLevel};
use std::sync::OnceLock;

/// Every pass of kiln, sorted by flag.
pub const PASSES: &[PassRow] =
    &[PassRow::of::<Decompose>(), PassRow::of::<RefineShapes>(), PassRow::of::<Simplify>(), PassRow::of::<VerifyLevel>()];

/// The row of a flag.
pub fn find(flag: &str) -> Option<&'static PassRow> {
    PASSES.iter().find(|p| p.flag == flag)
}

/// Registers all of them, once per process.
pub fn register_all() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    DONE.get_or_init(|| PASSES.iter().try_for_each(|p| (p.register)())).clone()
}
