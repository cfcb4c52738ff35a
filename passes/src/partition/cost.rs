//! What values and ops cost: bytes and flops.
use crate::refine_shapes::Facts;
use kiln_dialects::{ir::*, ops::*, rules::tensor_type};

/// Costs of a function's values and ops.
pub(super) struct Costs {
    pub(super) facts: Facts,
    /// Value assumed for a dynamic dimension.
    size: i64,
}

impl Costs {
    pub(super) fn of(func: Op, size: i64) -> Result<Costs> {
        Ok(Costs { facts: Facts::of(func, 4)?, size })
    }
    /// The sizes of a tensor.
    fn sizes(&self, v: Value) -> Vec<u64> {
        let dims = self.facts.dims(v);
        let known = |d: &kiln_dialects::sym::Dim| d.evaluate(&|_| Some(self.size));
        dims.iter().map(|d| known(d).unwrap_or(self.size).max(0) as u64).collect()
    }
    /// Elements of a tensor; 1 for other values.
    pub(super) fn elements(&self, v: Value) -> u64 {
        self.sizes(v).into_iter().fold(1, u64::saturating_mul)
    }
    /// Bytes of a tensor. `None`: the value is none.
    pub(super) fn bytes(&self, v: Value) -> Option<u64> {
        let dtype = tensor_type(v.ty()).ok()?.dtype;
        Some(self.elements(v).saturating_mul(dtype.byte_size() as u64))
    }
    /// Floating-point operations of an op: two for each product of a contraction, else one for
    /// each element that is read or made. A checkpoint has those of its body.
    pub(super) fn flops(&self, op: Op) -> u64 {
        if op.kind() == Some(OpKind::Checkpoint) {
            let inner = blocks(op).into_iter().flat_map(|b| b.ops());
            return inner.fold(0, |n: u64, o| n.saturating_add(self.flops(o)));
        }
        let Some(result) = op.results().first().copied() else { return 0 };
        let made = self.elements(result);
        let last = |v: Value| self.sizes(v).last().copied().unwrap_or(1);
        let each = if let Some(o) = DotGeneral::of(op) {
            let sizes = self.sizes(o.lhs);
            let contracted = o.lhs_contract.iter().filter_map(|d| sizes.get(*d as usize));
            Some(contracted.fold(1, |n: u64, s| n.saturating_mul(*s)))
        } else if let Some(o) = Linear::of(op) {
            Some(last(o.input))
        } else if let Some(o) = Matmul::of(op) {
            Some(last(o.lhs))
        } else if let Some(o) = Convolution::of(op) {
            let outputs = self.sizes(o.weight).first().copied().unwrap_or(1).max(1);
            Some(self.elements(o.weight) / outputs)
        } else if let Some(o) = Attention::of(op) {
            // Scores and their product with the values.
            let keys = self.sizes(o.key).get(2).copied().unwrap_or(1);
            Some(keys.saturating_mul(2))
        } else if let Some(o) = AttentionGradient::of(op) {
            // Two products for scores, and one or two for the gradients.
            let across = if o.by_keys { o.query } else { o.key };
            Some(self.sizes(across).get(2).copied().unwrap_or(1).saturating_mul(3))
        } else {
            None
        };
        let read = op.operands().into_iter().map(|v| self.elements(v));
        each.map_or_else(
            || read.chain([made]).max().unwrap_or(0),
            |n| made.saturating_mul(n).saturating_mul(2),
        )
    }
}
