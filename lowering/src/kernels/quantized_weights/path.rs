//! From a product's operand down to the integers that it dequantises.
use super::ranges::{number, range};
use crate::kernels::{frozen::Frozen, prologues::operands::dtype};
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
            let bytes = dtype(value) == Some(DType::I8);
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

/// What an elementwise op reads besides the weights.
#[derive(Clone, Copy)]
pub enum Other {
    None,
    Number(f64),
    Tensor(Value),
}

/// What an elementwise op on the way up reads besides the weights.
pub fn other(step: &Step) -> Other {
    let Step::Computed(op, i) = step else { return Other::None };
    if op.operand_count() < 2 {
        return Other::None;
    }
    let v = op.operand(1 - i);
    number(v).map_or(Other::Tensor(v), Other::Number)
}

/// The type of a value before it was widened: that of the product's operands, or int8.
pub fn stored_as(v: Value, element: DType) -> Option<DType> {
    let narrow = |d: &DType| *d == element || *d == DType::I8;
    if let Some(d) = dtype(v).filter(narrow) {
        return Some(d);
    }
    let op = v.def()?;
    match op.kind()? {
        OpKind::Reshape | OpKind::Transpose | OpKind::Slice | OpKind::BroadcastInDim => {
            stored_as(op.operand(0), element)
        }
        OpKind::Convert => dtype(op.operand(0)).filter(narrow),
        _ => None,
    }
}

/// Greatest magnitude of what is subtracted, so that the differences are exact in bf16.
const MAX_OFFSET: f64 = 128.0;

/// Whether ops compute `(q - offset) * scale + zero`, as a product's kernel does: any of the three
/// may be missing, an offset is a number or int8.
pub fn is_affine(source: &Source, steps: &[Step], element: DType) -> bool {
    let (mut offset, mut scaled, mut zero) = (false, false, false);
    let lowest = source.lowest.unwrap_or_default() as f64;
    // Of integers no kernel subtracts a tensor.
    let as_stored = |v: Value, d: DType| {
        dtype(v).is_some_and(DType::is_float) && stored_as(v, element) == Some(d)
    };
    steps.iter().all(|step| {
        let Step::Computed(op, at) = step else { return true };
        let first = !offset && !scaled && !zero;
        match (op.kind(), other(step)) {
            (Some(OpKind::Convert), _) => true,
            (Some(OpKind::Add | OpKind::Sub), Other::Number(n)) => {
                offset = true;
                first && *at == 0 && n.fract() == 0.0 && n.abs() + lowest.abs() <= MAX_OFFSET
            }
            (Some(OpKind::Sub), Other::Tensor(v)) => {
                offset = true;
                first && *at == 0 && lowest == 0.0 && as_stored(v, DType::I8)
            }
            (Some(OpKind::Mul), Other::Tensor(v)) => {
                let once = !scaled && !zero;
                scaled = true;
                once && as_stored(v, element)
            }
            (Some(OpKind::Add), Other::Tensor(v)) => {
                let once = !zero;
                zero = true;
                once && as_stored(v, element)
            }
            _ => false,
        }
    })
}
