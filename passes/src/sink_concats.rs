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
    slices::{SliceSpec, is_materialised, is_view},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
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
    /// The input at this offset of a concatenation with the same boundaries.
    fn input_of(&self, v: Value, offset: i64) -> Option<Value> {
        let (own, o) = ConcatSplit::of(v).filter(|(own, _)| own == self)?;
        let starts = |i: &usize| own.sizes[..*i].iter().sum::<i64>() == offset;
        o.inputs.get((0..own.sizes.len()).find(starts)?).copied()
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
            let (mut inputs, mut offset) = (vec![], 0);
            for size in &cut.sizes {
                let rank = op.result(0).ty().dims().len();
                let slice = SliceSpec::along(cut.axis, offset, *size, rank);
                inputs.push(slice.of_elementwise(&b, op, &|v| cut.input_of(v, offset)).at(op)?);
                offset += size;
            }
            let joined = b.add(&Concat { inputs, axis: cut.axis as i64 }).at(op)?;
            op.result(0).replace_uses(joined);
            let read = op.operands();
            op.erase();
            // Dead ops no longer count as users.
            erase_dead(read, |kind| kind.is_elementwise() || is_view(kind));
        }
        Ok(())
    }
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
                c == cut && o.inputs.iter().all(|p| is_materialised(*p, self.depth))
            })
        };
        let others = op.operands().into_iter().all(|v| same(v) || is_materialised(v, self.depth));
        (contiguous && few_inputs && others).then_some(cut)
    }
}
