//! `kiln-split-concats`: a concatenation of several convolutions' results becomes a chain of pieces put into one tensor.
//!
//! Why: a kernel that computes a piece can write it where it belongs, but a concatenation is one op, which one of these kernels would take while it copies
//! what the others have stored. In a chain each piece is an op of its own, that `kiln-fuse` puts into the kernel of the piece. Pieces of convolutions come in
//! the order of the text, so that no kernel waits for one that waits for it; the others come behind, where a kernel of the chain copies them. A result that
//! several concatenations take is written into the first one. Upstream's destination passing does this for one `insert_slice` after the other within a
//! function, not across kernels.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %a = kiln.convolution …   %b = kiln.convolution …   %0 = kiln.concat %a, %b axis = 1
//! after:   %1 = kiln.place %a offsets = [0, 0, 0, 0] sizes = [1, 24, 9, 9]
//!          %0 = kiln.place %b into %1 offsets = [0, 8, 0, 0] sizes = [1, 24, 9, 9]
//! ```
use super::graph::{contracts, turns};
use crate::sizes::SizeValues;
use kiln_dialects::{
    ir::*,
    ops::{Concat, OpKind, Place, SymExpr, SymKind},
    rules::Level,
    sym::Dim,
};
use kiln_passes::{Failure, Numerics, Pass, refine_shapes::Facts};
use std::collections::HashSet;

kiln_passes::pass_options! {
    /// The pass.
    pub struct SplitConcats {
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

/// Most elementwise ops between a convolution and its piece.
const FAR: usize = 16;

impl Pass for SplitConcats {
    const FLAG: &'static str = "kiln-split-concats";
    const SUMMARY: &'static str = "Writes concatenations of several convolutions as pieces that their kernels put in place";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<(), Failure> {
        for func in walk(root).into_iter().filter(|o| o.is("func.func")) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let mut taken = HashSet::new();
            let found: Vec<(Op, Vec<bool>)> =
                block.ops().into_iter().filter_map(|op| Some((op, placed(&Concat::of(op)?, &mut taken)?))).collect();
            if found.is_empty() {
                continue;
            }
            let facts = Facts::of(func, self.rounds)?;
            for (op, placed) in found {
                split(block, &facts, op, &placed).map_err(|e| Failure::at(op, e))?;
            }
        }
        Ok(())
    }
}

/// The convolution that a value is the end of.
fn convolution(v: Value) -> Option<Op> {
    let (mut stack, mut seen) = (vec![v], HashSet::new());
    while let Some(op) = stack.pop().and_then(Value::def) {
        let made = turns(op).unwrap_or(op);
        if made.kind() == Some(OpKind::Convolution) && contracts(made) {
            return Some(made);
        }
        if op.kind().is_some_and(OpKind::is_elementwise) && seen.len() < FAR && seen.insert(op) {
            stack.extend(op.operands().into_iter().rev());
        }
    }
    None
}

/// Which of the pieces convolutions' kernels can put in place, if several can; these convolutions are then `taken`.
fn placed(o: &Concat, taken: &mut HashSet<Op>) -> Option<Vec<bool>> {
    let mut mine = HashSet::new();
    let empty = |v: &Value| v.ty().dims().iter().any(|d| d.known() == Some(0));
    let mut one = |v: &Value| convolution(*v).is_some_and(|c| !empty(v) && !taken.contains(&c) && mine.insert(c));
    let placed: Vec<bool> = o.inputs.iter().map(&mut one).collect();
    if mine.len() > 1 {
        taken.extend(mine);
        return Some(placed);
    }
    taken.extend(mine);
    None
}

fn split(block: Block, facts: &Facts, op: Op, placed: &[bool]) -> Result<(), String> {
    let o = Concat::of(op).ok_or("is malformed")?;
    let (axis, rank) = (o.axis as usize, op.result(0).ty().dims().len());
    let b = Builder::before(op).ok_or("is in no block")?;
    let mut values = SizeValues::of_host(block, facts, b, op);
    let (mut offset, mut pieces) = (Size::Static(0), vec![]);
    for (v, placed) in o.inputs.iter().zip(placed) {
        if v.ty().dims()[axis].known() != Some(0) {
            pieces.push((!placed, *v, offset));
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
    pieces.sort_by_key(|(copied, v, _)| (*copied, place_of(block, *v)));
    let mut whole = None;
    for (_, piece, at) in pieces {
        let mut offsets = vec![Size::Static(0); rank];
        offsets[axis] = at;
        whole = Some(b.at(op.loc()).add(&Place { piece, whole, offsets, sizes: sizes.clone() })?);
    }
    op.result(0).replace_uses(whole.ok_or("joins nothing")?);
    op.erase();
    Ok(())
}

/// Where a value is made, in the order of the text.
fn place_of(block: Block, v: Value) -> Option<usize> {
    block.ops().into_iter().position(|o| Some(o) == v.def())
}
