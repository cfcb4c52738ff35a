//! `kiln-hoist-reshapes`: hoists a reshape that splits the M dimension of a matmul's epilogue above
//! the matmul.
//!
//! Why: exported models flatten `[batch, sequence, width]` to 2-D for a matmul and split it again
//! after the bias. The split separates the matmul from the rest of its epilogue (activation,
//! residual), and ops of other shapes do not fuse. Above the matmul it cancels with the flattening.
//! Upstream propagates reshapes in linalg, which is after the fusion decisions here.
//!
//! Numerics: exact; only indexing changes.
//!
//! ```text
//! before:  %0 = kiln.dot_general %flat, %w …  %1 = kiln.add %0, %bias …  %2 = kiln.reshape %1 sizes = [2, 8, 16]
//! after:   %x = kiln.reshape %flat sizes = [2, 8, 4]  %0 = kiln.dot_general %x, %w …  %1 = kiln.add %0, %bias : tensor<2x8x16xf32>
//! ```
use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
};

crate::pass_options! {
    /// The pass.
    pub struct HoistReshapes {
        /// Most elementwise ops between a matmul and the reshape
        pub depth: usize = 16,
    }
}

impl Pass for HoistReshapes {
    const FLAG: &'static str = "kiln-hoist-reshapes";
    const SUMMARY: &'static str =
        "Hoists a split of a matmul's M dimension from its epilogue above the matmul";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(split) = SplitReshape::of(op) else { continue };
            if !self.reaches_matmul(op.operand(0), self.depth) {
                continue;
            }
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let v = split.apply(&b, op.operand(0)).at(op)?;
            if v.ty() == op.result(0).ty() {
                op.result(0).replace_uses(v);
            }
        }
        // Replaced ops are dead now; canonicalize erases them.
        Ok(())
    }
}

impl HoistReshapes {
    /// Whether a value is a matmul, or an elementwise chain of single-use values that ends at one.
    fn reaches_matmul(&self, v: Value, depth: usize) -> bool {
        let Some(op) = v.def().filter(|_| v.uses().len() == 1 && depth > 0) else { return false };
        if let Some(dot) = DotGeneral::of(op) {
            // The operand must be a buffer: a reshape of one is a view, a reshape of a fused value
            // a copy.
            let stored = dot.lhs.def().is_none_or(|o| {
                !matches!(
                    o.kind(),
                    Some(OpKind::Transpose | OpKind::Slice | OpKind::BroadcastInDim)
                )
            });
            let rank = dot.lhs.ty().dims().len();
            // A split M that is contiguous would leave short rows, which TMA does not read.
            let k_major = dot.lhs_contract.contains(&(rank as i64 - 1));
            let plain = dot.lhs_batch.is_empty() && rank == dot.lhs_contract.len() + 1;
            return stored && k_major && plain;
        }
        op.kind().is_some_and(OpKind::is_arithmetic)
            && op.operands().into_iter().any(|o| self.reaches_matmul(o, depth - 1))
    }
}

/// A reshape, or nothing where it cancels with a flattening. With at most one dynamic dimension,
/// equal types mean equal sizes.
fn reshape_or_cancel(b: &Builder, v: Value, sizes: Vec<Size>) -> Result<Value> {
    let Some(inner) = v.def().and_then(Reshape::of).map(|o| o.input) else {
        return b.add(&Reshape { input: v, sizes });
    };
    let have = inner.ty().dims();
    let open = have.iter().filter(|d| d.known().is_none()).count();
    let same =
        have.len() == sizes.len() && have.iter().zip(&sizes).all(|(d, s)| d.known() == s.known());
    if same && open <= 1 { Ok(inner) } else { b.add(&Reshape { input: inner, sizes }) }
}

/// A reshape that splits the first dimension and keeps the others.
struct SplitReshape {
    sizes: Vec<Size>,
    /// The number of dimensions that the first is split into.
    front: usize,
}

impl SplitReshape {
    fn of(op: Op) -> Option<SplitReshape> {
        let o = Reshape::of(op)?;
        let (from, to) = (o.input.ty().dims(), op.result(0).ty().dims());
        if to.len() <= from.len() || from.len() < 2 {
            return None;
        }
        let front = to.len() - (from.len() - 1);
        let same = from[1..].iter().zip(&to[front..]).all(|(a, b)| a.known().is_some() && a == b);
        same.then_some(SplitReshape { sizes: o.sizes, front })
    }

    /// The value with its first dimension split.
    fn apply(&self, b: &Builder, v: Value) -> Result<Value> {
        let Some(op) = v.def() else { return self.view(b, v) };
        let b = &b.at(op.loc());
        if let Some(mut dot) = DotGeneral::of(op).filter(|d| {
            d.lhs_batch.is_empty() && d.lhs.ty().dims().len() == d.lhs_contract.len() + 1
        }) {
            let free = (0..=dot.lhs_contract.len() as i64)
                .find(|d| !dot.lhs_contract.contains(d))
                .ok_or("has no M dimension")?;
            let own = b.sizes_of(dot.lhs)?;
            let (before, after) = (&own[..free as usize], &own[free as usize + 1..]);
            let sizes = [before, &self.sizes[..self.front], after].concat();
            dot.lhs = reshape_or_cancel(b, dot.lhs, sizes)?;
            dot.lhs_contract
                .iter_mut()
                .filter(|d| **d > free)
                .for_each(|d| *d += self.front as i64 - 1);
            return b.add(&dot);
        }
        if let Some(splat) = Splat::of(op) {
            return b.add(&Splat { value: splat.value, sizes: self.sizes.clone() });
        }
        // A broadcast along the first dimension is one along its split dimensions.
        if let Some(mut o) = BroadcastInDim::of(op).filter(|o| !o.dims.contains(&0)) {
            o.dims.iter_mut().for_each(|d| *d += self.front as i64 - 1);
            o.sizes = self.sizes.clone();
            return b.add(&o);
        }
        if !op.kind().is_some_and(OpKind::is_arithmetic) || v.uses().len() > 1 {
            return self.view(b, v);
        }
        let operands =
            op.operands().into_iter().map(|o| self.apply(b, o)).collect::<Result<Vec<_>, _>>()?;
        let copy = b.clone_op(op, &|o| {
            op.operands().iter().position(|x| *x == o).map_or(o, |i| operands[i])
        })?;
        let element = v.ty().element().ok_or("is not a tensor")?.dtype()?;
        copy.result(0).set_ty(Type::tensor(b.ctx, element, &operands[0].ty().dims()));
        Ok(copy.result(0))
    }

    fn view(&self, b: &Builder, v: Value) -> Result<Value> {
        reshape_or_cancel(b, v, self.sizes_for(v))
    }

    /// The sizes of `v` with its first dimension split.
    fn sizes_for(&self, v: Value) -> Vec<Size> {
        let rest = v.ty().dims().len() - 1;
        let own = &self.sizes[self.front..];
        [&self.sizes[..self.front], &own[own.len() - rest..]].concat()
    }
}
