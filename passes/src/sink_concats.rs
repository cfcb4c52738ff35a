//! `kiln-sink-concats`: an elementwise op on a concatenation becomes a concatenation of that op on
//! each piece.
//!
//! Why: a concatenation starts a kernel, and what reads it another one, with a tensor between them
//! in memory. Behind the elementwise ops it is where their results are stored: rotary embeddings,
//! `x cos + concat(-x[n/2:], x[:n/2]) sin`, are one kernel instead of two. Only concatenations of
//! slices of what is in memory anyway, or of elementwise ops on that: what a product or a reduction
//! computes for this alone would lose its epilogue. Upstream has no such pass.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %c = kiln.concat %a, %b axis = 0   %0 = kiln.mul %c, %s : tensor<64xf32>
//! after:   %s0 = kiln.slice %s offsets = [0] sizes = [32] …   %m0 = kiln.mul %a, %s0   %m1 = kiln.mul %b, %s1   %0 = kiln.concat %m0, %m1 axis = 0
//! ```
use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
};

crate::pass_options! {
    /// The pass.
    pub struct SinkConcats {
        /// Most pieces
        pub pieces: usize = 4,
        /// Least elements of a piece that lie side by side
        pub least: i64 = 8,
        /// Most elementwise and movement ops that are looked at behind each other
        pub depth: usize = 16,
    }
}

/// Where the pieces of a concatenation are.
#[derive(Clone, PartialEq)]
struct Cut {
    axis: usize,
    sizes: Vec<i64>,
}

impl Cut {
    /// The pieces of a concatenation, if their sizes are known and nothing but one op reads it.
    fn of(v: Value) -> Option<(Cut, Concat)> {
        let o = v.def().and_then(Concat::of)?;
        let axis = o.axis as usize;
        let sizes = o
            .inputs
            .iter()
            .map(|p| p.ty().dims().get(axis)?.known().filter(|n| *n > 0))
            .collect::<Option<_>>()?;
        (v.uses().len() == 1).then_some((Cut { axis, sizes }, o))
    }
}

impl Pass for SinkConcats {
    const FLAG: &'static str = "kiln-sink-concats";
    const SUMMARY: &'static str = "Moves concatenations behind the elementwise ops that read them";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        // In order, so that a concatenation goes on behind the next op.
        for op in walk(root) {
            let Some(cut) = self.cut(op) else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
            let (mut pieces, mut offset) = (vec![], 0);
            for size in &cut.sizes {
                pieces.push(self.again(&b, op, &cut, (offset, *size)).at(op)?);
                offset += size;
            }
            let joined = b.add(&Concat { inputs: pieces, axis: cut.axis as i64 }).at(op)?;
            op.result(0).replace_uses(joined);
            let read = op.operands();
            op.erase();
            read.into_iter().for_each(sweep);
        }
        Ok(())
    }
}

/// Erases what nothing reads any more, so that it is no reader either.
fn sweep(v: Value) {
    let Some(op) = v.def().filter(|o| {
        o.kind().is_some_and(|k| k.is_elementwise() || is_view(k))
            && o.results().iter().all(|r| r.uses().is_empty())
    }) else {
        return;
    };
    let read = op.operands();
    op.erase();
    read.into_iter().for_each(sweep);
}

/// Ops that say where elements are.
fn is_view(kind: OpKind) -> bool {
    use OpKind::{BroadcastInDim, Concat, Reshape, Slice, Splat, Transpose};
    matches!(kind, BroadcastInDim | Concat | Reshape | Slice | Splat | Transpose)
}

