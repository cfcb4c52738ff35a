//! Where the elements of a tensor lie in its storage, as the export recorded it: what ops that take
//! strides address.
use super::{
    schema::{Graph, GraphNode, TensorMeta},
    srepr::{self, SizeExpr},
};
use kiln_dialects::{Result, algebra::Expr, ops::SymKind, sym::Dim};
use serde_json::Value as Json;

/// A dense tensor in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Its dimensions from the slowest to the fastest.
    pub order: Vec<i64>,
    /// Whether it starts where its storage does.
    pub at_start: bool,
}

/// The memory of the tensor whose storage the node addresses; `None` for other nodes. Err: it has
/// gaps between its elements, or elements that share memory.
pub fn addressed(graph: &Graph, node: &GraphNode) -> Result<Option<Memory>> {
    if !node.target.contains("aten.as_strided") {
        return Ok(None);
    }
    let input = node.inputs.iter().find(|i| i.name == "self");
    let name = input.and_then(|i| i.arg["as_tensor"]["name"].as_str());
    let memory = name.and_then(|name| graph.tensor_values.get(name)).and_then(dense);
    memory.map(Some).ok_or_else(|| "takes strides of a tensor that is not dense".into())
}

/// The memory of a dense tensor.
fn dense(m: &TensorMeta) -> Option<Memory> {
    let all = |all: &[Json]| all.iter().map(number).collect::<Option<Vec<_>>>();
    let (sizes, strides) = (all(&m.sizes)?, all(&m.strides)?);
    let (mut order, mut left): (Vec<usize>, Vec<usize>) =
        (0..sizes.len()).partition(|d| sizes.get(*d) == Some(&Dim::Known(1)));
    let (mut expected, front) = (Dim::Known(1), order.len());
    while !left.is_empty() {
        let next = left.iter().rposition(|d| strides.get(*d) == Some(&expected))?;
        let d = left.remove(next);
        expected = expected.mul(sizes.get(d)?);
        order.insert(front, d);
    }
    let order = order.into_iter().map(|d| d as i64).collect();
    Some(Memory { order, at_start: m.storage_offset["as_int"].as_i64() == Some(0) })
}

/// A size or a stride of a tensor that has elements.
fn number(n: &Json) -> Option<Dim> {
    if let Some(n) = n["as_int"].as_i64() {
        return Some(Dim::Known(n));
    }
    let found = dim(&srepr::parse(n["as_expr"]["expr_str"].as_str()?).ok()?);
    (found != Dim::Unknown).then_some(found)
}

fn dim(e: &SizeExpr) -> Dim {
    match e {
        Expr::Const(n) => Dim::Known(*n),
        Expr::Leaf(name) => Dim::sym(name),
        Expr::Apply(kind, both) => match (kind, &both.0, &both.1) {
            // How strides are recorded where a size may be 0.
            (SymKind::Max, Expr::Const(1), n) | (SymKind::Max, n, Expr::Const(1)) => dim(n),
            (_, x, y) => Dim::apply(*kind, &dim(x), &dim(y)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(sizes: &str, strides: &str, offset: i64) -> TensorMeta {
        let symbol = |name: &str, hint: i64| {
            let text = format!("Symbol('{name}', positive=True, integer=True)");
            serde_json::json!({"as_expr": {"expr_str": text, "hint": {"as_int": hint}}})
        };
        let all = |text: &str| {
            let one = |n: &str| match n {
                "s" => symbol("s", 5),
                "t" => symbol("t", 5),
                n => serde_json::json!({"as_int": n.parse::<i64>().unwrap()}),
            };
            text.split(' ').map(one).collect::<Vec<_>>()
        };
        serde_json::from_value(serde_json::json!({
            "dtype": 7, "sizes": all(sizes), "strides": all(strides), "storage_offset": {"as_int": offset},
            "requires_grad": false, "device": {"type": "cpu", "index": null}, "layout": 7,
        }))
        .expect("a tensor")
    }

    fn order(sizes: &str, strides: &str) -> Option<Vec<i64>> {
        dense(&meta(sizes, strides, 0)).map(|m| m.order)
    }

    #[test]
    fn dense_tensors_of_any_order() {
        assert_eq!(order("2 1 3", "3 99 1").map(|o| o.len()), Some(3));
        assert_eq!(order("2 3", "1 2"), Some(vec![1, 0]));
        assert_eq!(order("s t", "t 1"), Some(vec![0, 1]));
        assert_eq!(order("s t", "1 s"), Some(vec![1, 0]));
        assert!(!dense(&meta("2 3", "3 1", 4)).expect("dense").at_start);
    }

    #[test]
    fn gaps_and_shared_memory() {
        assert_eq!(order("2 3", "6 2"), None);
        assert_eq!(order("2 3", "0 1"), None);
        // The sizes are equal in the export's example, and no others need be.
        assert_eq!(order("s t", "s 1"), None);
        assert_eq!(order("s 5", "t 1"), None);
    }
}
