//! Graphs of `torch.compile`: the same JSON as in a `.pt2` archive, without weights, which are
//! inputs.
use super::{CaptureError, Captured, graph, schema::Program};
use kiln_dialects::ir::Ctx;
use std::path::Path;

/// Imports a graph as a new module of `ctx`.
///
/// # Errors
/// The JSON is malformed, or the graph has an op or an argument that is not supported.
pub fn import(ctx: Ctx, json: &[u8]) -> Result<Captured, CaptureError> {
    let program: Program = serde_json::from_slice(json)
        .map_err(|e| CaptureError::File { file: "graph".into(), reason: e.to_string() })?;
    graph::emit(ctx, Path::new("graph"), program, Default::default())
}
