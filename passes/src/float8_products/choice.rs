//! Which products are quantised.
use super::{
    Float8Products,
    matrix::{Matrix, NO_MATRIX, operands},
};
use crate::{pass::Pass, refine_shapes::Facts, remarks::remark};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, value::DType};
use std::collections::HashSet;

/// Elements in 16 bytes, the unit of TMA: K is a multiple of it.
const UNIT: i64 = 16;

/// Whether an op is a product that is quantised. Tells of other products of 16-bit floats why not.
pub(super) fn is_chosen(op: Op, facts: &Facts, heads: &HashSet<Value>, min_size: i64) -> bool {
    let narrow =
        |v: Value| tensor_type(v.ty()).is_ok_and(|t| matches!(t.dtype, DType::BF16 | DType::F16));
    let Some(dot) = DotGeneral::of(op).filter(|o| narrow(o.lhs) && narrow(o.rhs)) else {
        return false;
    };
    let why = obstacle(op, &dot, facts, heads, min_size);
    if let Some(why) = why {
        remark(op, Float8Products::FLAG, &format!("a product stays in 16 bits: {why}"));
        op.set_attr("kiln.not_quantized", Attr::string(op.ctx(), why));
    }
    why.is_none()
}

/// Why a product is not quantised.
fn obstacle(
    op: Op,
    dot: &DotGeneral,
    facts: &Facts,
    heads: &HashSet<Value>,
    min_size: i64,
) -> Option<&'static str> {
    if !dot.lhs_batch.is_empty() {
        return Some("it has batch dimensions");
    }
    let Some([lhs, rhs]) = operands(dot) else { return Some(NO_MATRIX) };
    if [dot.lhs, dot.rhs].iter().any(is_dequantised) {
        return Some("an operand is quantised already");
    }
    if heads.contains(&op.result(0)) {
        return Some("a softmax reads its rows");
    }
    if [dot.lhs, dot.rhs].iter().any(|v| heads.contains(v)) {
        return Some("an operand is the derivative of a loss by its logits");
    }
    let size = |x: &Matrix, part: usize| -> f64 {
        let dims = facts.dims(x.tensor());
        // An unknown size is taken to be large.
        x.parts()[part]
            .clone()
            .map(|d| facts.bounds(&dims[d]).1.map_or(1e9, |n| n as f64))
            .product()
    };
    let (m, n) = (size(&lhs, 0), size(&rhs, 0));
    if m * n < min_size as f64 * (m + n) {
        return Some("quantising its operands would take longer than is saved");
    }
    let dims = facts.dims(lhs.tensor());
    let k: i64 = lhs.parts()[1].clone().map(|d| facts.divisor(&dims[d])).product();
    if k % UNIT != 0 {
        return Some("K is not known to be a multiple of 16");
    }
    None
}

/// Whether a value was widened from 8 bits or fewer.
fn is_dequantised(v: &Value) -> bool {
    let mut v = *v;
    while let Some(op) = v.def() {
        let moves =
            matches!(op.kind(), Some(OpKind::Transpose | OpKind::Reshape | OpKind::BroadcastInDim));
        let scales = matches!(op.kind(), Some(OpKind::Mul | OpKind::Sub | OpKind::Div));
        if let Some(c) = Convert::of(op) {
            if tensor_type(c.input.ty()).is_ok_and(|t| t.dtype.bits() <= 8) {
                return true;
            }
        } else if !moves && !scales {
            return false;
        }
        v = op.operand(0);
    }
    false
}

/// The values of losses over classes: results of products whose rows a softmax reduces, and
/// derivatives by labels, which are compared with the index of each class.
pub(super) fn loss_heads(block: Block) -> HashSet<Value> {
    let ops = block.ops();
    let mut heads = HashSet::new();
    for op in &ops {
        let labels = Compare::of(*op)
            .is_some_and(|c| c.kind == CompareKind::Eq && [c.lhs, c.rhs].into_iter().any(is_index));
        let logits = DotGeneral::of(*op).is_some_and(|_| feeds_softmax(op.result(0)));
        let derived =
            op.kind().is_some_and(passes_on) && op.operands().iter().any(|v| heads.contains(v));
        if labels || logits || derived {
            heads.extend(op.results());
        }
    }
    heads
}

/// Whether elements keep their places, or move with their rows.
fn passes_on(kind: OpKind) -> bool {
    kind.is_elementwise() || matches!(kind, OpKind::Reshape | OpKind::Transpose)
}

/// Whether a value is an index along a dimension.
fn is_index(mut v: Value) -> bool {
    while let Some(op) = v.def() {
        match op.kind() {
            Some(OpKind::Iota) => return true,
            Some(OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Convert) => v = op.operand(0),
            _ => return false,
        }
    }
    false
}

/// Whether the maximum of its rows is computed.
fn feeds_softmax(v: Value) -> bool {
    let (mut todo, mut seen) = (vec![v], HashSet::new());
    while let Some(v) = todo.pop() {
        for (op, _) in v.uses() {
            if Reduce::of(op).is_some_and(|r| r.kind == ReduceKind::Max) {
                return true;
            }
            if op.kind().is_some_and(passes_on) && seen.insert(op) {
                todo.extend(op.results());
            }
        }
    }
    false
}
