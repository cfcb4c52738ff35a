//! Canonicalization patterns of kiln ops. Only clean-up; simplification is a pass of its own.
use crate::{ir::*, ops::*};

/// Loaded with the dialect in every context.
pub static CANONICAL: &[Pattern] =
    &[Pattern { name: "drop-unneeded-facts", root: OpKind::BindShape, apply: drop_unneeded_facts }];

/// Erases shape bindings of values without other uses; arguments keep theirs, which guards come
/// from.
fn drop_unneeded_facts(op: Op, r: &Rewriter) -> Result<bool> {
    let value = op.operand(0);
    if value.def().is_none()
        || value.uses().iter().any(|(user, _)| user.kind() != Some(OpKind::BindShape))
    {
        return Ok(false);
    }
    r.erase(op);
    Ok(true)
}
