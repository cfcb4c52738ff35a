//! `kiln-sink-concats`: sinks a concatenation below elementwise ops and transposes that read it.
//!
//! Why: a concatenation ends fusion: its readers run in another kernel, with the tensor in memory
//! between them. Below the elementwise ops it becomes their stores, so a rotary embedding, `x cos +
//! concat(-x[n/2:], x[:n/2]) sin`, is one kernel instead of two. It applies only to concatenations
//! of slices of materialised tensors or of elementwise ops on them: a matmul or reduction as input
//! would lose its epilogue. Below a transpose only those of products and attentions go, which
//! store transposed results: derivatives by queries, keys and values are stacked and transposed to
//! rows of one tensor. Upstream has no such pass.
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
    const SUMMARY: &'static str =
        "Sinks concatenations below the elementwise ops and transposes that read them";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        // Program order, so that a concatenation sinks below several ops.
        for op in walk(root) {
            if let Some(t) = TransposedConcat::of(op) {
                let joined = t.sink(op).at(op)?;
                op.result(0).replace_uses(joined);
                let read = op.operands();
                op.erase();
                erase_dead(read, is_view);
                continue;
            }
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

/// A transpose of a concatenation of results that their kernels can store transposed.
struct TransposedConcat {
    /// The results, and whether each lacks the axis, along which it has one row then.
    inputs: Vec<(Value, bool)>,
    axis: usize,
    permutation: Vec<usize>,
}

impl TransposedConcat {
    fn of(op: Op) -> Option<TransposedConcat> {
        let t = Transpose::of(op)?;
        let o = t.input.def().and_then(Concat::of).filter(|_| t.input.uses().len() == 1)?;
        let axis = o.axis as usize;
        let all = o.inputs.iter().map(|v| {
            let stacked = v.def().and_then(Reshape::of).filter(|r| inserts_axis(r, axis));
            let v = stacked.as_ref().map_or(*v, |r| r.input);
            let stores = matches!(
                v.def()?.kind()?,
                OpKind::DotGeneral | OpKind::Attention | OpKind::AttentionGradient
            );
            (stores && v.uses().len() == 1).then_some((v, stacked.is_some()))
        });
        let permutation = t.permutation.iter().map(|d| *d as usize).collect();
        Some(TransposedConcat { inputs: all.collect::<Option<_>>()?, axis, permutation })
    }
    /// The concatenation of transposes, before the op.
    fn sink(&self, op: Op) -> Result<Value> {
        let b = Builder::before(op).ok_or("is in no block")?.at(op.loc());
        let axis = self.permutation.iter().position(|d| *d == self.axis);
        let axis = axis.ok_or("has a permutation without an axis")?;
        let one = |(input, stacked): &(Value, bool)| {
            let without = |d: &usize| if *d > self.axis { *d - 1 } else { *d };
            let permutation = match stacked {
                true => self.permutation.iter().filter(|d| **d != self.axis).map(without).collect(),
                false => self.permutation.clone(),
            };
            let permutation = permutation.into_iter().map(|d| d as i64).collect();
            let t = b.add(&Transpose { input: *input, permutation })?;
            if !stacked {
                return Ok(t);
            }
            let mut sizes: Vec<Size> = known_sizes(t).ok_or("has an unknown size")?;
            sizes.insert(axis, Size::Static(1));
            b.add(&Reshape { input: t, sizes })
        };
        let inputs = self.inputs.iter().map(one).collect::<Result<_>>()?;
        b.add(&Concat { inputs, axis: axis as i64 })
    }
}

fn known_sizes(v: Value) -> Option<Vec<Size>> {
    v.ty().dims().iter().map(|d| Some(Size::Static(d.known()?))).collect()
}

/// Whether a reshape only inserts a dimension of one row, of static sizes.
fn inserts_axis(r: &Reshape, axis: usize) -> bool {
    let (Some(mut sizes), true) = (known_sizes(r.input), axis <= r.input.ty().dims().len()) else {
        return false;
    };
    sizes.insert(axis, Size::Static(1));
    sizes == r.sizes
}
