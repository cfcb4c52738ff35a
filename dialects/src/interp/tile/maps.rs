//! Bodies on the elements of fragments: maps, loads by column, stores, epilogues.
use super::{
    elements::{Elements, form},
    fragments::{LANES, is_partial},
    products::extent,
    state::{Unit, Val, block},
};
use crate::{
    error::{OptionExt, Result},
    ir::{Node as _, Op, Value},
    ops::{FragmentLayout, TileLoad, TileMap, TileStore},
};

/// The positions of a tile's elements, or of a row's.
#[derive(Clone, Copy)]
pub(super) struct Positions {
    pub(super) rows: usize,
    /// Columns, or the lanes of a row.
    pub(super) columns: usize,
}

impl Positions {
    /// Of the elements of a fragment.
    pub(super) fn of(v: Value) -> Result<Positions> {
        let [rows, columns] = extent(v)?;
        Ok(Positions { rows, columns: if is_partial(v.ty()) { LANES } else { columns } })
    }
    pub(super) fn count(self) -> usize {
        self.rows * self.columns
    }
}

impl Unit<'_> {
    /// What a body takes of an operand at each position: an element of a tile, of its row or of
    /// its column, or a scalar.
    pub(super) fn argument(&self, v: Value, at: Positions) -> Result<Elements> {
        use FragmentLayout::{Columns, Rows};
        let (x, columns) = (self.elements(v)?, at.columns);
        Ok(match v.ty().fragment_layout() {
            Some(Rows) => x.picked(at.count(), &|i| i / columns),
            Some(Columns) => x.picked(at.count(), &|i| i % columns),
            Some(_) if ![1, at.count()].contains(&x.len()) => {
                return Err(format!("maps {} elements at {} positions", x.len(), at.count()).into());
            }
            _ => x,
        })
    }
    fn arguments(&self, all: &[Value], at: Positions) -> Result<Vec<Elements>> {
        all.iter().map(|v| self.argument(*v, at)).collect()
    }

    pub(super) fn map(&mut self, op: Op) -> Result<Vec<Val>> {
        let o = TileMap::of(op).ok_or_malformed(op)?;
        if op.result_count() == 0 {
            return Ok(vec![]);
        }
        let at = Positions::of(op.result(0))?;
        let args = self.arguments(&o.inputs, at)?;
        let made = self.body(block(op, 0)?, args)?;
        Ok(made.into_iter().map(Val::Elements).collect())
    }

    /// Of a vector of columns the first one's address counts.
    pub(super) fn load_columns(&mut self, op: Op) -> Result<Val> {
        let o = TileLoad::of(op).ok_or_malformed(op)?;
        let (view, columns) = (self.memory(o.memory)?, self.elements(o.columns)?);
        let (count, vector) = (extent(op.result(0))?[0], o.vector.max(1) as usize);
        let columns = columns.picked(count, &|i| i / vector * vector);
        let at = self.body(block(op, 0)?, vec![columns])?;
        let at = at.first().ok_or_malformed(op)?.spread(count);
        let at: Vec<i64> =
            at.ints()?.iter().enumerate().map(|(i, at)| at + (i % vector) as i64).collect();
        let loaded = self.gather(&view, &at)?;
        let (dtype, _) = form(op.result(0).ty())?;
        Ok(Val::Elements(loaded.like(dtype, 1)))
    }

    pub(super) fn store(&mut self, op: Op) -> Result<()> {
        let o = TileStore::of(op).ok_or_malformed(op)?;
        let (view, at) = (self.memory(o.memory)?, Positions::of(o.value)?);
        let values = self.elements(o.value)?;
        let rows = self.argument(*o.positions.first().ok_or_malformed(op)?, at)?;
        let rows = rows.spread(at.count());
        let bound = o.bound.map(|v| self.number(v)).transpose()?.unwrap_or(i64::MAX);
        let owned = self.role.owned.clone().unwrap_or(0..at.rows);
        let rows = rows.ints()?;
        let keep = |i: usize| rows[i] < bound && owned.contains(&(i / at.columns));
        let args = self.arguments(&o.positions, at)?;
        // Nothing computes the address of what is not stored.
        self.role.active = Some((0..at.count()).map(keep).collect());
        let places = self.body(block(op, 0)?, args);
        self.role.active = None;
        let places = places?.first().ok_or_malformed(op)?.spread(at.count());
        self.scatter(&view, places.ints()?, &values, &keep)
    }
}
