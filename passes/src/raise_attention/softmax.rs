//! A softmax over the last dimension, as one op or written out.
use crate::simplify::splats::is_number;
use kiln_dialects::{ir::*, ops::*};

/// A softmax over the last dimension.
#[derive(Clone, Debug)]
pub(super) struct Softmax {
    pub(super) input: Value,
    pub(super) result: Value,
    /// Its ops.
    pub(super) ops: Vec<Op>,
    /// Whether rows of -inf only are 0, as with torch's `_safe_softmax`.
    pub(super) safe: bool,
}

impl Softmax {
    /// `kiln.softmax`, or the quotient of `exp(x - max x)` and its sum.
    pub(super) fn of(op: Op) -> Option<Softmax> {
        let result = || op.result(0);
        if let Some(o) = kiln_dialects::ops::Softmax::of(op) {
            let last = o.axis + 1 == o.input.ty().dims().len() as i64;
            let plain = Softmax { input: o.input, result: result(), ops: vec![op], safe: o.safe };
            return last.then(|| if o.safe { None } else { safe(&plain) }.unwrap_or(plain));
        }
        let quotient = Div::of(op)?;
        let exp = quotient.lhs.def().filter(|o| o.kind() == Some(OpKind::Exp))?;
        let (summed, mut ops) = of_row(quotient.rhs, ReduceKind::Sum)?;
        let difference = exp.operand(0).def()?;
        let o = Sub::of(difference).filter(|_| summed == quotient.lhs)?;
        let (most, more) = of_row(o.rhs, ReduceKind::Max)?;
        ops.extend(more.into_iter().chain([difference, exp, op]));
        (most == o.lhs).then(|| Softmax { input: o.lhs, result: result(), ops, safe: false })
    }
}

/// The same with 0 in rows of -inf only: `!any(x != -inf) ? 0 : softmax`.
fn safe(plain: &Softmax) -> Option<Softmax> {
    let readers = plain.result.uses();
    let select = readers.iter().map(|(op, _)| *op).find(|op| op.kind() == Some(OpKind::Select))?;
    let o = Select::of(select).filter(|o| is_number(o.on_true, 0.0))?;
    let (mut ops, mut v, mut inverted) = (plain.ops.clone(), o.condition, false);
    let any = loop {
        let op = v.def()?;
        ops.push(op);
        match op.kind()? {
            OpKind::Not => inverted = !inverted,
            OpKind::Reduce => break Reduce::of(op)?,
            OpKind::BroadcastInDim => {
                let dims = BroadcastInDim::of(op)?.dims;
                dims.iter().copied().eq(0..dims.len() as i64).then_some(())?;
            }
            // Of rows, which a reduction of the last dimension drops.
            OpKind::Reshape => {
                let (from, to) = (op.operand(0).ty().dims(), v.ty().dims());
                (to.len() == from.len() + 1 && to[..from.len()] == from[..]).then_some(())?;
            }
            _ => return None,
        }
        v = op.operand(0);
    };
    let last = plain.input.ty().dims().len() as i64 - 1;
    let mut seen = any.input.def()?;
    ops.push(seen);
    let mut kind = CompareKind::Ne;
    if seen.kind() == Some(OpKind::Not) {
        (seen, kind) = (seen.operand(0).def()?, CompareKind::Eq);
        ops.push(seen);
    }
    let compare = Compare::of(seen)?;
    ops.push(select);
    let fits = inverted
        && any.kind == ReduceKind::Any
        && any.dims == [last]
        && compare.kind == kind
        && compare.lhs == plain.input
        && is_number(compare.rhs, f64::NEG_INFINITY)
        && o.on_false == plain.result;
    fits.then(|| Softmax { input: plain.input, result: select.result(0), ops, safe: true })
}

/// The input of a reduction over the last dimension that is broadcast back, and the ops of both.
fn of_row(v: Value, kind: ReduceKind) -> Option<(Value, Vec<Op>)> {
    let mut ops = vec![v.def()?];
    let o = BroadcastInDim::of(ops[0])?;
    let last = v.ty().dims().len().checked_sub(1)?;
    ops.push(o.input.def()?);
    let kept = if let Some(unit) = Reshape::of(ops[1]) {
        ops.push(unit.input.def()?);
        let (from, to) = (unit.input.ty().dims(), o.input.ty().dims());
        (from == to[..to.len().min(last)] && to.len() == last + 1).then_some(last + 1)?
    } else {
        last
    };
    let reduced = Reduce::of(*ops.last()?)?;
    let fits = o.dims.iter().copied().eq(0..kept as i64)
        && reduced.kind == kind
        && reduced.dims == [last as i64]
        && reduced.input.ty() == v.ty();
    fits.then_some((reduced.input, ops))
}