impl SinkConcats {
    /// Where an elementwise op is cut: as the first concatenation that it reads, if all else that
    /// it reads can be.
    fn cut(&self, op: Op) -> Option<Cut> {
        op.kind().filter(|k| k.is_arithmetic())?;
        let (cut, o) = op.operands().into_iter().find_map(Cut::of)?;
        let pieces = o.inputs.len() <= self.pieces;
        let dims = op.result(0).ty().dims();
        let inner = dims
            .get(cut.axis + 1..)?
            .iter()
            .map(|d| d.known().unwrap_or(self.least))
            .fold(1i64, i64::saturating_mul);
        let wide = cut.sizes.iter().all(|n| n.saturating_mul(inner) >= self.least);
        let same = |v: Value| {
            Cut::of(v).is_some_and(|(c, o)| {
                c == cut && o.inputs.iter().all(|p| self.is_there(*p, self.depth))
            })
        };
        let others = op.operands().into_iter().all(|v| same(v) || self.is_there(v, self.depth));
        (wide && pieces && others).then_some(cut)
    }
    /// Whether a value is in memory whatever becomes of its reader, or is made of such ones element
    /// by element.
    fn is_there(&self, v: Value, depth: usize) -> bool {
        let Some(op) = v.def() else { return true };
        let Some(kind) = op.kind() else { return true };
        if v.uses().len() > 1
            || matches!(kind, OpKind::GetGlobal | OpKind::Constant | OpKind::Splat | OpKind::Iota)
        {
            return true;
        }
        let made = kind.is_elementwise() || (is_view(kind) && kind != OpKind::Concat);
        made && depth > 0
            && op
                .operands()
                .into_iter()
                .filter(|o| o.ty().is_tensor())
                .all(|o| self.is_there(o, depth - 1))
    }
    /// The op on a part of its operands.
    fn again(&self, b: &Builder, op: Op, cut: &Cut, at: (i64, i64)) -> Result<Value> {
        let operands = op.operands();
        let parts =
            operands.iter().map(|v| self.part(b, *v, cut, at)).collect::<Result<Vec<_>, _>>()?;
        let copy = b
            .at(op.loc())
            .clone_op(op, &|o| operands.iter().position(|x| *x == o).map_or(o, |i| parts[i]))?;
        let dtype = tensor_type(op.result(0).ty())?.dtype;
        let dims = parts.first().ok_or("reads nothing")?.ty().dims();
        copy.result(0).set_ty(Type::tensor(b.ctx, dtype, &dims));
        Ok(copy.result(0))
    }
    /// So many elements of a value from an offset on, along the axis.
    fn part(&self, b: &Builder, v: Value, cut: &Cut, (offset, size): (i64, i64)) -> Result<Value> {
        let axis = cut.axis;
        if let Some((own, o)) = Cut::of(v).filter(|(own, _)| own == cut) {
            let piece =
                (0..own.sizes.len()).find(|i| own.sizes[..*i].iter().sum::<i64>() == offset);
            return piece
                .and_then(|i| o.inputs.get(i).copied())
                .ok_or_else(|| "has no such piece".into());
        }
        let shorter = |sizes: &[Size]| {
            sizes
                .iter()
                .enumerate()
                .map(|(i, s)| if i == axis { Size::Static(size) } else { *s })
                .collect::<Vec<_>>()
        };
        if let Some(op) = v.def() {
            if let Some(o) = Splat::of(op) {
                return b.add(&Splat { sizes: shorter(&o.sizes), ..o });
            }
            if let Some(o) = BroadcastInDim::of(op) {
                let sizes = shorter(&o.sizes);
                // What repeats along the axis is repeated less often.
                let own = o
                    .dims
                    .iter()
                    .position(|d| *d == axis as i64)
                    .filter(|i| o.input.ty().dims()[*i].known() != Some(1));
                let input = own.map_or(Ok(o.input), |i| slice(b, o.input, i, offset, size))?;
                return b.add(&BroadcastInDim { input, sizes, ..o });
            }
            if op.kind().is_some_and(OpKind::is_arithmetic) && v.uses().len() == 1 {
                return self.again(b, op, cut, (offset, size));
            }
        }
        slice(b, v, axis, offset, size)
    }
}

fn slice(b: &Builder, input: Value, axis: usize, offset: i64, size: i64) -> Result<Value> {
    let mut sizes = b.sizes_of(input)?;
    let rank = sizes.len();
    sizes[axis] = Size::Static(size);
    let mut offsets = vec![Size::Static(0); rank];
    offsets[axis] = Size::Static(offset);
    b.add(&Slice { input, offsets, sizes, strides: vec![1; rank] })
}
