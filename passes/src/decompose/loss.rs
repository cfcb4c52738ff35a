//! TODO
use kiln_dialects::{ir::*, ops::*};

pub(super) fn expand(kind: OpKind, _op: Op, _b: &Builder) -> Result<Value, String> {
    Err(format!("({}) pending", kind.name()))
}
