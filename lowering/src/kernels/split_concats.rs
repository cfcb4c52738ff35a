//! `kiln-split-concats`: rewrites a concatenation of several kernels' results as a chain of
//! `kiln.insert_slice` into one tensor (destination-passing style).
//!
//! Why: a kernel can write its slice directly into the destination. A concatenation is one op,
//! which would join one of these kernels and copy what the others have stored. In a chain each
//! slice is an op of its own, which `kiln-fuse` joins to the kernel of that slice. Slices computed
//! by products, convolutions, pools, attentions and reductions come in program order, so that the
//! kernel graph stays acyclic. The others come after them, copied by a kernel of the chain. A
//! result that several concatenations read is written into the first one. Upstream's destination
//! passing handles one `insert_slice` at a time within a function, not across kernels.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %a = kiln.convolution …   %b = kiln.convolution …   %0 = kiln.concat %a, %b axis = 1
//! after:   %1 = kiln.insert_slice %a offsets = [0, 0, 0, 0] sizes = [1, 24, 9, 9]
//!          %0 = kiln.insert_slice %b into %1 offsets = [0, 8, 0, 0] sizes = [1, 24, 9, 9]
//! ```
use crate::{
    analysis::sizes::SizeValues,
    kernels::{
        fuse::insert_slice::MOST_COPIED,
        op_facts::{contracts, folding_op},
    },
};
use kiln_dialects::{
    ir::*,
    ops::{Concat, InsertSlice, OpKind, SymExpr, SymKind},
    rules::Level,
    sym::Dim,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};
use std::collections::HashSet;

kiln_passes::pass_options! {
    /// The pass.
    pub struct SplitConcats {
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

/// Most ops between a slice and the op whose kernel computes it.
const MAX_DISTANCE: usize = 16;

impl Pass for SplitConcats {
    const FLAG: &'static str = "kiln-split-concats";
    const SUMMARY: &'static str =
        "Replaces concatenations by insert_slice ops, so that producers write into the result";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let mut taken = HashSet::new();
            let found: Vec<(Op, Vec<bool>)> = block
                .ops()
                .into_iter()
                .filter_map(|op| Some((op, insertable(&Concat::of(op)?, &mut taken)?)))
                .collect();
            if found.is_empty() {
                continue;
            }
            let facts = Facts::of(func, self.rounds)?;
            // In reverse, since each entry refers to values that existed before any rewrite.
            for (op, insertable) in found.into_iter().rev() {
                split(block, &facts, op, &insertable).at(op)?;
            }
        }
        Ok(())
    }
}

/// The op in whose kernel a value would be computed.
fn producer(v: Value) -> Option<Op> {
    use OpKind::{
        Attention, BroadcastInDim, Convolution, DotGeneral, Reduce, ReduceWindow, Reshape,
    };
    let (mut stack, mut seen) = (vec![v], HashSet::new());
    while let Some(v) = stack.pop() {
        let Some(op) = v.def() else { continue };
        let made = folding_op(op).unwrap_or(op);
        match made.kind() {
            Some(Convolution) if contracts(made) => return Some(made),
            Some(DotGeneral | ReduceWindow | Attention | Reduce) => return Some(made),
            Some(kind)
                if (kind.is_elementwise() || matches!(kind, BroadcastInDim | Reshape))
                    && seen.len() < MAX_DISTANCE
                    && seen.insert(op) =>
            {
                stack.extend(op.operands().into_iter().rev());
            }
            _ => {}
        }
    }
    None
}

/// Which of the operands their kernels can insert in place, if splitting pays; adds the ops that
/// compute them to `taken`.
fn insertable(o: &Concat, taken: &mut HashSet<Op>) -> Option<Vec<bool>> {
    let mut mine = HashSet::new();
    let empty = |v: &Value| v.ty().dims().iter().any(|d| d.known() == Some(0));
    let mut one = |v: &Value| {
        producer(*v).is_some_and(|c| !empty(v) && !taken.contains(&c) && mine.insert(c))
    };
    let insertable: Vec<bool> = o.inputs.iter().map(&mut one).collect();
    // No split for a single kernel with elementwise loops if little else is copied: it writes the
    // rest as well.
    let rows = |op: &Op| matches!(op.kind(), Some(OpKind::Reduce | OpKind::Attention));
    let count = |own: bool| {
        o.inputs
            .iter()
            .zip(&insertable)
            .filter(|(_, p)| **p == own)
            .map(|(v, _)| elements(*v))
            .fold(0, i64::saturating_add)
    };
    let pieces = o.inputs.iter().filter(|v| !empty(v)).count();
    let alone = mine.iter().any(rows) || count(false) > count(true).saturating_mul(MOST_COPIED);
    let split = mine.len() > 1 || pieces > 1 && !mine.is_empty() && alone;
    taken.extend(mine);
    split.then_some(insertable)
}

/// Number of elements, with 128 for a dynamic size.
fn elements(v: Value) -> i64 {
    v.ty().dims().iter().fold(1, |n, d| n.saturating_mul(d.known().unwrap_or(128)))
}

fn split(block: Block, facts: &Facts, op: Op, insertable: &[bool]) -> Result<()> {
    let o = Concat::of(op).ok_or_malformed(op)?;
    let (axis, rank) = (o.axis as usize, op.result(0).ty().dims().len());
    let b = Builder::before(op).ok_or("is in no block")?;
    let mut values = SizeValues::of_host(block, facts, b, op);
    let (mut offset, mut pieces) = (Size::Static(0), vec![]);
    for (v, insertable) in o.inputs.iter().zip(insertable) {
        if v.ty().dims()[axis].known() != Some(0) {
            pieces.push((!insertable, *v, offset));
        }
        offset = match (offset, values.size(*v, axis)?) {
            (Size::Static(a), Size::Static(n)) => Size::Static(a + n),
            (Size::Static(0), n) => n,
            (a, n) => {
                let ssa = |s: Size| match s {
                    Size::Static(n) => b.index(n),
                    Size::Dynamic(v) => Ok(v),
                };
                let sum = SymExpr { kind: SymKind::Add, lhs: ssa(a)?, rhs: ssa(n)? };
                Size::Dynamic(b.create_with(&sum, &[Type::index(b.ctx)], &mut [])?.result(0))
            }
        };
    }
    let first = *o.inputs.first().ok_or("joins nothing")?;
    let own = op.result(0).ty().dims();
    let size = |(d, own): (usize, &Dim)| match own.known() {
        Some(n) => Ok(Size::Static(n)),
        None if d == axis => Ok(offset),
        None => values.size(first, d),
    };
    let sizes: Vec<Size> = own.iter().enumerate().map(size).collect::<Result<_, _>>()?;
    pieces.sort_by_key(|(copied, v, _)| (*copied, position(block, *v)));
    let mut whole = None;
    for (_, piece, at) in pieces {
        let mut offsets = vec![Size::Static(0); rank];
        offsets[axis] = at;
        whole = Some(b.at(op.loc()).add(&InsertSlice {
            source: piece,
            dest: whole,
            start: None,
            axis: None,
            offsets,
            sizes: sizes.clone(),
        })?);
    }
    op.result(0).replace_uses(whole.ok_or("joins nothing")?);
    op.erase();
    Ok(())
}

/// The position of a value's op in program order.
fn position(block: Block, v: Value) -> Option<usize> {
    block.ops().into_iter().position(|o| Some(o) == v.def())
}
