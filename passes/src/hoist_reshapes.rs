//! `kiln-hoist-reshapes`: a reshape that splits the first dimension of a matmul's epilogue moves in
//! front of the matmul.
//!
//! Why: exported models flatten `[batch, sequence, width]` to two dimensions for a matmul and split
//! it again behind the bias. The split stands between the matmul and what could be its epilogue
//! (activation, residual), and over other sizes nothing fuses. In front of the matmul it meets the
//! flattening and vanishes. Upstream has reshape propagation for linalg, which comes after fusion
//! is decided here.
//!
//! Numerics: exact; only the names of positions change.
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
        "Moves a split of a matmul's first dimension from behind its epilogue in front of it";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(split) = Split::of(op) else { continue };
            if !self.reaches_matmul(op.operand(0), self.depth) {
                continue;
            }
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let v = split.apply(&b, op.operand(0)).at(op)?;
            if v.ty() == op.result(0).ty() {
                op.result(0).replace_uses(v);
            }
        }
        // What was replaced has no uses any more; canonicalize drops it.
        Ok(())
    }
}

impl HoistReshapes {
    /// Whether a value is a matmul's, or comes from one through elementwise ops that nothing else
    /// reads.
    fn reaches_matmul(&self, v: Value, depth: usize) -> bool {
        let Some(op) = v.def().filter(|_| v.uses().len() == 1 && depth > 0) else { return false };
        if let Some(dot) = DotGeneral::of(op) {
            // A view of a view costs nothing; a view of something that is moved on the way would be
            // a copy.
            let stored = dot.lhs.def().is_none_or(|o| {
                !matches!(
                    o.kind(),
                    Some(OpKind::Transpose | OpKind::Slice | OpKind::BroadcastInDim)
                )
            });
            let rank = dot.lhs.ty().dims().len();
            return stored && dot.lhs_batch.is_empty() && rank == dot.lhs_contract.len() + 1;
        }
        op.kind().is_some_and(OpKind::is_arithmetic)
            && op.operands().into_iter().any(|o| self.reaches_matmul(o, depth - 1))
    }
}

/// A view; a flattening that is undone is nothing. With one open size at most, equal types are
/// equal sizes.
fn viewed(b: &Builder, v: Value, sizes: Vec<Size>) -> Result<Value> {
    let Some(inner) = v.def().and_then(Reshape::of).map(|o| o.input) else {
        return b.add(&Reshape { input: v, sizes });
    };
    let have = inner.ty().dims();
    let open = have.iter().filter(|d| d.known().is_none()).count();
    let same =
        have.len() == sizes.len() && have.iter().zip(&sizes).all(|(d, s)| d.known() == s.known());
    if same && open <= 1 { Ok(inner) } else { b.add(&Reshape { input: inner, sizes }) }
}

/// A reshape that takes the first dimension apart and leaves the others as they are.
struct Split {
    sizes: Vec<Size>,
    /// How many sizes stand for the first dimension.
    front: usize,
}

impl Split {
    fn of(op: Op) -> Option<Split> {
        let o = Reshape::of(op)?;
        let (from, to) = (o.input.ty().dims(), op.result(0).ty().dims());
        if to.len() <= from.len() || from.len() < 2 {
            return None;
        }
        let front = to.len() - (from.len() - 1);
        let same = from[1..].iter().zip(&to[front..]).all(|(a, b)| a.known().is_some() && a == b);
        same.then_some(Split { sizes: o.sizes, front })
    }

    /// The value with its first dimension taken apart.
    fn apply(&self, b: &Builder, v: Value) -> Result<Value> {
        let Some(op) = v.def() else { return self.view(b, v) };
        let b = &b.at(op.loc());
        if let Some(mut dot) = DotGeneral::of(op).filter(|d| {
            d.lhs_batch.is_empty() && d.lhs.ty().dims().len() == d.lhs_contract.len() + 1
        }) {
            let free = (0..=dot.lhs_contract.len() as i64)
                .find(|d| !dot.lhs_contract.contains(d))
                .ok_or("has no free dimension")?;
            let own = b.sizes_of(dot.lhs)?;
            let (before, behind) = (&own[..free as usize], &own[free as usize + 1..]);
            let sizes = [before, &self.sizes[..self.front], behind].concat();
            dot.lhs = viewed(b, dot.lhs, sizes)?;
            dot.lhs_contract
                .iter_mut()
                .filter(|d| **d > free)
                .for_each(|d| *d += self.front as i64 - 1);
            return b.add(&dot);
        }
        if let Some(splat) = Splat::of(op) {
            return b.add(&Splat { value: splat.value, sizes: self.sizes.clone() });
        }
        // A value that is the same along the first dimension is so along its parts.
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
        let element = v.ty().element().ok_or("is no tensor")?.dtype()?;
        copy.result(0).set_ty(Type::tensor(b.ctx, element, &operands[0].ty().dims()));
        Ok(copy.result(0))
    }

    fn view(&self, b: &Builder, v: Value) -> Result<Value> {
        viewed(b, v, self.sizes_for(v))
    }

    /// The sizes of a view of `v`, whose other dimensions are its own.
    fn sizes_for(&self, v: Value) -> Vec<Size> {
        let rest = v.ty().dims().len() - 1;
        let own = &self.sizes[self.front..];
        [&self.sizes[..self.front], &own[own.len() - rest..]].concat()
    }
}
