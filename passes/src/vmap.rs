//! `kiln-vmap`: a scan without loop-carried values becomes ops on whole batches.
//!
//! Why: a function of one example is easier to write than one of a batch, and a loop over examples
//! runs one small kernel after the other. The batch is dimension 0 of every batched value. A rule
//! per op (`batching.rs`) gives it another dimension; what does not depend on the batch is computed
//! once. An op without a rule runs in a scan of its own. JAX's `vmap` does this to its primitives;
//! upstream has nothing of the kind.
//!
//! Numerics: exact, but for the order of sums in products and reductions.
//!
//! ```text
//! before:  %0 = kiln.scan over(%x) {  %1 = kiln.exp %row  %2 = kiln.reduce sum %1 dims = [0]  kiln.yield %2 }
//! after:   %1 = kiln.exp %x   %2 = kiln.reduce sum %1 dims = [1]
//! ```
mod batching;
mod loops;
mod rules;

pub use batching::{Batching, batching};

use crate::{
    decompose::{self, tools::Math},
    differentiate::inputs_of,
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::{CustomCall, OpKind, Scan},
    rules::{Level, infer_types},
};
use std::collections::{HashMap, HashSet};

crate::pass_options! {
    /// The pass.
    pub struct Vmap {}
}

impl Pass for Vmap {
    const FLAG: &'static str = "kiln-vmap";
    const SUMMARY: &'static str = "Computes whole batches instead of scans over examples";
    const LEVELS: &'static [Level] = &[Level::Graph];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        // Innermost first: a batch of batches.
        let maps: Vec<Op> = walk(root).into_iter().rev().filter(|o| is_map(*o)).collect();
        for op in maps {
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let made = vectorise(&b, op)?;
            for (old, new) in op.results().into_iter().zip(made) {
                old.replace_uses(new);
            }
            op.erase();
        }
        Ok(())
    }
}

/// Whether an op is a scan whose steps do not depend on each other.
pub fn is_map(op: Op) -> bool {
    Scan::of(op).is_some_and(|o| o.inits.is_empty() && !o.inputs.is_empty())
}

/// Emits the results of a scan without loop-carried values as ops on whole batches. Err: an op that
/// cannot be in a loop, with its location.
pub fn vectorise(b: &Builder, scan: Op) -> Result<Vec<Value>> {
    let o = Scan::of(scan).ok_or_malformed(scan)?;
    let block = scan.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
    let size = Math { b }.size_of(*o.inputs.first().ok_or("has no inputs")?, 0)?;
    let mut batch = Batch { b: *b, size, batched: HashMap::new(), single: HashMap::new() };
    batch.batched.extend(block.args().into_iter().zip(o.inputs.iter().copied()));
    let yielded = batch.block(block)?;
    let m = Math { b };
    let whole = |(v, result): (Value, Value)| m.retype(batch.whole(v)?, result.ty()).at(scan);
    yielded.into_iter().zip(scan.results()).map(whole).collect()
}

/// The values of a body, while its ops become ops on batches.
pub struct Batch {
    b: Builder,
    /// How many examples there are.
    size: Size,
    /// Values of all examples: dimension 0 is the batch.
    batched: HashMap<Value, Value>,
    /// Values that are the same for all examples.
    single: HashMap<Value, Value>,
}

impl Batch {
    fn m(&self) -> Math<'_> {
        Math { b: &self.b }
    }
    /// A value that is the same for all examples: one from outside, or a copy.
    fn one(&self, v: Value) -> Value {
        *self.single.get(&v).unwrap_or(&v)
    }
    /// A value as a batch, with copies of what is the same for all examples.
    fn whole(&self, v: Value) -> Result<Value> {
        if let Some(known) = self.batched.get(&v) {
            return Ok(*known);
        }
        let (m, one) = (self.m(), self.one(v));
        let sizes = [vec![self.size], m.sizes_of(one)?].concat();
        let dims: Vec<i64> = (1..sizes.len() as i64).collect();
        m.broadcast(one, &dims, &sizes)
    }

    /// Emits a block's ops; returns what it yields, as values of the block.
    fn block(&mut self, block: Block) -> Result<Vec<Value>> {
        for op in block.ops() {
            if op.kind() == Some(OpKind::Yield) {
                return Ok(op.operands());
            }
            self.b = self.b.at(op.loc());
            self.op(op).at(op)?;
        }
        Err("has a body without a terminator".into())
    }

    fn op(&mut self, op: Op) -> Result<()> {
        // A loop that was batched before.
        if is_map(op) && op.results().iter().all(|v| v.uses().is_empty()) {
            return Ok(());
        }
        if walk(op).into_iter().any(|o| CustomCall::of(o).is_some_and(|c| c.effect)) {
            let why = "cannot be batched: it has effects, whose order a batch does not keep";
            return Err(Error::unsupported(op, why));
        }
        if !inputs_of(op).iter().any(|v| self.batched.contains_key(v)) {
            let copy = self.b.clone_op(op, &|v| self.one(v))?;
            self.single.extend(op.results().into_iter().zip(copy.results()));
            return Ok(());
        }
        let kind = op.kind().ok_or("cannot be batched: it is no op of kiln")?;
        let made = match batching(kind) {
            Batching::Own(rule) => match rule(self, op)? {
                Some(made) => made,
                None if kind.is_composite() => return self.decomposed(op, kind),
                None => self.repeated(op)?,
            },
            Batching::Same => self.same(op)?,
            Batching::Size => {
                let size = rules::size(self, op)?;
                self.single.insert(op.result(0), size);
                return Ok(());
            }
            Batching::Fact => return rules::fact(self, op),
            Batching::Decomposed => return self.decomposed(op, kind),
            Batching::Repeated => self.repeated(op)?,
            Batching::Refused(why) => {
                return Err(Error::unsupported(op, format!("cannot be batched: it {why}")));
            }
        };
        self.batched.extend(op.results().into_iter().zip(made));
        Ok(())
    }

    /// The op on batches: it takes leading dimensions as they are.
    fn same(&self, op: Op) -> Result<Vec<Value>> {
        let all = op.operands().into_iter().map(|v| Ok((v, self.whole(v)?)));
        let map: HashMap<Value, Value> = all.collect::<Result<_>>()?;
        let copy = self.b.clone_op(op, &|v| map[&v])?;
        let view = View::of(copy).ok_or("is no op of kiln")?;
        for (v, ty) in copy.results().into_iter().zip(infer_types(&view)?) {
            v.set_ty(ty);
        }
        Ok(copy.results())
    }

    /// The batch of what `kiln-decompose` expands the op into. The expansion is put before the op,
    /// in the body that is erased.
    fn decomposed(&mut self, op: Op, kind: OpKind) -> Result<()> {
        let before: Vec<Op> = op.block().map(|b| b.ops()).unwrap_or_default();
        let b = Builder::before(op).ok_or("is in no block")?;
        let values = decompose::expand(kind, op, &b)?;
        let known: HashSet<Op> = before.into_iter().collect();
        let made: Vec<Op> = op.block().map(|b| b.ops()).unwrap_or_default();
        for new in made.into_iter().filter(|o| !known.contains(o)) {
            self.op(new)?;
        }
        for (old, new) in op.results().into_iter().zip(values) {
            match self.batched.get(&new).copied() {
                Some(batch) => self.batched.insert(old, batch),
                None => self.single.insert(old, self.one(new)),
            };
        }
        Ok(())
    }
}
