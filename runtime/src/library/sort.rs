//! Sorts along an axis.
use super::{
    abi::{Call, Lines},
    element::{Element, Number, each_dtype},
};
use std::cmp::Ordering;

/// `kiln.sort`: input; values, indices. Attributes: axis, descending.
pub fn sort(call: &Call) -> Option<()> {
    each_dtype!(call.tensors.first()?.code, E => run::<E>(call, false))
}

/// `kiln.top_k`: input; values, indices. Attributes: axis, smallest.
pub fn top_k(call: &Call) -> Option<()> {
    each_dtype!(call.tensors.first()?.code, E => run::<E>(call, true))
}

fn run<E: Element>(call: &Call, best: bool) -> Option<()> {
    let [input, values, positions] = &call.tensors[..] else { return None };
    let axis = call.axis(0, &input.shape)?;
    let flag = *call.attributes.get(1)? != 0;
    let descending = flag != best;
    let (x, values, indices) = (
        input.read::<E>()?,
        (values, values.write::<E>()?),
        (positions, positions.write::<i64>()?),
    );
    let lines = Lines::of(&input.shape, axis);
    let kept = *if values.0.used() { values.0 } else { indices.0 }.shape.get(axis)?;
    let (mut line, mut order) = (vec![], vec![]);
    for l in call.share(lines.count) {
        let start = lines.start(l);
        line.clear();
        line.extend(
            x.get(start..)?.iter().step_by(lines.step.max(1)).take(lines.size).map(|v| v.widen()),
        );
        order.clear();
        order.extend(0..lines.size);
        let compare = |a: &usize, b: &usize| {
            if descending { line[*b].order(line[*a]) } else { line[*a].order(line[*b]) }
        };
        if kept < lines.size {
            sort_first(&mut order, kept, &compare);
        } else {
            order.sort_by(compare);
        }
        let to = l / lines.step.max(1) * lines.step * kept + l % lines.step.max(1);
        for (i, from) in order.iter().take(kept).enumerate() {
            values.1.set(to + i * lines.step, x[start + from * lines.step]);
            indices.1.set(to + i * lines.step, *from as i64);
        }
    }
    Some(())
}

/// Partitions so that the first `k` of a stable sort come first, in order. Ties are broken by
/// index, which makes the selection stable.
fn sort_first(order: &mut [usize], k: usize, compare: &impl Fn(&usize, &usize) -> Ordering) {
    let total = |a: &usize, b: &usize| compare(a, b).then(a.cmp(b));
    if let Some(last) = k.checked_sub(1) {
        order.select_nth_unstable_by(last, total);
        order[..k].sort_unstable_by(total);
    }
}
