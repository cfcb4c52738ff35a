//! Conversions of 8-bit weights that products of few rows compute in registers, as decoding with
//! quantised weights does.
use crate::{
    kernels::{
        graph::Graph,
        prologues::operands::{OperandLoops, StridedOperand, UNIT, dtype},
    },
    target::costs::{SKINNY_K, SKINNY_ROWS},
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// 8-bit elements per 16-byte vector.
pub(crate) const VECTOR: i64 = 16;
/// Fewest rows of the weights: M of mma.sync.
pub(crate) const LEAST_ROWS: i64 = 16;

/// Whether `skinny_gemm` converts weights of an element type.
pub(crate) fn is_converted(stored: DType) -> bool {
    matches!(stored, DType::I8 | DType::F8E4M3FN)
}

/// A product, and the conversion of its 8-bit weights.
pub struct QuantizedWeights {
    pub convert: Op,
    dot: DotGeneral,
    is_left: bool,
}

impl QuantizedWeights {
    /// Those of a product, if no other op reads the converted weights.
    pub fn of(product: Op) -> Option<QuantizedWeights> {
        let dot = DotGeneral::of(product)?;
        let narrow = |v| matches!(dtype(v), Some(DType::BF16 | DType::F16));
        if !narrow(dot.lhs) || dtype(dot.lhs) != dtype(dot.rhs) {
            return None;
        }
        let one = |v| Some((v == dot.lhs, conversion(v)?));
        let (is_left, convert) = one(dot.rhs).or_else(|| one(dot.lhs))?;
        Some(QuantizedWeights { convert, dot, is_left })
    }

    /// Whether `skinny_gemm` reads both operands: at most [`SKINNY_ROWS`] rows beside the weights,
    /// all K-major in whole 16-byte vectors.
    pub fn are_read(&self, graph: &Graph) -> bool {
        let dot = &self.dot;
        let left = (dot.lhs, &dot.lhs_batch, &dot.lhs_contract);
        let right = (dot.rhs, &dot.rhs_batch, &dot.rhs_contract);
        let [weights, few] = if self.is_left { [left, right] } else { [right, left] };
        let rows = |(v, batch, contract): (Value, &Vec<i64>, &Vec<i64>), unit: i64| {
            let dims = graph.facts.dims(v);
            let loops = OperandLoops::of(dims, batch, contract)?;
            let leaves = graph.leaves(v);
            let [leaf] = leaves.as_slice() else { return None };
            let place = StridedOperand::of(graph, leaf, dims.len())?;
            let depth = dims[loops.k].known().filter(|k| *k >= SKINNY_K && k % unit == 0);
            let rows = loops.free.iter().try_fold(1, |n: i64, d| n.checked_mul(dims[*d].known()?));
            let read = depth.is_some() && place.readable(graph, loops.k, &loops.all(), unit);
            rows.filter(|_| read)
        };
        let (Some(many), Some(few)) = (rows(weights, VECTOR), rows(few, UNIT)) else {
            return false;
        };
        (1..=SKINNY_ROWS).contains(&few) && many >= LEAST_ROWS.max(few)
    }
}

/// The conversion of 8-bit elements that an operand is a transpose or a reshape of.
fn conversion(mut v: Value) -> Option<Op> {
    loop {
        let op = v.def().filter(|_| v.uses().len() == 1)?;
        match op.kind()? {
            OpKind::Transpose | OpKind::Reshape => v = op.operand(0),
            OpKind::Convert if dtype(op.operand(0)).is_some_and(is_converted) => return Some(op),
            _ => return None,
        }
    }
}
