//! From a product's operand down to the integers that it dequantises.
use super::ranges::{dtype, range};
use crate::kernels::frozen::Frozen;
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Values that fit 4 bits.
const NIBBLES: i64 = 16;

/// The frozen integers that an operand is computed from.
pub struct Source {
    pub value: Value,
    /// The least of them, if they fit 4 bits; else they are 8-bit elements.
    pub lowest: Option<i64>,
}

/// An op on the way up from the integers.
pub enum Step {
    /// A reshape or a transpose.
    Moved(Op),
    /// An elementwise op, and which of its operands is on the way.
    Computed(Op, usize),
}

/// The integers below an operand, and the ops from them up to it; no other op reads these.
pub fn path(v: Value, frozen: &Frozen) -> Option<(Source, Vec<Step>)> {
    if dtype(v).is_some_and(|d| !d.is_float()) && frozen.contains(v) {
        let narrow = range(v).filter(|(low, high)| high - low < NIBBLES);
        if let Some((low, _)) = narrow.filter(|_| is_whole(v)) {
            return Some((Source { value: v, lowest: Some(low) }, vec![]));
        }
    }
    let op = v.def().filter(|_| v.uses().len() == 1)?;
    let further = |step: Step, v: Value| {
        let (source, mut steps) = path(v, frozen)?;
        steps.push(step);
        Some((source, steps))
    };
    match op.kind()? {
        OpKind::Reshape | OpKind::Transpose => further(Step::Moved(op), op.operand(0)),
        OpKind::Convert => further(Step::Computed(op, 0), op.operand(0)).or_else(|| {
            let value = op.operand(0);
            let bytes = matches!(dtype(value), Some(DType::I8 | DType::UI8));
            let source = Source { value, lowest: None };
            (bytes && frozen.contains(value)).then(|| (source, vec![Step::Computed(op, 0)]))
        }),
        OpKind::Add | OpKind::Sub | OpKind::Mul => {
            (0..op.operand_count()).find_map(|i| further(Step::Computed(op, i), op.operand(i)))
        }
        _ => None,
    }
}

/// Whether a value has elements of its own: is no broadcast, as zero points are.
fn is_whole(v: Value) -> bool {
    match v.def().map(|op| (op, op.kind())) {
        Some((_, Some(OpKind::BroadcastInDim | OpKind::Splat | OpKind::Iota))) => false,
        Some((op, Some(OpKind::Reshape | OpKind::Transpose | OpKind::Convert))) => {
            is_whole(op.operand(0))
        }
        _ => true,
    }
}
