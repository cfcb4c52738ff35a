//! Which ops may have operands that go on beyond a size: what is computed there must not reach what
//! lies before it.
use super::bounded::Bounded;
use crate::kernels::require_bounds;
use kiln_dialects::{
    ir::*,
    ops::{self, CompareKind, OpKind, ReduceKind, SymKind},
    rules::Sizes as _,
    sym::{Atom, Dim},
};

impl Bounded<'_> {
    /// Whether an op computes the same with the chosen sizes at their bounds, once `masks.rs` has
    /// hidden what lies beyond them.
    pub(super) fn supports(&self, op: Op) -> bool {
        let dims = self.dims(op);
        if !dims.iter().any(|d| self.reads(d)) {
            return true;
        }
        // These have a rule for sizes that decrease, or their readers have.
        let any = matches!(op.kind(), Some(OpKind::SymExpr | OpKind::Pad | OpKind::Require));
        let stated = [op.operands(), op.results()].concat();
        let mut stated = stated.into_iter().filter(|v| !any || !v.ty().is_index());
        op.regions().is_empty()
            && stated.all(|v| self.of_value(v).iter().all(|d| self.at_bound(d).is_some()))
            && require_bounds::compared(self.facts, op)
                .iter()
                .all(|(less, more, equal)| self.holds(less, more, *equal))
            && self.rule(op).unwrap_or(false)
    }

    fn rule(&self, op: Op) -> Option<bool> {
        let plain = |v: Value, axis: i64| !self.padded(v).contains(&(axis as usize));
        Some(match op.kind()? {
            kind if kind.is_elementwise() => true,
            OpKind::Sym | OpKind::SymExpr | OpKind::Dim | OpKind::BindShape => true,
            OpKind::UnbackedSize | OpKind::Splat | OpKind::Iota => true,
            OpKind::BroadcastInDim | OpKind::Transpose | OpKind::Cumulative => true,
            // Indices beyond the size are replaced.
            OpKind::Gather | OpKind::Scatter => true,
            OpKind::Reverse => {
                let o = ops::Reverse::of(op)?;
                o.dims.iter().all(|d| plain(o.input, *d))
            }
            OpKind::Reshape => self.reshape(ops::Reshape::of(op)?.input, op.result(0)),
            OpKind::Slice => self.slice(&ops::Slice::of(op)?),
            OpKind::Pad => self.pad(op, &ops::Pad::of(op)?),
            OpKind::Concat => {
                let o = ops::Concat::of(op)?;
                o.inputs.iter().rev().skip(1).all(|v| plain(*v, o.axis))
            }
            OpKind::Reduce => {
                let o = ops::Reduce::of(op)?;
                // Without elements these are errors, which the size decides.
                let some = matches!(o.kind, ReduceKind::Max | ReduceKind::Min) && !o.maybe_empty;
                !some || o.dims.iter().all(|d| plain(o.input, *d))
            }
            OpKind::ArgMax => ops::ArgMax::of(op).map(|o| plain(o.input, o.axis))?,
            OpKind::ArgMin => ops::ArgMin::of(op).map(|o| plain(o.input, o.axis))?,
            OpKind::Sort => ops::Sort::of(op).map(|o| plain(o.input, o.axis))?,
            OpKind::TopK => ops::TopK::of(op).map(|o| plain(o.input, o.axis))?,
            OpKind::DotGeneral => {
                let most = |d: &Dim| self.facts.bounds(&self.at_bound(d)?).1;
                let few = |d: &Dim| !self.reads(d) || most(d).is_some_and(|n| n <= self.rows);
                op.operands().into_iter().all(|v| self.facts.dims(v).iter().all(few))
            }
            OpKind::Require => self.require(&ops::Require::of(op)?),
            _ => false,
        })
    }

    /// A size that depends on data is the outermost of the dimensions that become others, so that
    /// what lies beyond it follows all the rest.
    fn reshape(&self, from: Value, to: Value) -> bool {
        let (from, to) = (self.facts.dims(from), self.facts.dims(to));
        let products = |dims: &[Dim]| {
            let mut all = vec![Dim::Known(1)];
            dims.iter().for_each(|d| all.push(all[all.len() - 1].mul(d)));
            all
        };
        if [from, to].concat().contains(&Dim::Known(0)) {
            return false;
        }
        let (left, right) = (products(from), products(to));
        let outermost = |dims: &[Dim]| {
            let wide = dims.iter().filter(|d| **d != Dim::Known(1));
            wide.skip(1).all(|d| !self.reads(d))
        };
        let (mut i, mut j) = (0, 0);
        while (i, j) != (from.len(), to.len()) {
            let ends = (i..left.len()).flat_map(|k| (j..right.len()).map(move |l| (k, l)));
            let mut ends = ends.filter(|(k, l)| (*k, *l) != (i, j) && left[*k] == right[*l]);
            let Some((k, l)) = ends.next() else { return false };
            if !outermost(&from[i..k]) || !outermost(&to[j..l]) {
                return false;
            }
            (i, j) = (k, l);
        }
        true
    }

    /// Each dimension has an offset that depends on data, or a size.
    fn slice(&self, o: &ops::Slice) -> bool {
        (0..o.sizes.len()).all(|axis| {
            let (offset, size) =
                (self.facts.size(&o.offsets[axis]), self.facts.size(&o.sizes[axis]));
            match (self.reads(&offset), self.reads(&size)) {
                (false, false) => true,
                (true, false) => o.strides.iter().all(|n| *n == 1),
                (false, true) => o.strides[axis] == 1,
                (true, true) => false,
            }
        })
    }

    /// What follows a size that depends on data is the padding: up to a dimension of the result that
    /// does not depend on it, or by a number that does not.
    fn pad(&self, op: Op, o: &ops::Pad) -> bool {
        let reads = |s: &Size| self.reads(&self.facts.size(s));
        !o.low.iter().any(reads)
            && (0..o.high.len())
                .all(|axis| !reads(&o.high[axis]) || self.fixed_high(op, o, axis).is_some())
    }

    /// How many elements follow a dimension at its bound in a result of known size.
    pub(super) fn fixed_high(&self, op: Op, o: &ops::Pad, axis: usize) -> Option<i64> {
        let size = self.facts.dims(op.result(0)).get(axis)?.known()?;
        let bound = self.at_bound(self.facts.dims(o.input).get(axis)?)?.known()?;
        Some(size - bound - o.low.get(axis)?.known()?)
    }

    /// A guard that the bounds prove; its op is dropped.
    fn require(&self, o: &ops::Require) -> bool {
        let (lhs, rhs) = (self.facts.size_value(o.lhs), self.facts.size_value(o.rhs));
        let more = |d: &Dim| d.add(&Dim::Known(1));
        match o.kind {
            CompareKind::Le => self.holds(&lhs, &rhs, false),
            CompareKind::Lt => self.holds(&more(&lhs), &rhs, false),
            CompareKind::Ge => self.holds(&rhs, &lhs, false),
            CompareKind::Gt => self.holds(&more(&rhs), &lhs, false),
            CompareKind::Eq => lhs == rhs,
            CompareKind::Ne => false,
        }
    }

    /// Whether `less <= more`, or `less == more`, for all values of the chosen sizes; true for
    /// others, which calls check.
    fn holds(&self, less: &Dim, more: &Dim, equal: bool) -> bool {
        let at_most =
            |a: &Dim, b: &Dim| self.facts.bounds(&b.sub(a)).0.is_some_and(|least| least >= 0);
        if less == more || !self.reads(less) && !self.reads(more) {
            return true;
        }
        if equal {
            return false;
        }
        let bounded = |a: &Dim| self.at_bound(a).is_some_and(|a| at_most(&a, more));
        let either = match &less.terms()[..] {
            [(factors, 1)] => match &factors[..] {
                [Atom::Op(SymKind::Min, args)] => bounded(&args.0) || bounded(&args.1),
                _ => false,
            },
            _ => false,
        };
        at_most(less, more) || !self.reads(more) && (bounded(less) || either)
    }
}
