//! `kiln-sink-concats`: sinks a concatenation below the elementwise ops that read it.
//!
//! Why: a concatenation ends fusion: its readers run in another kernel, with the tensor in memory
//! between them. Below the elementwise ops it becomes their stores, so a rotary embedding, `x cos +
//! concat(-x[n/2:], x[:n/2]) sin`, is one kernel instead of two. It applies only to concatenations
//! of slices of materialised tensors or of elementwise ops on them: a matmul or reduction as input
//! would lose its epilogue. Upstream has no such pass.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %c = kiln.concat %a, %b axis = 0   %0 = kiln.mul %c, %s : tensor<64xf32>
//! after:   %s0 = kiln.slice %s offsets = [0] sizes = [32] …   %m0 = kiln.mul %a, %s0   %m1 = kiln.mul %b, %s1   %0 = kiln.concat %m0, %m1 axis = 0
//! ```
use crate::{
    pass::{Numerics, Pass},
    readers::erase_dead,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
};

crate::pass_options! {
    /// The pass.
    pub struct SinkConcats {
        /// Most inputs of a concatenation
        pub max_inputs: usize = 4,
        /// Least contiguous elements per input
        pub min_contiguous: i64 = 8,
        /// Most elementwise and movement ops in a chain
        pub depth: usize = 16,
    }
}

/// The boundaries of a concatenation's inputs along its axis.
#[derive(Clone, PartialEq)]
struct ConcatSplit {
    axis: usize,
    sizes: Vec<i64>,
}

impl ConcatSplit {
    /// The boundaries, if sizes are static and the concatenation has one user.
    fn of(v: Value) -> Option<(ConcatSplit, Concat)> {
        let o = v.def().and_then(Concat::of)?;
        let axis = o.axis as usize;
        let sizes = o
            .inputs
            .iter()
            .map(|p| p.ty().dims().get(axis)?.known().filter(|n| *n > 0))
            .collect::<Option<_>>()?;
        (v.uses().len() == 1).then_some((ConcatSplit { axis, sizes }, o))
    }
}

impl Pass for SinkConcats {
    const FLAG: &'static str = "kiln-sink-concats";
    const SUMMARY: &'static str = "Sinks concatenations below the elementwise ops that read them";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        // Program order, so that a concatenation sinks below several ops.
        for op in walk(root) {
            let Some(cut) = self.cut(op) else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
            let (mut max_inputs, mut offset) = (vec![], 0);
            for size in &cut.sizes {
                max_inputs.push(self.clone_slice(&b, op, &cut, (offset, *size)).at(op)?);
                offset += size;
            }
            let joined = b.add(&Concat { inputs: max_inputs, axis: cut.axis as i64 }).at(op)?;
            op.result(0).replace_uses(joined);
            let read = op.operands();
            op.erase();
            // Dead ops no longer count as users.
            erase_dead(read, |kind| kind.is_elementwise() || is_view(kind));
        }
        Ok(())
    }
}

/// Ops that only change indexing.
fn is_view(kind: OpKind) -> bool {
    use OpKind::{BroadcastInDim, Concat, Reshape, Slice, Splat, Transpose};
    matches!(kind, BroadcastInDim | Concat | Reshape | Slice | Splat | Transpose)
}

impl SinkConcats {
    /// The boundaries at which to split an elementwise op: those of its first concatenation, if
    /// every other operand can be split there.
    fn cut(&self, op: Op) -> Option<ConcatSplit> {
        op.kind().filter(|k| k.is_arithmetic())?;
        let (cut, o) = op.operands().into_iter().find_map(ConcatSplit::of)?;
        let few_inputs = o.inputs.len() <= self.max_inputs;
        let dims = op.result(0).ty().dims();
        let inner = dims
            .get(cut.axis + 1..)?
            .iter()
            .map(|d| d.known().unwrap_or(self.min_contiguous))
            .fold(1i64, i64::saturating_mul);
        let contiguous = cut.sizes.iter().all(|n| n.saturating_mul(inner) >= self.min_contiguous);
        let same = |v: Value| {
            ConcatSplit::of(v).is_some_and(|(c, o)| {
                c == cut && o.inputs.iter().all(|p| self.is_materialised(*p, self.depth))
            })
        };
        let others =
            op.operands().into_iter().all(|v| same(v) || self.is_materialised(v, self.depth));
        (contiguous && few_inputs && others).then_some(cut)
    }
    /// Whether a value is materialised anyway, or is elementwise in such values.
    fn is_materialised(&self, v: Value, depth: usize) -> bool {
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
                .all(|o| self.is_materialised(o, depth - 1))
    }
    /// Clones the op for one slice of its operands.
    fn clone_slice(&self, b: &Builder, op: Op, cut: &ConcatSplit, at: (i64, i64)) -> Result<Value> {
        let operands = op.operands();
        let parts = operands
            .iter()
            .map(|v| self.slice_of(b, *v, cut, at))
            .collect::<Result<Vec<_>, _>>()?;
        let copy = b
            .at(op.loc())
            .clone_op(op, &|o| operands.iter().position(|x| *x == o).map_or(o, |i| parts[i]))?;
        let dtype = tensor_type(op.result(0).ty())?.dtype;
        let dims = parts.first().ok_or("reads nothing")?.ty().dims();
        copy.result(0).set_ty(Type::tensor(b.ctx, dtype, &dims));
        Ok(copy.result(0))
    }
    /// A slice of a value along the axis.
    fn slice_of(
        &self,
        b: &Builder,
        v: Value,
        cut: &ConcatSplit,
        (offset, size): (i64, i64),
    ) -> Result<Value> {
        let axis = cut.axis;
        if let Some((own, o)) = ConcatSplit::of(v).filter(|(own, _)| own == cut) {
            let input_number =
                (0..own.sizes.len()).find(|i| own.sizes[..*i].iter().sum::<i64>() == offset);
            return input_number
                .and_then(|i| o.inputs.get(i).copied())
                .ok_or_else(|| "has no input at this offset".into());
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
                // A broadcast along the axis shrinks to the slice.
                let own = o
                    .dims
                    .iter()
                    .position(|d| *d == axis as i64)
                    .filter(|i| o.input.ty().dims()[*i].known() != Some(1));
                let input = own.map_or(Ok(o.input), |i| slice(b, o.input, i, offset, size))?;
                return b.add(&BroadcastInDim { input, sizes, ..o });
            }
            if op.kind().is_some_and(OpKind::is_arithmetic) && v.uses().len() == 1 {
                return self.clone_slice(b, op, cut, (offset, size));
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
