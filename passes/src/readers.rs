//! The readers of values.
use kiln_dialects::{ir::*, ops::OpKind, rules::tensor_type};

/// The only op that reads the elements of a value.
pub fn only_reader(v: Value) -> Option<Op> {
    let uses = v.uses();
    // What states sizes or guards a call reads no elements.
    let guard = |op: &Op| matches!(op.kind(), Some(OpKind::BindShape | OpKind::RequireIndex));
    let mut readers = uses.iter().map(|u| u.0).filter(|u| !guard(u));
    readers.next().filter(|_| readers.next().is_none())
}

/// Erases the ops of values that nothing reads, and what only these read, as far as `erases` says.
pub fn erase_dead(values: Vec<Value>, erases: impl Fn(OpKind) -> bool) {
    // None may be looked at after it is erased: each is in the list once.
    let mut next: Vec<Value> = vec![];
    let add = |next: &mut Vec<Value>, all: Vec<Value>| {
        all.into_iter().for_each(|v| {
            if !next.contains(&v) {
                next.push(v)
            }
        });
    };
    add(&mut next, values);
    while let Some(v) = next.pop() {
        let dead = |op: &Op| op.results().iter().all(|r| r.uses().is_empty());
        let Some(op) = v.def().filter(|op| op.kind().is_some_and(&erases) && dead(op)) else {
            continue;
        };
        let read = op.operands();
        next.retain(|other| other.def() != Some(op));
        op.erase();
        add(&mut next, read);
    }
}

/// Whether an op widens floats: its readers compute it, since the narrow value has fewer bytes to
/// write and to read.
pub fn widens(op: Op) -> bool {
    let bytes = |v: Value| {
        let float = tensor_type(v.ty()).ok().filter(|t| t.dtype.is_float());
        float.map(|t| t.dtype.byte_size())
    };
    op.kind() == Some(OpKind::Convert)
        && bytes(op.operand(0)).is_some_and(|n| bytes(op.result(0)) > Some(n))
}
