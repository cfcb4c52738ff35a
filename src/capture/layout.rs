//! Whether an overload such as `reshape` returns a view or a copy, which depends on strides.
use super::{
    aten::{self, Cx},
    schema::{Graph, GraphNode, TensorMeta},
    srepr::{self, Symbols},
};
use kiln_dialects::{Result, ir::Size};

/// Whether the node copies its argument, by the strides that the export recorded.
pub fn copies(graph: &Graph, node: &GraphNode) -> bool {
    let whole = match aten::short(&node.target) {
        "aten.contiguous.default" => true,
        "aten.reshape.default"
        | "aten.reshape_as.default"
        | "aten.flatten.using_ints"
        | "aten.ravel.default" => false,
        _ => return false,
    };
    if by_columns(graph, node) {
        return true;
    }
    let meta = |j: &serde_json::Value| graph.tensor_values.get(j["as_tensor"]["name"].as_str()?);
    let input = node.inputs.iter().find(|i| i.name == "self").and_then(|i| meta(&i.arg));
    let output = node.outputs.first().and_then(meta);
    let Some(input) = input else { return false };
    match (layout(input, hinted), output.and_then(|o| layout(o, hinted))) {
        (Some((sizes, strides)), Some((to, _))) => {
            if whole {
                !is_contiguous(&sizes, &strides)
            } else {
                !is_view(&sizes, &strides, &to)
            }
        }
        // Sizes without a hint: strides are compared as text, and a reshape counts as a view.
        _ => whole && output.is_some_and(|o| o.strides != input.strides),
    }
}

/// Whether the argument comes from `nonzero`, whose result eager stores column by column, which the
/// export does not record.
fn by_columns(graph: &Graph, node: &GraphNode) -> bool {
    let input = node.inputs.iter().find(|i| i.name == "self");
    let Some(name) = input.and_then(|i| i.arg["as_tensor"]["name"].as_str()) else { return false };
    // Before the search: few tensors have rows of several columns.
    let columns = match graph.tensor_values.get(name).map(|t| t.sizes.as_slice()) {
        Some([_, columns]) => columns["as_int"].as_i64(),
        _ => return false,
    };
    let made = |n: &GraphNode| {
        aten::short(&n.target) == "aten.nonzero.default"
            && n.outputs.first().is_some_and(|o| o["as_tensor"]["name"].as_str() == Some(name))
    };
    columns != Some(1) && graph.nodes.iter().any(made)
}

/// The stride or storage offset that a node reads, as the export recorded it. `None` where data
/// determines it.
pub fn stated(
    cx: &Cx,
    symbols: &mut Symbols,
    graph: &Graph,
    node: &GraphNode,
) -> Result<Option<Size>> {
    let target = aten::short(&node.target);
    if !["aten.sym_storage_offset.default", "aten.sym_stride.int"].contains(&target) {
        return Ok(None);
    }
    let argument = |name: &str| node.inputs.iter().find(|i| i.name == name).map(|i| &i.arg);
    let name = argument("self").and_then(|j| j["as_tensor"]["name"].as_str());
    let Some(meta) = name.and_then(|name| graph.tensor_values.get(name)) else { return Ok(None) };
    let recorded = match argument("dim").and_then(|j| j["as_int"].as_i64()) {
        None => Some(&meta.storage_offset),
        Some(dim) => {
            let dim = if dim < 0 { dim + meta.strides.len() as i64 } else { dim };
            usize::try_from(dim).ok().and_then(|d| meta.strides.get(d))
        }
    };
    let Some(recorded) = recorded else { return Ok(None) };
    if let Some(n) = recorded["as_int"].as_i64() {
        return Ok(Some(Size::Static(n)));
    }
    let text = recorded["as_expr"]["expr_str"].as_str().unwrap_or("");
    let expression = srepr::parse(text)?;
    // A symbol of its own, of a position that data determines, has no value here.
    if expression.leaves().iter().any(|name| !symbols.values.contains_key(*name)) {
        return Ok(None);
    }
    symbols.size(&cx.b, &expression).map(Some)
}

/// A size or stride of the export's example inputs. Symbols are at least 2 there, so strides that
/// are contiguous by them are so for all sizes.
fn hinted(n: &serde_json::Value) -> Option<i64> {
    n["as_int"].as_i64().or_else(|| n["as_expr"]["hint"]["as_int"].as_i64())
}

/// Sizes and strides.
fn layout(
    m: &TensorMeta,
    number: fn(&serde_json::Value) -> Option<i64>,
) -> Option<(Vec<i64>, Vec<i64>)> {
    let ints = |all: &[serde_json::Value]| all.iter().map(number).collect::<Option<Vec<_>>>();
    Some((ints(&m.sizes)?, ints(&m.strides)?))
}

fn is_contiguous(sizes: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1i64;
    let fits = |(n, s): (&i64, &i64)| {
        let ok = *n == 1 || *s == expected;
        expected = expected.saturating_mul(*n);
        ok
    };
    sizes.contains(&0) || sizes.iter().zip(strides).rev().all(fits)
}

/// Whether a reshape is a view: each contiguous run of dimensions must be split or merged on its
/// own.
fn is_view(sizes: &[i64], strides: &[i64], to: &[i64]) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let mut runs: Vec<(i64, i64)> = vec![];
    for (n, s) in sizes.iter().zip(strides).filter(|(n, _)| **n != 1) {
        match runs.last_mut() {
            Some((count, stride)) if *stride == n.saturating_mul(*s) => {
                (*count, *stride) = (count.saturating_mul(*n), *s)
            }
            _ => runs.push((*n, *s)),
        }
    }
    let mut to = to.iter().filter(|n| **n != 1);
    runs.iter().all(|(count, _)| {
        let mut have = 1i64;
        while have < *count {
            let Some(n) = to.next() else { return false };
            have = have.saturating_mul(*n);
        }
        have == *count
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_and_copies() {
        assert!(is_contiguous(&[2, 1, 3], &[3, 99, 1]) && !is_contiguous(&[2, 3], &[1, 2]));
        assert!(is_view(&[2, 3, 4], &[12, 4, 1], &[4, 6]));
        assert!(is_view(&[4, 6], &[1, 4], &[2, 2, 6]) && !is_view(&[4, 6], &[1, 4], &[24]));
        assert!(is_view(&[3, 4], &[0, 1], &[3, 2, 2]) && !is_view(&[3, 4], &[0, 1], &[12]));
    }
}
