//! Fragments, which hold the rows of all warpgroups: positions, reductions and conversions. Partial
//! rows have an element for each of the four lanes that share a row.
use super::{
    elements::{Elements, form},
    products::extent,
    state::{Unit, Val},
};
use crate::{
    error::{OptionExt, Result},
    ir::{Node as _, Op, Type},
    ops::{FragmentLayout, ReduceKind, TileIota, TileReduce},
    value::Data,
};

/// Lanes that share a row.
pub(super) const LANES: usize = 4;

/// The lane that holds a column: each has two adjacent ones of eight.
fn lane(column: usize) -> usize {
    column % 8 / 2
}

pub(super) fn is_partial(ty: Type) -> bool {
    ty.fragment_layout() == Some(FragmentLayout::PartialRows)
}

/// Sums or maxima of parts. A maximum takes NaN for no number.
fn reduced(kind: ReduceKind, parts: impl Iterator<Item = f64>) -> f64 {
    match kind {
        ReduceKind::Max => parts.fold(f64::NAN, f64::max),
        _ => parts.sum(),
    }
}

impl Unit<'_> {
    pub(super) fn iota(&self, op: Op) -> Result<Val> {
        let o = TileIota::of(op).ok_or_malformed(op)?;
        let first = self.number(o.first)?;
        let last = o.last.map(|v| self.number(v)).transpose()?.unwrap_or(i64::MAX);
        let [count, _] = extent(op.result(0))?;
        let all = (0..count as i64).map(|i| (first + i).min(last)).collect();
        Ok(Val::Elements(Elements::indices(all)))
    }
    pub(super) fn broadcast(&self, op: Op) -> Result<Val> {
        let ([rows, columns], x) = (extent(op.result(0))?, self.elements(op.operand(0))?);
        Ok(Val::Elements(x.picked(rows * columns, &|i| i / columns)))
    }
    pub(super) fn reduce(&self, op: Op) -> Result<Val> {
        let o = TileReduce::of(op).ok_or_malformed(op)?;
        let [rows, columns] = extent(o.input)?;
        let (dtype, _) = form(op.result(0).ty())?;
        // Of a row its columns, or the parts in its lanes.
        let width = if is_partial(o.input.ty()) { LANES } else { columns };
        let x = self.elements(o.input)?.spread(rows * width);
        let x = x.floats()?;
        let each = if is_partial(op.result(0).ty()) { LANES } else { 1 };
        let one = |i: usize| {
            let row = &x[i / each * width..][..width];
            let own = row.iter().enumerate().filter(|(c, _)| {
                // The input's columns are the lanes' own.
                each == 1
                    || if width == LANES && is_partial(o.input.ty()) {
                        *c == i % LANES
                    } else {
                        lane(*c) == i % LANES
                    }
            });
            reduced(o.kind, own.map(|(_, x)| *x))
        };
        let all = (0..rows * each).map(one).collect();
        Ok(Val::Elements(Elements::rounded(dtype, 1, Data::F(all))))
    }
    pub(super) fn convert(&self, op: Op) -> Result<Val> {
        let (x, (dtype, _)) = (self.elements(op.operand(0))?, form(op.result(0).ty())?);
        if is_partial(op.result(0).ty()) {
            let [rows, _] = extent(op.result(0))?;
            return Ok(Val::Elements(x.picked(rows * LANES, &|i| i / LANES)));
        }
        Ok(Val::Elements(Elements::rounded(dtype, 1, x.data().clone())))
    }
    pub(super) fn split(&self, op: Op) -> Result<Vec<Val>> {
        let ([rows, columns], x) = (extent(op.operand(0))?, self.elements(op.operand(0))?);
        let own = columns / op.result_count().max(1);
        let part = |k: usize| x.picked(rows * own, &|i| i / own * columns + k * own + i % own);
        Ok((0..op.result_count()).map(|k| Val::Elements(part(k))).collect())
    }
    pub(super) fn local_load(&mut self, op: Op) -> Result<Val> {
        let ((ring, tile, stage), (dtype, _)) =
            (self.tile(op.operand(0))?, form(op.result(0).ty())?);
        let all = self.ring_mut(ring)?.read(stage, tile)?;
        let all = match dtype.is_float() {
            true => Data::F(all),
            false => Data::I(all.into_iter().map(|x| x as i64).collect()),
        };
        Ok(Val::Elements(Elements::exact(dtype, 1, all)))
    }
}
