//! An op without a batching rule: a scan over the examples.
use super::Batch;
use crate::{decompose::tools::dtype, differentiate::inputs_of};
use kiln_dialects::{
    ir::*,
    ops::{CustomCall, Scan, Yield},
    sym::Dim,
};
use std::collections::HashMap;

impl Batch {
    /// The op in a scan over the batched values that it reads.
    pub(super) fn repeated(&self, op: Op) -> Result<Vec<Value>> {
        let has_effect = |o: &Op| CustomCall::of(*o).is_some_and(|c| c.effect);
        if walk(op).iter().any(has_effect) {
            let why = "cannot be batched: it has effects, whose order a batch does not keep";
            return Err(Error::unsupported(op, why));
        }
        let is_batched = |v: &Value| self.batched.contains_key(v);
        let read: Vec<Value> = inputs_of(op).into_iter().filter(is_batched).collect();
        let inputs: Vec<Value> = read.iter().map(|v| self.batched[v]).collect();
        let rows: Vec<Type> = read.iter().map(|v| v.ty()).collect();
        let size = self.size.known().map_or(Dim::Unknown, Dim::Known);
        let stack = |v: Value| {
            let dims = [vec![size.clone()], v.ty().dims()].concat();
            Ok(Type::tensor(v.ctx(), dtype(v)?, &dims))
        };
        let types = op.results().into_iter().map(stack).collect::<Result<Vec<_>>>()?;
        let mut body = |b: Builder, given: Vec<Value>| -> Result<()> {
            let map: HashMap<Value, Value> = read.iter().copied().zip(given).collect();
            let copy = b.clone_op(op, &|v| map.get(&v).copied().unwrap_or_else(|| self.one(v)))?;
            b.create_with(&Yield { values: copy.results() }, &[], &mut []).map(|_| ())
        };
        let node = Scan { inits: vec![], inputs, reverse: false };
        Ok(self.b.create_with(&node, &types, &mut [(&rows, &mut body)])?.results())
    }
}
