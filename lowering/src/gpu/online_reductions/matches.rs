//! Matches two reductions over the same rows, where the second subtracts a per-row value from each
//! element.
use kiln_dialects::ir::*;
use std::collections::HashMap;

/// The kind of the two reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The maximum of x, and the sum of exp(x - c) (online softmax).
    Exponential,
    /// The sum of x, and the sum of (x - c)^2 (variance).
    Square,
}

/// A pair of reductions that can be fused.
pub struct Pair {
    /// What the pair computes.
    pub kind: Kind,
    /// The first reduction: the maximum, or the sum of the elements.
    pub first: Op,
    /// The second reduction: the sum over the shifted elements.
    pub second: Op,
    /// The element, an SSA value of the first reduction's body.
    pub element: Value,
    /// The shift c: a value in the body of that op.
    pub shift: (Op, Value),
    /// The parallel loops, in the order of the results' dimensions.
    pub row: Vec<usize>,
}

/// A tensor with one element per row.
pub struct Leaf {
    /// Its block argument.
    pub value: Value,
    /// The tensor.
    pub tensor: Value,
    /// The result dimensions that index it.
    pub dims: Vec<usize>,
}

/// The body of a `linalg.generic`.
pub fn block(op: Op) -> Option<Block> {
    op.regions().first().and_then(|r| r.first()).filter(|_| op.isa::<linalg::Generic>())
}

/// For each loop of a generic, whether its iterator type is parallel.
pub fn parallel(op: Op) -> Vec<bool> {
    let kinds = op.dyn_cast::<linalg::Generic>().and_then(|op| op.iterator_types());
    kinds.unwrap_or_default().iter().map(|k| *k == IteratorType::Parallel).collect()
}

/// Whether a generic is elementwise: one result, all loops parallel, identity output map.
pub fn elementwise(op: Op) -> bool {
    let identity = || {
        plain(op, op.operand_count() - 1)
            .is_some_and(|dims| dims == (0..parallel(op).len()).collect::<Vec<_>>())
    };
    block(op).is_some() && op.result_count() == 1 && parallel(op).iter().all(|p| *p) && identity()
}

/// The loops that index an operand, if every result of its indexing map is a dimension.
fn plain(op: Op, operand: usize) -> Option<Vec<usize>> {
    let maps = op.attr("indexing_maps")?.as_array()?;
    let (_, results) = maps.get(operand)?.as_affine_map()?;
    results.iter().map(Affine::as_dim).collect()
}

/// The first fusible pair of reductions in a kernel.
pub fn find(func: Op) -> Option<Pair> {
    let ops = func.regions().first()?.first()?.ops();
    let all: Vec<(Op, Op, Value)> =
        ops.iter().filter_map(|op| reduction(*op).map(|(step, x)| (*op, step, x))).collect();
    for (i, (first, step, element)) in all.iter().enumerate() {
        for (second, other, x) in &all[i + 1..] {
            let same = parallel(*first) == parallel(*second)
                && first.result(0).ty() == second.result(0).ty();
            if !same || !other.isa::<arith::AddF>() {
                continue;
            }
            let row = plain(*first, first.operand_count() - 1)
                .filter(|row| Some(row) == plain(*second, second.operand_count() - 1).as_ref());
            let Some(row) = row else { continue };
            let Some((kind, (at, whole), shift)) = shifted(step, *second, *x) else { continue };
            let pair = Pair {
                kind,
                first: *first,
                second: *second,
                element: *element,
                shift: (at, shift),
                row,
            };
            let starts = starts(*first, if kind == Kind::Square { 0.0 } else { f64::NEG_INFINITY })
                && starts(*second, 0.0);
            if starts
                && equal((*first, *element), (at, whole))
                && pair.shift_leaves(&pair.row, *element, *element).is_ok()
            {
                return Some(pair);
            }
        }
    }
    None
}

/// The combiner of a reduction and its other operand, besides the accumulator.
fn reduction(op: Op) -> Option<(Op, Value)> {
    let body = block(op).filter(|_| op.result_count() == 1 && parallel(op).contains(&false))?;
    let (running, step) = (*body.args().last()?, body.terminator()?.operand(0).def()?);
    let wide = step.result(0).ty().dtype().is_ok_and(|d| d.is_float() && d.byte_size() >= 4);
    let known = step.isa::<arith::MaximumF>() || step.isa::<arith::AddF>();
    let x = (0..2).find(|i| known && step.operand(*i) == running).map(|i| step.operand(1 - i))?;
    (wide && step.block() == Some(body) && x != running && running.uses().len() == 1)
        .then_some((step, x))
}

/// Whether a reduction's initial value is this number.
fn starts(op: Op, number: f64) -> bool {
    let fill = op.operand(op.operand_count() - 1).def_as::<linalg::Fill>();
    let scalar =
        fill.and_then(|f| f.operand(0).def()).and_then(|d| d.attr("value")).and_then(Attr::as_f64);
    scalar == Some(number)
}

