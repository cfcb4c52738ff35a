//! Canonicalization patterns of kiln ops. Only clean-up; simplification is a pass of its own.
use crate::{ir::*, ops::*};

/// Loaded with the dialect in every context.
pub static CANONICAL: &[Pattern] =
    &[Pattern { name: "drop-unneeded-facts", root: OpKind::BindShape, apply: drop_unneeded_facts }];

/// Whether an op other than a shape binding uses a value.
fn is_read(value: Value) -> bool {
    value.uses().iter().any(|(user, _)| user.kind() != Some(OpKind::BindShape))
}

/// Erases shape bindings of values without other uses; arguments keep theirs, which guards come
/// from. A custom call that runs needs memory for all of its results, so these keep theirs too.
fn drop_unneeded_facts(op: Op, r: &Rewriter) -> Result<bool> {
    let value = op.operand(0);
    let Some(def) = value.def() else { return Ok(false) };
    let runs = CustomCall::of(def)
        .is_some_and(|call| call.effect || def.results().into_iter().any(is_read));
    if runs || is_read(value) {
        return Ok(false);
    }
    r.erase(op);
    Ok(true)
}
