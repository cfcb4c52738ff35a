//! `kiln-rematerialize`: clones the pointwise producers of a reduction over leading dimensions that
//! other ops read too.
//!
//! Why: such a reduction has loops of its own, so that its operand, where others read it, would be
//! stored. The gradients of batch and layer norms would so store several f32 tensors of what they
//! compute from two or three narrow ones. The clones have one reader each, and `kiln-fuse` makes
//! them part of the reduction's kernel. Only what is in memory anyway is read again; an op that
//! costs more than a load is not computed twice. XLA duplicates producers into consumers at the same
//! point.
//!
//! Numerics: exact; a clone computes the same bits. What stays for other readers is marked
//! `kiln.rounded`, as its clones are.
//!
//! ```text
//! before:  %0 = kiln.sub %x, %m   %1 = kiln.reduce sum %0 dims = [0]   %2 = kiln.mul %0, %s   return %1, %2
//! after:   %c = kiln.sub %x, %m   %1 = kiln.reduce sum %c dims = [0]   %0 = kiln.sub %x, %m   …
//! ```
use crate::kernels::op_facts::{contracts, element_bytes, folding_op, heavy};
use kiln_dialects::{ir::*, ops::*, rules::Level, sym::known_product};
use kiln_passes::{Numerics, Pass, readers::widens, rounding};
use std::collections::{BTreeMap, HashMap, HashSet};

kiln_passes::pass_options! {
    /// The pass.
    pub struct Rematerialize {
        /// Most arithmetic ops that are cloned for a reduction
        pub ops: usize = 16,
        /// Most stored tensors of full size that the clones read
        pub reads: usize = 4,
        /// Least elements of the operand of a reduction
        pub min_elements: i64 = 65536,
    }
}

impl Pass for Rematerialize {
    const FLAG: &'static str = "kiln-rematerialize";
    const SUMMARY: &'static str = "Clones pointwise producers of reductions over leading dimensions, so that their kernels compute them";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let place: HashMap<Op, usize> = ops.iter().enumerate().map(|(i, o)| (*o, i)).collect();
            let returned = block.terminator().map(|end| end.operands()).unwrap_or_default();
            let returned: HashSet<Value> = returned.into_iter().collect();
            let mut cloned: BTreeMap<usize, Vec<Op>> = BTreeMap::new();
            for (op, reduce) in ops.iter().filter_map(|op| Some((*op, Reduce::of(*op)?))) {
                if !self.is_candidate(&reduce) {
                    continue;
                }
                let Some(mut producers) = self.producers(op, &place, &returned) else { continue };
                producers.sort_by_key(|p| place[p]);
                let clones = clone_before(op, &producers).at(op)?;
                if let Some(operand) = reduce.input.def().and_then(|o| clones.get(&o)) {
                    op.set_operand(0, operand.result(0));
                }
                clones.iter().for_each(|(o, copy)| cloned.entry(place[o]).or_default().push(*copy));
            }
            // What only reductions read is dead behind the last of them.
            for (i, clones) in cloned.into_iter().rev() {
                if ops[i].result(0).uses().is_empty() {
                    ops[i].erase();
                } else {
                    clones.into_iter().chain([ops[i]]).for_each(rounding::mark);
                }
            }
        }
        Ok(())
    }
}

impl Rematerialize {
    /// Whether a reduction has loops that its operand's other readers do not share.
    fn is_candidate(&self, o: &Reduce) -> bool {
        let dims = o.input.ty().dims();
        let wide = |d: &usize| dims[*d].known() != Some(1);
        let reduced = |d: &usize| o.dims.contains(&(*d as i64));
        let last = (0..dims.len()).rfind(wide);
        let count = known_product(&dims);
        last.is_some_and(|d| !reduced(&d)) && count.is_none_or(|n| n >= self.min_elements)
    }

    /// The ops that compute the operand of a reduction from stored values, if cloning them spares
    /// memory.
    fn producers(
        &self,
        reduce: Op,
        place: &HashMap<Op, usize>,
        returned: &HashSet<Value>,
    ) -> Option<Vec<Op>> {
        let mut e = Expression { place, returned, visits: 0, leaves: HashMap::new() };
        let leaves = e.leaves(reduce.operand(0))?;
        let (mut inner, mut waiting) = (vec![], vec![reduce.operand(0)]);
        while let Some(v) = waiting.pop() {
            let Some(op) = v.def().filter(|o| e.is_inner(v) && !inner.contains(o)) else {
                continue;
            };
            inner.push(op);
            if op.kind() != Some(OpKind::BroadcastInDim) {
                waiting.extend(op.operands());
            }
        }
        let arithmetic = |o: &&Op| o.kind().is_some_and(OpKind::is_arithmetic);
        if inner.iter().filter(arithmetic).count() > self.ops || leaves.len() > self.reads {
            return None;
        }
        let shared = inner.iter().filter(|o| arithmetic(o) && is_shared(**o, reduce, &inner));
        let stored: usize = shared.map(|o| element_bytes(o.result(0))).sum();
        let read: usize = leaves.into_iter().map(element_bytes).sum();
        (stored > 0 && read <= 2 * stored).then_some(inner)
    }
}

/// Most values of an expression that are looked at, which bounds the recursion.
const MOST_VISITS: usize = 256;