/// The added term as a function of x - c: its kind, x, and c, each with the generic whose body it
/// is in.
fn shifted(step: &Op, second: Op, added: Value) -> Option<(Kind, (Op, Value), Value)> {
    let (at, v) = resolve(second, added);
    let op = v.def().filter(|d| d.block().is_some() && d.block() == block(at))?;
    let (kind, difference) = if step.isa::<arith::MaximumF>() && op.isa::<math::Exp>() {
        (Kind::Exponential, op.operand(0))
    } else if step.isa::<arith::AddF>() && op.isa::<arith::MulF>() && op.operand(0) == op.operand(1)
    {
        (Kind::Square, op.operand(0))
    } else {
        return None;
    };
    let (inner, difference) = resolve(at, difference);
    let difference =
        difference.def().filter(|d| d.isa::<arith::SubF>() && d.block() == block(inner))?;
    Some((kind, (inner, difference.operand(0)), difference.operand(1)))
}

/// Traces a value through elementwise generics that a body reads at its own iteration.
fn resolve(mut at: Op, mut v: Value) -> (Op, Value) {
    while let Some(i) = v.block_arg().filter(|(b, _)| Some(*b) == block(at)).map(|(_, i)| i) {
        let whole =
            plain(at, i).is_some_and(|dims| dims == (0..parallel(at).len()).collect::<Vec<_>>());
        let source = if i < at.operand_count() { at.operand(i).def() } else { None };
        let Some(source) = source.filter(|s| whole && elementwise(*s)) else { break };
        let Some(end) = block(source).and_then(Block::terminator) else { break };
        (at, v) = (source, end.operand(0));
    }
    (at, v)
}

/// Whether two values in bodies over the same loops are the same computation on the same elements.
fn equal(a: (Op, Value), b: (Op, Value)) -> bool {
    let ((at, v), (other, w)) = (resolve(a.0, a.1), resolve(b.0, b.1));
    let map = |op: Op, i: usize| {
        op.attr("indexing_maps").and_then(|m| m.as_array()).and_then(|m| m.get(i).copied())
    };
    match (
        v.block_arg().filter(|(b, _)| Some(*b) == block(at)),
        w.block_arg().filter(|(b, _)| Some(*b) == block(other)),
    ) {
        (Some((_, i)), Some((_, j))) => {
            at.operand(i) == other.operand(j) && map(at, i) == map(other, j)
        }
        (None, None) => {
            let (Some(x), Some(y)) = (v.def(), w.def()) else { return v == w };
            let inside = x.block() == block(at) && y.block() == block(other);
            if !inside {
                return v == w;
            }
            let plain = x.regions().is_empty()
                && x.result_count() == 1
                && x.operand_count() == y.operand_count();
            plain
                && x.name() == y.name()
                && x.attrs() == y.attrs()
                && (0..x.operand_count()).all(|i| equal((at, x.operand(i)), (other, y.operand(i))))
        }
        _ => false,
    }
}

impl Pair {
    /// The per-row tensors that the shift is computed from, with `old` replaced by `new`.
    pub fn shift_leaves(&self, row: &[usize], old: Value, new: Value) -> Result<Vec<Leaf>> {
        let (at, root) = self.shift;
        let (mut all, mut next) = (vec![], vec![root]);
        while let Some(v) = next.pop() {
            if let Some((_, i)) = v.block_arg().filter(|(b, _)| Some(*b) == block(at)) {
                let dims = plain(at, i).ok_or("is indexed by more than its row")?;
                let place = |d: &usize| {
                    row.iter().position(|r| r == d).ok_or("is not the same for the whole row")
                };
                let dims = dims.iter().map(place).collect::<Result<_, _>>()?;
                let tensor = at.operand(i);
                all.push(Leaf { value: v, tensor: if tensor == old { new } else { tensor }, dims });
            } else if let Some(op) = v.def().filter(|d| d.block() == block(at)) {
                if op.isa::<linalg::Index>()
                    || op.isa::<tensor::Extract>()
                    || !op.regions().is_empty()
                {
                    return Err("is no arithmetic of the row".into());
                }
                next.extend(op.operands());
            }
        }
        Ok(all)
    }
}

/// Clones a value of a generic's body, with its backward slice, into another body. `known`: values
/// cloned already.
pub fn copied(b: Builder, at: Op, v: Value, known: &mut HashMap<Value, Value>) -> Result<Value> {
    if let Some(new) = known.get(&v) {
        return Ok(*new);
    }
    let Some(op) = v.def().filter(|d| d.block() == block(at)) else {
        return if v.block_arg().is_some_and(|(b, _)| Some(b) == block(at)) {
            Err("reads a buffer that is not there".into())
        } else {
            Ok(v)
        };
    };
    let operands = op
        .operands()
        .into_iter()
        .map(|o| copied(b, at, o, known))
        .collect::<Result<Vec<_>, _>>()?;
    let copy = b
        .at(op.loc())
        .clone_op(op, &|o| op.operands().iter().position(|x| *x == o).map_or(o, |i| operands[i]))?;
    known.insert(v, copy.result(0));
    Ok(copy.result(0))
}
