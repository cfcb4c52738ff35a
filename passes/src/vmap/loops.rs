//! Ops with regions around batches: the scan of an op without a batching rule, and checkpoints.
use super::Batch;
use crate::{decompose::tools::dtype, differentiate::inputs_of};
use kiln_dialects::{
    ir::*,
    ops::{Checkpoint, Scan, Yield},
    sym::Dim,
};
use std::collections::HashMap;

impl Batch {
    /// The op in a scan over the batched values that it reads.
    pub(super) fn repeated(&self, op: Op) -> Result<Vec<Value>> {
        let is_batched = |v: &Value| self.batched.contains_key(v);
        let read: Vec<Value> = inputs_of(op).into_iter().filter(is_batched).collect();
        let inputs: Vec<Value> = read.iter().map(|v| self.batched[v]).collect();
        let rows: Vec<Type> = read.iter().map(|v| v.ty()).collect();
        let types = self.stacked(op)?;
        let mut body = |b: Builder, given: Vec<Value>| -> Result<()> {
            let map: HashMap<Value, Value> = read.iter().copied().zip(given).collect();
            let copy = b.clone_op(op, &|v| map.get(&v).copied().unwrap_or_else(|| self.one(v)))?;
            b.create_with(&Yield { values: copy.results() }, &[], &mut []).map(|_| ())
        };
        let node = Scan { inits: vec![], inputs, reverse: false };
        Ok(self.b.create_with(&node, &types, &mut [(&rows, &mut body)])?.results())
    }

    /// The types of the batches of an op's results.
    fn stacked(&self, op: Op) -> Result<Vec<Type>> {
        let size = self.size.known().map_or(Dim::Unknown, Dim::Known);
        let stack = |v: Value| {
            let dims = [vec![size.clone()], v.ty().dims()].concat();
            Ok(Type::tensor(v.ctx(), dtype(v)?, &dims))
        };
        op.results().into_iter().map(stack).collect()
    }

    /// A checkpoint of the batched body, so that a later derivative recomputes it.
    pub(super) fn checkpoint(&self, op: Op) -> Result<Option<Vec<Value>>> {
        let block = op.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
        let types = self.stacked(op)?;
        let mut body = |b: Builder, _: Vec<Value>| -> Result<()> {
            let (batched, single) = (self.batched.clone(), self.single.clone());
            let mut inner = Batch { b, size: self.size, batched, single };
            let yielded = inner.block(block)?;
            let whole = |(v, ty): (Value, &Type)| inner.m().retype(inner.whole(v)?, *ty);
            let values = yielded.into_iter().zip(&types).map(whole).collect::<Result<_>>()?;
            b.create_with(&Yield { values }, &[], &mut []).map(|_| ())
        };
        let made = self.b.create_with(&Checkpoint {}, &types, &mut [(&[], &mut body)])?;
        Ok(Some(made.results()))
    }
}