/// The expression that computes an operand, down to values in memory.
struct Expression<'a> {
    place: &'a HashMap<Op, usize>,
    returned: &'a HashSet<Value>,
    /// How many values have been looked at.
    visits: usize,
    /// The stored values of full size below each value that has been looked at.
    leaves: HashMap<Value, HashSet<Value>>,
}

impl Expression<'_> {
    /// The stored values of full size that a value is computed from; none if one of them may be no
    /// more than a register of its kernel, or if there are too many.
    fn leaves(&mut self, v: Value) -> Option<HashSet<Value>> {
        if let Some(known) = self.leaves.get(&v) {
            return Some(known.clone());
        }
        self.visits += 1;
        if self.visits > MOST_VISITS {
            return None;
        }
        let op = v.def().filter(|op| !self.returned.contains(&v) && self.place.contains_key(op));
        let all = match op {
            None => HashSet::from([v]),
            Some(op) if op.kind() == Some(OpKind::BroadcastInDim) => HashSet::new(),
            // The kernel of what it narrows stores the narrow value.
            Some(op) if narrows(op) && op.operand(0).def().is_some_and(|o| !is_clonable(o)) => {
                let (stored, many) = (op.operand(0).def().is_some_and(is_stored), readers(v) > 1);
                (stored || many).then(|| HashSet::from([v]))?
            }
            // Its contraction stores it in this order.
            Some(op) if folding_op(op).is_some() => is_reduced(v).then(|| HashSet::from([v]))?,
            Some(op) if is_clonable(op) => {
                let operands = op.operands().into_iter();
                let all = operands.map(|o| self.leaves(o)).collect::<Option<Vec<_>>>();
                let all: Option<HashSet<Value>> =
                    all.map(|all| all.into_iter().flatten().collect());
                let many = readers(v) > 1 && !widens(op);
                match all {
                    Some(all) if many && is_cheaper_to_read(v, &all) => HashSet::from([v]),
                    Some(all) => all,
                    // An epilogue's narrow result is stored for its readers.
                    None => (many && element_bytes(v) == 2).then(|| HashSet::from([v]))?,
                }
            }
            Some(op) => (is_stored(op) || is_reduced(v)).then(|| HashSet::from([v]))?,
        };
        self.leaves.insert(v, all.clone());
        Some(all)
    }

    /// Whether a value that has been looked at is computed by the expression.
    fn is_inner(&self, v: Value) -> bool {
        self.leaves.get(&v).is_some_and(|all| !all.contains(&v))
    }
}

/// Whether a value that has several readers is stored for them: computing it again reads more.
fn is_cheaper_to_read(v: Value, leaves: &HashSet<Value>) -> bool {
    leaves.iter().copied().map(element_bytes).sum::<usize>() > 2 * element_bytes(v)
}

/// How many ops read a value, of which those that only widen it do not count, but their readers.
fn readers(v: Value) -> usize {
    let of = |user: Op| if widens(user) { user.result(0).uses().len() } else { 1 };
    v.uses().iter().map(|(user, _)| of(*user)).sum()
}

/// Whether others than the ops `inner` and the reduction read an op's value, which fusion would
/// store. It does not store values that only widen others.
fn is_shared(op: Op, reduce: Op, inner: &[Op]) -> bool {
    let outside = |user: Op| user != reduce && !inner.contains(&user);
    let is_read = |v: Value| v.uses().iter().any(|(user, _)| outside(*user));
    let widened = |user: Op| widens(user) && is_read(user.result(0));
    let v = op.result(0);
    !widens(op)
        && (is_read(v) || v.uses().iter().any(|(user, _)| inner.contains(user) && widened(*user)))
}

/// Ops that cost less than a load, and have no operand but tensors.
fn is_clonable(op: Op) -> bool {
    use OpKind::*;
    let Some(kind) = op.kind() else { return false };
    (kind.is_arithmetic() || matches!(kind, BroadcastInDim | Splat | Transpose)) && !heavy(op)
}

/// Whether a value is in memory, whatever reads it: arguments, reductions and whole-tensor ops; the
/// result of a contraction may exist in its epilogue only.
fn is_stored(op: Op) -> bool {
    use OpKind::*;
    !contracts(op)
        && op.kind().is_some_and(|kind| {
            matches!(kind, GetGlobal | Constant | Reduce | Concat | Pad | ReduceWindow | Reshape)
        })
}

/// Whether a reduction reads a value as it is, but for its width: no epilogue computes reductions.
fn is_reduced(v: Value) -> bool {
    let mut users = v.uses().into_iter().map(|(user, _)| user);
    users.any(|user| {
        user.kind() == Some(OpKind::Reduce) || widens(user) && is_reduced(user.result(0))
    })
}

fn narrows(op: Op) -> bool {
    op.kind() == Some(OpKind::Convert) && element_bytes(op.operand(0)) > element_bytes(op.result(0))
}

/// Clones ops in front of another one.
fn clone_before(op: Op, producers: &[Op]) -> Result<HashMap<Op, Op>> {
    let b = Builder::before(op).ok_or_at(op, "is in no block")?;
    let mut clones: HashMap<Op, Op> = HashMap::new();
    for producer in producers {
        let of = |v: Value| v.def().and_then(|o| clones.get(&o)).map_or(v, |copy| copy.result(0));
        let copy = b.at(producer.loc()).clone_op(*producer, &of)?;
        clones.insert(*producer, copy);
    }
    Ok(clones)
}
