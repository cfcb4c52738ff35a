//! Quantised weights that products of few rows dequantise in registers, as decoding does.
use crate::{
    analysis::index_expr::{IndexExpr, IndexLeaf},
    kernels::{
        graph::{Graph, Leaf},
        marks::in_prologue,
        prologues::operands::{OperandLoops, StridedOperand, UNIT, dtype},
        quantized_weights::groups::run_length_at,
    },
    target::costs::{SKINNY_K, SKINNY_MATRIX_ROWS, SKINNY_ROWS, SKINNY_VECTORS},
};
use kiln_dialects::{algebra::Expr, ir::*, ops::*, value::DType};

/// Whether `skinny_gemm` converts weights of an element type.
pub(crate) fn is_converted(stored: DType) -> bool {
    matches!(stored, DType::I8 | DType::F8E4M3FN)
}

/// A product, and the ops that dequantise its weights.
pub struct QuantizedWeights {
    pub ops: Vec<Op>,
    dot: DotGeneral,
    is_left: bool,
}

impl QuantizedWeights {
    /// Those of a product: what `kiln-quantized-weights` marked, or the conversion of int8 elements
    /// that no other op reads.
    pub fn of(product: Op) -> Option<QuantizedWeights> {
        let dot = DotGeneral::of(product)?;
        let narrow = |v| matches!(dtype(v), Some(DType::BF16 | DType::F16));
        if !narrow(dot.lhs) || dtype(dot.lhs) != dtype(dot.rhs) {
            return None;
        }
        let one = |v| Some((v == dot.lhs, dequantization(v)?));
        let (is_left, ops) = one(dot.rhs).or_else(|| one(dot.lhs))?;
        Some(QuantizedWeights { ops, dot, is_left })
    }

    /// Whether `skinny_gemm` reads both operands: at most [`SKINNY_ROWS`] rows beside the weights,
    /// all K-major in whole 16-byte vectors.
    pub fn are_read(&self, graph: &Graph) -> bool {
        let dot = &self.dot;
        let left = (dot.lhs, &dot.lhs_batch, &dot.lhs_contract);
        let right = (dot.rhs, &dot.rhs_batch, &dot.rhs_contract);
        let [weights, few] = if self.is_left { [left, right] } else { [right, left] };
        let rows = |(v, batch, contract): (Value, &Vec<i64>, &Vec<i64>), quantized: bool| {
            let dims = graph.facts.dims(v);
            let loops = OperandLoops::of(dims, batch, contract)?;
            let leaves = graph.leaves(v);
            let (leaf, unit) = match leaves.as_slice() {
                all if quantized => elements(all, loops.k)?,
                [leaf] => (leaf.clone(), UNIT),
                _ => return None,
            };
            let place = StridedOperand::of(graph, &leaf, dims.len())?;
            let depth = dims[loops.k].known().filter(|k| *k >= SKINNY_K && k % unit == 0);
            let rows = loops.free.iter().try_fold(1, |n: i64, d| n.checked_mul(dims[*d].known()?));
            let aligned = SKINNY_VECTORS[0].min(unit);
            let read = depth.is_some() && place.readable(graph, loops.k, &loops.all(), aligned);
            rows.filter(|_| read)
        };
        let (Some(many), Some(few)) = (rows(weights, true), rows(few, false)) else {
            return false;
        };
        (1..=SKINNY_ROWS).contains(&few) && many >= SKINNY_MATRIX_ROWS.max(few)
    }
}

/// The ops that dequantise an operand, of which it may be a transpose or a reshape.
fn dequantization(v: Value) -> Option<Vec<Op>> {
    let mut first = v;
    let op = loop {
        let op = first.def().filter(|_| first.uses().len() == 1)?;
        match op.kind()? {
            OpKind::Transpose | OpKind::Reshape => first = op.operand(0),
            _ => break op,
        }
    };
    if in_prologue(op) {
        let mut all = vec![];
        marked(op, &mut all);
        return Some(all);
    }
    let converts =
        op.kind() == Some(OpKind::Convert) && dtype(op.operand(0)).is_some_and(is_converted);
    converts.then(|| vec![op])
}

/// An op and the marked ones below it.
fn marked(op: Op, all: &mut Vec<Op>) {
    let moves = op.kind().is_some_and(|k| k.family() == Family::Movement);
    if all.contains(&op) || !moves && !in_prologue(op) {
        return;
    }
    if !moves {
        all.push(op);
    }
    op.operands().into_iter().filter_map(Value::def).for_each(|o| marked(o, all));
}

/// Where the quantised elements are, two of which may be in a byte, and the elements of a vector;
/// none if a scale changes within a vector.
fn elements(leaves: &[Leaf], k: usize) -> Option<(Leaf, i64)> {
    let (mut each, scales): (Vec<&Leaf>, Vec<&Leaf>) =
        leaves.iter().partition(|l| matches!(run_length_at(&l.at, k), 1 | 2));
    let mut leaf = each.pop().filter(|_| each.is_empty())?.clone();
    let last = leaf.at.last_mut()?;
    let unit = match in_pairs(last, k) {
        false => SKINNY_VECTORS[0],
        true => {
            *last = IndexExpr::dim(k);
            SKINNY_VECTORS[1]
        }
    };
    scales.iter().all(|l| run_length_at(&l.at, k) % unit == 0).then_some((leaf, unit))
}

/// Whether a position is `k floordiv 2`.
fn in_pairs(at: &IndexExpr, k: usize) -> bool {
    let Expr::Apply(SymKind::Floordiv, both) = &at.0 else { return false };
    let (Expr::Leaf(IndexLeaf::LinearExpr(l)), Expr::Const(2)) = (&both.0, &both.1) else {
        return false;
    };
    l.as_dim() == Some(k)
}
