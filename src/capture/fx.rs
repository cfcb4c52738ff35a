//! Graphs of `torch.compile`: the same JSON as in a `.pt2` archive. Weights are inputs, or frozen
//! parameters, which are given by name.
use super::{CaptureError, Captured, RandomOrder, graph, schema::Program, weight::Weight};
use kiln_dialects::ir::Ctx;
use std::{collections::BTreeMap, path::Path};

/// Imports a graph with its frozen parameters as a new module of `ctx`, with random numbers in an
/// order.
///
/// # Errors
/// The JSON is malformed, a parameter is missing, or the graph has an op or an argument that is not
/// supported.
pub fn import(
    ctx: Ctx,
    json: &[u8],
    weights: BTreeMap<String, Weight>,
    order: RandomOrder,
) -> Result<Captured, CaptureError> {
    let program: Program = serde_json::from_slice(json)
        .map_err(|e| CaptureError::File { file: "graph".into(), reason: e.to_string() })?;
    graph::emit(ctx, Path::new("graph"), program, weights, order)
}
