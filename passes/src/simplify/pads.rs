//! Sums of tensors that are zero outside disjoint slices: the gradients of a tensor's slices.
use super::{moves::only_here, splats::*};
use kiln_dialects::{ir::*, ops::*};

/// Patterns by root op.
pub(super) const PATTERNS: &[Pattern] =
    &[Pattern { name: "add-pads", root: OpKind::Add, apply: add_pads }];

/// A tensor that is +0.0 outside these slices of one axis.
struct Slices {
    axis: usize,
    /// Offset, size and value, in order of the offsets.
    slices: Vec<(i64, i64, Value)>,
}

impl Slices {
    /// The slices of a value with no reader but `user`.
    fn of(v: Value, user: Op) -> Option<Slices> {
        let op = v.def().filter(|_| only_here(v, user))?;
        match op.kind()? {
            OpKind::Pad => {
                let o = Pad::of(op).filter(|o| is_number(o.value, 0.0))?;
                let zero = |s: &Size| s.known() == Some(0);
                let mut padded =
                    (0..o.low.len()).filter(|d| !zero(&o.low[*d]) || !zero(&o.high[*d]));
                let axis = padded.next().filter(|_| padded.next().is_none())?;
                let low = o.low[axis].known().filter(|n| *n >= 0)?;
                o.high[axis].known().filter(|n| *n >= 0)?;
                let inner = Slices::within(o.input, op, axis)?;
                let slices = inner.into_iter().map(|(at, n, v)| (low + at, n, v)).collect();
                Some(Slices { axis, slices })
            }
            OpKind::Concat => {
                let o = Concat::of(op)?;
                let axis = o.axis as usize;
                let (mut slices, mut offset) = (vec![], 0);
                for v in o.inputs {
                    let n = v.ty().dims().get(axis)?.known()?;
                    if !is_number(v, 0.0) {
                        slices.push((offset, n, v));
                    }
                    offset += n;
                }
                Some(Slices { axis, slices })
            }
            // The sum with zeros is what this pattern leaves.
            OpKind::Add if is_number(op.operand(1), 0.0) => Slices::of(op.operand(0), op),
            OpKind::Add => Slices::of(op.operand(0), op)?.merge(Slices::of(op.operand(1), op)?),
            _ => None,
        }
    }

    /// The slices of a padded value: its own along the same axis, or the whole of it.
    fn within(v: Value, user: Op, axis: usize) -> Option<Vec<(i64, i64, Value)>> {
        if let Some(inner) = Slices::of(v, user).filter(|s| s.axis == axis) {
            return Some(inner.slices);
        }
        Some(vec![(0, v.ty().dims().get(axis)?.known()?, v)])
    }

    /// The slices of both, if none overlap.
    fn merge(self, other: Slices) -> Option<Slices> {
        let mut slices = [self.slices, other.slices].concat();
        slices.sort_by_key(|s| s.0);
        let disjoint = slices.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0);
        (self.axis == other.axis && disjoint).then_some(Slices { axis: self.axis, slices })
    }
}

/// Disjoint slices are concatenated, with zeros in the gaps. The sum with +0.0 makes -0.0 of a
/// slice +0.0, as the sum with the other tensor's zeros does.
fn add_pads(op: Op, r: &Rewriter) -> Result<bool> {
    let (lhs, rhs) = (op.operand(0), op.operand(1));
    let merged = Slices::of(lhs, op).and_then(|s| s.merge(Slices::of(rhs, op)?));
    let (Some(Slices { axis, slices }), Some(d)) = (merged, dtype(lhs)) else { return Ok(false) };
    let Some(total) = lhs.ty().dims().get(axis).and_then(|d| d.known()) else { return Ok(false) };
    let b = r.before(op)?;
    let sizes = b.sizes_of(lhs)?;
    let zero = Attr::scalar(op.ctx(), d, 0.0);
    let zeros = |n: i64| {
        let mut sizes = sizes.clone();
        sizes[axis] = Size::Static(n);
        splat(&b, zero, sizes)
    };
    let (mut inputs, mut end) = (vec![], 0);
    for (offset, n, v) in slices {
        if offset > end {
            inputs.push(zeros(offset - end)?);
        }
        inputs.push(v);
        end = offset + n;
    }
    if total > end {
        inputs.push(zeros(total - end)?);
    }
    let mut sum = b.add(&Concat { inputs, axis: axis as i64 })?;
    if d.is_float() {
        sum = b.add(&Add { lhs: sum, rhs: zeros(total)? })?;
    }
    r.replace(op, &[sum]);
    Ok(true)
}
