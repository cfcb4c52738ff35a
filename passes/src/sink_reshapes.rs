//! `kiln-sink-reshapes`: sinks a reshape of a convolution's result below the elementwise ops that
//! read it.
//!
//! Why: a transformer block with a convolution flattens the pixels, `[N, H, W, C]` to
//! `[N, H W, C]`, before its activation. Ops of other shapes do not fuse, so the activation is a
//! kernel of its own, which reads the image in f32. Below the activation the reshape is a view of
//! the stored image. `kiln-hoist-reshapes` does the same for matmuls, whose M dimension can be
//! split; an image cannot be flattened above its convolution. Upstream propagates reshapes in
//! linalg, which is after the fusion decisions here.
//!
//! An op goes above the reshape if its other operands are reshapes alike, splats, or broadcasts
//! along dimensions that the reshape keeps: a stored tensor would end up behind a reshape from the
//! ops that compute it. What an elementwise op or a reduction below reads stays with it, and so does
//! a conversion to wider floats: their kernel computes it, and the narrower image is stored. Of more
//! ops than `most` none goes.
//!
//! Numerics: exact; only indexing changes.
//!
//! ```text
//! before:  %1 = kiln.reshape %0 sizes = [2, 12, 8] : tensor<2x3x4x8xf32>   %2 = kiln.tanh %1
//! after:   %1 = kiln.tanh %0 : tensor<2x3x4x8xf32>   %2 = kiln.reshape %1 sizes = [2, 12, 8]
//! ```
use crate::{
    pass::{Numerics, Pass},
    readers::widens,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    sym::Dim,
};
use std::collections::{HashMap, HashSet, hash_map::Entry};

crate::pass_options! {
    /// The pass.
    pub struct SinkReshapes {
        /// Most elementwise ops above a reshape
        pub most: usize = 64,
    }
}

impl Pass for SinkReshapes {
    const FLAG: &'static str = "kiln-sink-reshapes";
    const SUMMARY: &'static str =
        "Sinks reshapes of convolutions' results below the elementwise ops that read them";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let bodies = functions_in(root).into_iter().flat_map(|f| f.regions());
        for block in bodies.filter_map(|r| r.first()) {
            for op in reshapes_of_convolutions(&block.ops()) {
                let Some(r) = Flattening::of(op) else { continue };
                let sunk = r.readers(self.most);
                if !sunk.is_empty() {
                    r.sink(&sunk).at(op)?;
                }
            }
        }
        Ok(())
    }
}

/// The reshapes of values that a convolution's kernel can store.
fn reshapes_of_convolutions(ops: &[Op]) -> Vec<Op> {
    let (mut stored, mut found) = (HashSet::new(), vec![]);
    for op in ops {
        let reads = |stored: &HashSet<Value>| op.operands().iter().any(|v| stored.contains(v));
        match op.kind() {
            Some(OpKind::Convolution) => drop(stored.insert(op.result(0))),
            Some(OpKind::Reshape) if reads(&stored) => found.push(*op),
            Some(kind)
                if (kind == OpKind::Transpose || kind.is_elementwise()) && reads(&stored) =>
            {
                stored.insert(op.result(0));
            }
            _ => {}
        }
    }
    found
}

/// A reshape that keeps leading and trailing dimensions.
struct Flattening {
    op: Op,
    from: Vec<Dim>,
    to: Vec<Dim>,
    sizes: Vec<Size>,
    /// The number of leading dimensions that both have, and of trailing ones.
    kept: [usize; 2],
}

impl Flattening {
    fn of(op: Op) -> Option<Flattening> {
        let o = Reshape::of(op)?;
        let (from, to) = (o.input.ty().dims(), op.result(0).ty().dims());
        // With one unknown size, equal types mean equal sizes.
        if from.iter().filter(|d| d.known().is_none()).count() > 1 {
            return None;
        }
        let same = |pair: &(&Dim, &Dim)| pair.0 == pair.1 && pair.0.known().is_some();
        let front = from.iter().zip(&to).take_while(same).count();
        let back = from.iter().rev().zip(to.iter().rev()).take_while(same).count();
        let back = back.min(from.len().min(to.len()) - front);
        Some(Flattening { op, from, to, sizes: o.sizes, kept: [front, back] })
    }

    fn input(&self) -> Value {
        self.op.operand(0)
    }

