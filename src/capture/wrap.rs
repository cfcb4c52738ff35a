//! Higher-order ops that run a subgraph under a context (`torch.autocast`, `torch.no_grad`): the
//! subgraph is inlined, with autocast's conversions where that is enabled.
use super::{
    CaptureError,
    aten::{Cx, Val},
    autocast::Autocast,
    schema::*,
    srepr::Symbols,
};
use kiln_dialects::{Result, ir::Error};
use serde_json::Value as Json;

/// These ops, without `torch.ops.`, with the place of the subgraph among their arguments. The
/// subgraph's arguments follow it.
const TARGETS: &[(&str, usize)] =
    &[("higher_order.wrap_with_autocast", 4), ("higher_order.wrap_with_set_grad_enabled", 1)];

/// Whether a target wraps a subgraph.
pub fn is_wrapper(target: &str) -> bool {
    place(target).is_some()
}

fn place(target: &str) -> Option<usize> {
    TARGETS.iter().find(|(name, _)| *name == target).map(|(_, at)| *at)
}

/// Emits the nodes of a graph.
pub type Nodes<'a> = &'a dyn Fn(&mut Cx, &mut Symbols, &Graph) -> Result<(), CaptureError>;

/// Inlines a node's subgraph; returns its results.
pub fn emit(
    cx: &mut Cx,
    symbols: &mut Symbols,
    node: &GraphNode,
    target: &str,
    nodes: Nodes<'_>,
    op_error: &dyn Fn(Error) -> CaptureError,
) -> Result<Vec<Val>, CaptureError> {
    let at = place(target).unwrap_or(0);
    let arg = |i: usize| {
        let found = node.inputs.get(i).map(|n| &n.arg);
        found.ok_or_else(|| op_error(format!("has no argument {i}").into()))
    };
    let sub = subgraph(arg(at)?).map_err(op_error)?;
    let operands = node.inputs.get(at + 1..).unwrap_or_default().iter();
    let operands: Vec<Val> =
        operands.map(|i| cx.argument(&i.arg)).collect::<Result<_>>().map_err(op_error)?;
    let around = cx.autocast;
    if target == "higher_order.wrap_with_autocast" {
        let device = arg(0)?["as_string"].as_str().unwrap_or("");
        let enabled = arg(2)?["as_bool"].as_bool().unwrap_or(true);
        if on_device(&sub, device) {
            let dtype = match cx.argument(arg(1)?).map_err(op_error)? {
                Val::DType(d) => Some(d),
                _ => None,
            };
            let context = Autocast::new(device, dtype);
            cx.autocast = if enabled { Some(context.map_err(op_error)?) } else { None };
        }
    }
    let results = inline(cx, symbols, &sub, operands, nodes, op_error);
    cx.autocast = around;
    results
}

/// Whether a graph's tensors are on a type of device.
fn on_device(graph: &Graph, device: &str) -> bool {
    graph.tensor_values.values().any(|m| m.device["type"].as_str() == Some(device))
}

fn inline(
    cx: &mut Cx,
    symbols: &mut Symbols,
    sub: &Graph,
    operands: Vec<Val>,
    nodes: Nodes<'_>,
    op_error: &dyn Fn(Error) -> CaptureError,
) -> Result<Vec<Val>, CaptureError> {
    if sub.inputs.len() != operands.len() {
        let (want, have) = (sub.inputs.len(), operands.len());
        return Err(op_error(format!("a graph of {want} inputs is given {have}").into()));
    }
    let names = cx.names.clone();
    for (input, value) in sub.inputs.iter().zip(operands) {
        if let Some(name) = input_name(input) {
            cx.names.insert(name.into(), value);
        }
    }
    nodes(cx, symbols, sub)?;
    let mut results = vec![];
    for output in &sub.outputs {
        match cx.argument(output).map_err(op_error)? {
            Val::List(all) => results.extend(all),
            one => results.push(one),
        }
    }
    cx.names = names;
    Ok(results)
}

/// The name of a subgraph's input; constants have none.
fn input_name(input: &Json) -> Option<&str> {
    let (_, value) = tag(input)?;
    value["name"].as_str().or_else(|| value["as_name"].as_str())
}
