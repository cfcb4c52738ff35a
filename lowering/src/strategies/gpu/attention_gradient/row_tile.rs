//! Tiles of rows: which one a CTA takes, and which columns it sees.
use crate::{
    emit::{code::Code, loops::decode},
    strategies::gpu::{
        attention_gradient::emit::Gradient,
        common::{ptx::Ptx, threads},
    },
};
use kiln_dialects::ir::*;

/// A tile of rows.
pub(super) struct RowTile {
    /// Positions of the outer loops that it has.
    pub(super) kept: Vec<Value>,
    /// Its first row.
    pub(super) first: Value,
    /// Column tiles that it sees, in order: from, to (exclusive), whether some are masked in part.
    pub(super) segments: Vec<(Value, Value, bool)>,
}

/// Emits the body of a tile, given loop-carried values; returns the next ones.
type RowTileBody<'a> = dyn FnMut(Code, &RowTile, &[Value]) -> Result<Vec<Value>> + 'a;
/// Emits the body of a position of all outer loops.
type OuterBody<'a> = dyn FnMut(Code, &[Value], &[Value]) -> Result<Vec<Value>> + 'a;

impl Gradient<'_> {
    /// The row tile of a linear number.
    fn row_tile(&self, c: Code, tile: Value) -> Result<RowTile> {
        let p = Ptx(c);
        let (banded, each) = (self.pattern.at.causal, self.tiles_per_outer);
        let (outer, mut down) = threads::place_of_tile(c, tile, &self.kept_sizes, each, banded)?;
        if banded && !self.by_keys() {
            // The longest first: the last queries see most keys, the first keys most queries.
            down = c.sub(c.sub(each, c.index(1)?)?, down)?;
        }
        let first = p.mul_const(p.index_to_i32(down)?, self.rows)?;
        let kept = decode(c, outer, &self.kept_sizes)?;
        Ok(RowTile { kept, first, segments: self.segments(p, first)? })
    }

    /// The column tiles that the rows from `first` on see.
    fn segments(&self, p: Ptx, first: Value) -> Result<Vec<(Value, Value, bool)>> {
        let ragged = self.partial_tiles[1];
        // Trip counts are opaque: LLVM would unroll constant ones, which exceeds registers.
        let count = p.opaque(self.column_count)?;
        let all = p.div_const(p.add_const(count, self.block - 1)?, self.block)?;
        let whole = if ragged { p.div_const(count, self.block)? } else { all };
        let none = p.number(0)?;
        let mut found = vec![];
        if !self.pattern.at.causal {
            found.push((none, whole, false));
            if ragged {
                found.push((whole, all, true));
            }
        } else if self.by_keys() {
            // Queries from the first key on; from the last key on, no key is masked.
            let start = p.min(p.div_const(first, self.block)?, all)?;
            let last = p.add_const(first, self.rows - 1 + self.block - 1)?;
            let clear = p.min(p.div_const(last, self.block)?, all)?;
            let full = p.max(clear, whole)?;
            found.push((start, clear, true));
            found.push((clear, full, false));
            if ragged {
                found.push((full, all, true));
            }
        } else {
            let last = p.add_const(first, self.rows - 1)?;
            let end = p.min(p.add_const(p.div_const(last, self.block)?, 1)?, all)?;
            let clear = p.div_const(p.add_const(first, 1)?, self.block)?;
            let clear = p.min(p.min(clear, whole)?, end)?;
            found.push((none, clear, false));
            found.push((clear, end, true));
        }
        let index = |v: Value| p.i32_to_index(v);
        found.into_iter().map(|(a, b, masked)| Ok((index(a)?, index(b)?, masked))).collect()
    }

    /// Loops over the row tiles of this CTA, with loop-carried values.
    pub(super) fn for_each_tile(
        &self,
        c: Code,
        carried: &[Value],
        body: &mut RowTileBody<'_>,
    ) -> Result<()> {
        threads::for_each_tile(c, self.tiles, carried, &mut |c, tile, carried| {
            body(c, &self.row_tile(c, tile)?, carried)
        })?;
        Ok(())
    }

    /// Loops over the outer positions that a tile sums over: the heads of queries that read the
    /// same key.
    pub(super) fn for_each_outer(
        &self,
        c: Code,
        tile: &RowTile,
        carried: &[Value],
        body: &mut OuterBody<'_>,
    ) -> Result<Vec<Value>> {
        let at = &self.pattern.at;
        let place = |summed: &[Value]| -> Result<Vec<Value>> {
            let mut all = vec![None; at.outer];
            let pairs = at.kept.iter().zip(&tile.kept).chain(self.summed.iter().zip(summed));
            for (d, v) in pairs {
                *all.get_mut(*d).ok_or("has a loop that is not there")? = Some(*v);
            }
            Ok(all.into_iter().collect::<Option<_>>().ok_or("has a loop without a position")?)
        };
        if self.summed.is_empty() {
            return body(c, &place(&[])?, carried);
        }
        let count = self.summed_sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
        let p = Ptx(c);
        let count = p.i32_to_index(p.opaque(p.index_to_i32(count)?)?)?;
        c.for_dynamic_step(c.index(0)?, count, c.index(1)?, carried, &mut |c, i, carried| {
            body(c, &place(&decode(c, i, &self.summed_sizes)?)?, carried)
        })
    }
}
