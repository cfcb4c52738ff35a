//! A softmax over the last dimension, as one op or written out.
use kiln_dialects::{ir::*, ops::*};

/// A softmax over the last dimension.
#[derive(Clone, Debug)]
pub(super) struct Softmax {
    pub(super) input: Value,
    pub(super) result: Value,
    /// Its ops.
    pub(super) ops: Vec<Op>,
}

impl Softmax {
    /// `kiln.softmax`, or the quotient of `exp(x - max x)` and its sum.
    pub(super) fn of(op: Op) -> Option<Softmax> {
        let result = || op.result(0);
        if let Some(o) = kiln_dialects::ops::Softmax::of(op) {
            let last = o.axis + 1 == o.input.ty().dims().len() as i64;
            return last.then(|| Softmax { input: o.input, result: result(), ops: vec![op] });
        }
        let quotient = Div::of(op)?;
        let exp = quotient.lhs.def().filter(|o| o.kind() == Some(OpKind::Exp))?;
        let (summed, mut ops) = of_row(quotient.rhs, ReduceKind::Sum)?;
        let difference = exp.operand(0).def()?;
        let o = Sub::of(difference).filter(|_| summed == quotient.lhs)?;
        let (most, more) = of_row(o.rhs, ReduceKind::Max)?;
        ops.extend(more.into_iter().chain([difference, exp, op]));
        (most == o.lhs).then(|| Softmax { input: o.lhs, result: result(), ops })
    }
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