    /// Whether an operand of an op that reads the flattened image has a form of the image's shape.
    fn has_form(&self, v: Value, above: &HashSet<Value>) -> bool {
        let Some(def) = v.def() else { return false };
        let alike = |o: Reshape| o.input.ty().dims() == self.from && v.ty().dims() == self.to;
        above.contains(&v)
            || Reshape::of(def).is_some_and(alike)
            || Splat::of(def).is_some()
            || BroadcastInDim::of(def).is_some_and(|o| self.dims(&o).is_some())
    }

    /// The dimensions of a broadcast to the image's shape, if the reshape keeps them.
    fn dims(&self, o: &BroadcastInDim) -> Option<Vec<i64>> {
        let [front, back] = self.kept;
        let (first, added) = (self.to.len() - back, self.from.len() as i64 - self.to.len() as i64);
        let dim = |d: &i64| match *d as usize {
            at if at < front => Some(*d),
            at if at >= first => Some(*d + added),
            _ => None,
        };
        o.dims.iter().map(dim).collect()
    }

    /// The elementwise ops that go above the reshape, in order.
    fn readers(&self, most: usize) -> Vec<Op> {
        let mut above = HashSet::from([self.op.result(0)]);
        let mut sunk: Vec<Op> = vec![];
        for op in std::iter::successors(self.op.next(), |op| op.next()) {
            let elementwise = op.kind().is_some_and(OpKind::is_elementwise);
            let operands = op.operands();
            let reads = elementwise && operands.iter().any(|v| above.contains(v));
            let whole = op.results().iter().all(|v| v.ty().dims() == self.to);
            if reads && whole && operands.iter().all(|v| self.has_form(*v, &above)) {
                above.insert(op.result(0));
                sunk.push(op);
            }
        }
        // What elementwise ops or reductions below read, their kernel computes, and so it does what
        // only widens, and what reads an op that stays.
        loop {
            let results = sunk.iter().map(|op| op.result(0));
            let above: HashSet<Value> = results.chain([self.op.result(0)]).collect();
            let stays = |op: &Op| {
                let uses = op.result(0).uses();
                let (inside, below): (Vec<Op>, Vec<Op>) =
                    uses.iter().map(|(user, _)| *user).partition(|user| sunk.contains(user));
                let fuses = |kind: OpKind| kind.is_elementwise() || kind == OpKind::Reduce;
                below.iter().any(|user| user.kind().is_some_and(fuses))
                    || widens(*op) && inside.is_empty()
                    || !op.operands().iter().all(|v| self.has_form(*v, &above))
            };
            let kept: Vec<Op> = sunk.iter().copied().filter(|op| !stays(op)).collect();
            if kept.len() == sunk.len() {
                break;
            }
            sunk = kept;
        }
        if sunk.len() > most { vec![] } else { sunk }
    }

    /// Computes the ops on the image's shape, and reshapes what other ops read of them.
    fn sink(&self, sunk: &[Op]) -> Result<()> {
        let mut forms = HashMap::from([(self.op.result(0), self.input())]);
        let mut replaced = vec![];
        for op in sunk {
            let b = Builder::before(*op).ok_or_at(*op, "is in no block")?;
            for v in op.operands() {
                if let Entry::Vacant(entry) = forms.entry(v) {
                    entry.insert(self.form(&b, v)?);
                }
            }
            let t = tensor_type(op.result(0).ty())?;
            let new = b.clone_op(*op, &|v| forms.get(&v).copied().unwrap_or(v))?.result(0);
            new.set_ty(Type::tensor(b.ctx, t.dtype, &self.from));
            forms.insert(op.result(0), new);
            if op.result(0).uses().iter().any(|(user, _)| !sunk.contains(user)) {
                let view = b.add(&Reshape { input: new, sizes: self.sizes.clone() })?;
                replaced.push((op.result(0), view));
            }
        }
        for (old, new) in replaced {
            old.replace_uses(new);
        }
        // What these read is dead now; canonicalize erases it.
        sunk.iter().rev().for_each(|op| op.erase());
        Ok(())
    }

    /// An operand in the image's shape.
    fn form(&self, b: &Builder, v: Value) -> Result<Value> {
        let def = v.def().ok_or("is no op's result")?;
        if let Some(o) = Reshape::of(def) {
            return Ok(o.input);
        }
        let sizes = b.sizes_of(self.input())?;
        if let Some(o) = Splat::of(def) {
            return b.add(&Splat { value: o.value, sizes });
        }
        let o = BroadcastInDim::of(def).ok_or("has no form of the image's shape")?;
        let dims = self.dims(&o).ok_or("is broadcast along a dimension that is flattened")?;
        b.add(&BroadcastInDim { input: o.input, dims, sizes })
    }
}
