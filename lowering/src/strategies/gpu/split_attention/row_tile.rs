//! Tiles of rows, which are queries or stacked query heads: the keys that a tile sees, and a
//! thread's rows in it.
use crate::{
    emit::{code::Code, loops::decode},
    strategies::gpu::{
        common::{ptx::Ptx, score::ScoreCache},
        split_attention::split::{EIGHT, Split},
    },
};
use kiln_dialects::ir::*;

/// A tile.
pub(super) struct RowTile {
    pub(super) outer: Vec<Value>,
    /// Its first row.
    pub(super) first: Value,
    /// The first key that a row of it sees, and the end (exclusive).
    pub(super) keys: [Value; 2],
    /// Valid queries, if not all are.
    pub(super) queries: Option<Value>,
}

/// A thread's row: the loops that its scores depend on, and its query.
pub(super) struct Row {
    pub(super) outer: Vec<Value>,
    pub(super) query: Value,
    pub(super) scores: ScoreCache,
}

impl Split<'_> {
    /// The position, rows and keys of a tile.
    pub(super) fn row_tile(
        &self,
        c: Code,
        tile: Value,
        down: Value,
        sizes: &[Value],
    ) -> Result<RowTile> {
        let p = Ptx(c);
        let around = decode(c, c.div(tile, down)?, sizes)?;
        let first = p.mul_const(p.index_to_i32(c.rem(tile, down)?)?, self.rows)?;
        let (mut low, mut high) = (p.number(0)?, self.count);
        // Stacked heads contain every query.
        let stacked = self.pattern.heads > 1;
        if let Some(ahead) = self.score.last_key {
            let last = if stacked {
                self.queries
            } else {
                p.min(p.add_const(first, self.rows)?, self.total)?
            };
            high = p.min(high, p.max(p.add_signed(last, ahead)?, low)?)?;
        }
        if let Some(back) = self.score.window.filter(|_| !stacked) {
            low = p.min(p.max(p.add_signed(first, -back)?, low)?, high)?;
        }
        let most = |axis: usize| p.i32_to_index([self.queries, self.count][axis]);
        let [queries, keys] = self
            .scope
            .lengths(c, &self.pattern.at, &around, &most)?
            .map(|n| n.map(|n| p.index_to_i32(n)).transpose());
        let (queries, keys) = (queries?, keys?);
        if let Some(keys) = keys {
            high = p.min(high, keys)?;
            low = p.min(low, high)?;
        }
        if let Some(queries) = queries {
            let counts =
                c.compare(CmpIPredicate::Slt, if stacked { p.number(0)? } else { first }, queries)?;
            high = c.select(counts, high, low)?;
        }
        Ok(RowTile { outer: around, first, keys: [low, high], queries })
    }

    /// A row of the thread, clamped to the last row; rows out of bounds are not stored.
    pub(super) fn row(&self, c: Code, row_tile: &RowTile, half: usize) -> Result<Row> {
        let p = Ptx(c);
        let row = p.add(row_tile.first, p.add_const(self.lane[0], EIGHT * half)?)?;
        let row = p.min(row, p.add_signed(self.total, -1)?)?;
        let (outer, query) = self.split(c, row_tile, row)?;
        let known = self.score.rows(c, &outer, [query, query])?;
        Ok(Row { outer, query, scores: known })
    }

    /// The outer loops of a row, and its query.
    pub(super) fn split(
        &self,
        c: Code,
        row_tile: &RowTile,
        row: Value,
    ) -> Result<(Vec<Value>, Value)> {
        let (p, mut outer) = (Ptx(c), row_tile.outer.clone());
        if self.pattern.heads == 1 {
            return Ok((outer, row));
        }
        outer.push(p.i32_to_index(arith::divui(p, row, self.queries)?)?);
        Ok((outer, arith::remui(p, row, self.queries)?))
    }
}
