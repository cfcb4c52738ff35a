//! Reports all ops of a module that GPUs do not support, at once.
use crate::program::library_call::Library;
use kiln_dialects::ir::*;

/// One sentence with a source location for each op of a module on level `linalg` that cannot be
/// compiled for GPUs.
pub fn missing(module: Op) -> Vec<String> {
    let mut all = vec![];
    for op in walk(module) {
        let Some(library) = Library::of(op) else { continue };
        let ops = op
            .attr("kiln.kernel")
            .and_then(|a| a.entry("ops"))
            .and_then(Attr::as_array)
            .unwrap_or_default();
        let ops: Vec<String> = ops.into_iter().filter_map(Attr::as_string).collect();
        let name = if ops.is_empty() { library.callee } else { ops.join(" ") };
        let what = format!("'{name}' has no compiled form yet for GPUs");
        let line = format!("{}: {what}", op.loc());
        if !all.contains(&line) {
            all.push(line);
        }
    }
    all
}
