//! Frozen values: values of a function that are the same in every call.
use crate::kernels::op_facts::heavy;
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, sym::Dim};
use std::collections::HashSet;

/// Marks an op whose result is materialised in its own layout, for readers that see it through
/// movement ops.
pub const STORED: &str = "kiln.stored";
/// Marks a reshape as a view of its operand, which is materialised, where readers could fold it.
pub const VIEW: &str = "kiln.view";
/// Marks a reshape as part of its readers' indices, where it would be a view of a stored copy.
pub const INDEX: &str = "kiln.index";

/// Values that depend on frozen globals and literals only.
pub struct Frozen(HashSet<Value>);

impl Frozen {
    /// Analyses a function's ops, given in order.
    pub fn of(ops: &[Op]) -> Frozen {
        let mut all = HashSet::new();
        for op in ops {
            let known = op.results().iter().all(|v| {
                v.ty().is_tensor() && v.ty().dims().iter().all(|d| matches!(d, Dim::Known(_)))
            });
            let reads = op.operands().iter().all(|v| all.contains(v));
            if known && reads && op.kind().is_some_and(|k| is_leaf(*op, k) || is_pure(*op, k)) {
                all.extend(op.results());
            }
        }
        Frozen(all)
    }
    /// Whether a value is frozen.
    pub fn contains(&self, v: Value) -> bool {
        self.0.contains(&v)
    }
    /// The backward slice of a value: the ops that compute it, in breadth-first order.
    pub fn cone(&self, v: Value) -> Vec<Op> {
        let (mut seen, mut all, mut next) = (HashSet::new(), vec![], 0);
        all.extend(v.def());
        seen.extend(v.def());
        while let Some(op) = all.get(next).copied() {
            all.extend(
                op.operands().into_iter().filter_map(Value::def).filter(|o| seen.insert(*o)),
            );
            next += 1;
        }
        all
    }
}

/// Whether an op is a leaf of a slice: weights and generators (iota, constants).
fn is_leaf(op: Op, kind: OpKind) -> bool {
    match kind {
        OpKind::GetGlobal => GetGlobal::of(op).is_some_and(|g| !g.is_mutable),
        OpKind::Constant | OpKind::Splat | OpKind::Iota => true,
        _ => false,
    }
}

fn is_pure(op: Op, kind: OpKind) -> bool {
    kind.is_elementwise() || is_movement(kind) || is_expensive(op)
}

/// Movement ops: they only change the index at which an element is read.
pub fn is_movement(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(kind, BroadcastInDim | Transpose | Slice | Reverse | Reshape)
}

/// Whether an op costs more than reading its result back.
pub fn is_expensive(op: Op) -> bool {
    use OpKind::*;
    let moves = |kind| {
        matches!(
            kind,
            Reduce
                | DotGeneral
                | Convolution
                | ReduceWindow
                | ConvolutionWeightGradient
                | WinogradInput
                | WinogradOutput
                | ArgMax
                | ArgMin
                | Concat
                | Pad
                | Gather
                | DynamicSlice
        )
    };
    heavy(op) || op.kind().is_some_and(moves)
}

/// The size in bytes of a value of static shape; of others `i64::MAX`.
pub fn bytes(v: Value) -> i64 {
    let Ok(t) = tensor_type(v.ty()) else { return i64::MAX };
    t.dims
        .iter()
        .try_fold(t.dtype.byte_size() as i64, |n, d| n.checked_mul(d.known()?))
        .unwrap_or(i64::MAX)
}
