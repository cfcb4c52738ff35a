//! The patterns that upstream's `canonicalize` runs on kiln ops: only what keeps IR tidy, since
//! simplification has a pass of its own.
use crate::{ir::*, ops::*};

/// One table; every context that loads the dialect has these.
pub static CANONICAL: &[Pattern] =
    &[Pattern { name: "drop-unneeded-facts", root: OpKind::BindShape, apply: drop_unneeded_facts }];

/// Facts about a value that only facts use are of no use; arguments keep theirs, since guards come
/// from them.
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
