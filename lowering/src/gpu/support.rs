//! What of a module on level `linalg` a GPU has no form for, all at once.
use crate::host::{expand_math::ACCURACY, library::Library};
use kiln_dialects::{ir::*, value::DType};

/// A sentence with a place for each op that has no compiled form for GPUs.
pub fn missing(module: Op) -> Vec<String> {
    let mut all = vec![];
    for op in walk(module) {
        let what = if let Some(library) = Library::of(op) {
            let ops = op.attr("kiln.kernel").and_then(|a| a.entry("ops")).and_then(Attr::as_array).unwrap_or_default();
            let ops: Vec<String> = ops.into_iter().filter_map(Attr::as_string).collect();
            let name = if ops.is_empty() { library.callee } else { ops.join(" ") };
            format!("'{name}' has no compiled form yet for GPUs")
        } else if op.name().starts_with("math.") && op.result(0).ty().dtype() == Ok(DType::F64) && ACCURACY.iter().any(|(n, _)| op.is(n)) {
            format!("'{}' of f64 has no compiled form yet for GPUs", op.name())
        } else {
            continue;
        };
        let line = format!("{}: {what}", op.loc());
        if !all.contains(&line) {
            all.push(line);
        }
    }
    all
}
