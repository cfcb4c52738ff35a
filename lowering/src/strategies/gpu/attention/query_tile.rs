//! Tiles of queries: which one a CTA takes next, and which keys it sees.
use crate::{
    emit::{
        code::{Code, constant_value},
        loops::decode,
    },
    strategies::gpu::{
        attention::flash::Flash,
        common::{ptx::Ptx, threads},
    },
};
use kiln_dialects::ir::*;

/// A tile of queries.
pub(super) struct QueryTile {
    pub(super) outer: Vec<Value>,
    /// The first query.
    pub(super) first: Value,
    /// The end (exclusive) of the key tiles that it sees.
    pub(super) end: Value,
    /// How many key tiles it sees, and how many of these, counted from the last, are partly masked.
    pub(super) blocks: [Value; 2],
    /// With a sliding window, the first key tile, counted from the last, that may hold keys before
    /// some query's window.
    pub(super) first_key_tile: Option<Value>,
    /// Valid keys here; valid queries, if not all are.
    pub(super) count: Value,
    pub(super) queries: Option<Value>,
}

/// Emits the body of a query tile, given loop-carried values; returns the next ones.
type QueryTileBody<'a> = dyn FnMut(Code, &QueryTile, &[Value]) -> Result<Vec<Value>> + 'a;

impl Flash<'_> {
    /// The query tile of a linear number.
    fn query_tile(&self, c: Code, tile: Value) -> Result<QueryTile> {
        let p = Ptx(c);
        let (banded, each) = (self.score.last_key.is_some(), self.tiles_per_outer);
        let (outer_index, mut down) =
            threads::place_of_tile(c, tile, &self.outer_sizes, each, banded)?;
        if banded {
            // The longest first: the last queries see most keys.
            down = c.sub(c.sub(each, c.index(1)?)?, down)?;
        }
        let high = self.rows;
        let (zero, one) = (p.number(0)?, p.number(1)?);
        let first = p.mul_const(p.index_to_i32(down)?, high)?;
        let around = decode(c, outer_index, &self.outer_sizes)?;
        let most = |axis: usize| p.i32_to_index([self.queries, self.count][axis]);
        let [queries, keys] = self
            .scope
            .lengths(c, &self.pattern.at, &around, &most)?
            .map(|n| n.map(|n| p.index_to_i32(n)));
        let (queries, count) = (queries.transpose()?, keys.unwrap_or(Ok(self.count))?);
        // At least one tile, out of bounds if there are no keys. The trip count is opaque: LLVM
        // would unroll a constant one, which exceeds registers.
        let mut end = p.opaque(match constant_value(count) {
            Some(n) => p.number((n.max(1) as usize).div_ceil(self.keys))?,
            None => p.max(p.div_const(p.add_const(count, self.keys - 1)?, self.keys)?, one)?,
        })?;
        if let Some(ahead) = self.score.last_key {
            let last = p.max(p.add_signed(first, high as i64 - 1 + ahead)?, zero)?;
            end = p.min(end, p.add_const(p.div_const(last, self.keys)?, 1)?)?;
        }
        let (mut blocks, mut far) = (end, None);
        if let Some(back) = self.score.window {
            let start = p.div_const(p.max(p.add_signed(first, -back)?, zero)?, self.keys)?;
            blocks = p.max(p.sub(end, start)?, one)?;
            let near = p.max(p.add_signed(first, high as i64 - 1 - back)?, zero)?;
            far = Some(p.sub(end, p.div_const(p.add_const(near, self.keys - 1)?, self.keys)?)?);
        }
        if let Some(queries) = queries {
            // A tile of invalid queries sees one key tile, and its results are dropped: slt
            blocks = c.select(c.compare(CmpIPredicate::Slt, first, queries)?, blocks, one)?;
        }
        let mut partly = one;
        if self.masks_earlier_tiles() {
            let whole = p.div_const(p.add_const(first, 1)?, self.keys)?;
            partly = p.min(p.max(p.sub(end, whole)?, one)?, blocks)?;
        }
        let far = far.map(|far| p.min(p.max(far, partly)?, blocks)).transpose()?;
        Ok(QueryTile {
            outer: around,
            first,
            end,
            blocks: [blocks, partly],
            first_key_tile: far,
            count,
            queries,
        })
    }

    /// Whether more key tiles than the last may be partly masked.
    pub(super) fn masks_earlier_tiles(&self) -> bool {
        self.score.causal && self.rows != self.keys
    }

    /// The first key of a tile, counted from the last visible tile.
    pub(super) fn first_key(&self, p: Ptx, query_tile: &QueryTile, back: Value) -> Result<Value> {
        p.mul_const(p.sub(p.add_signed(query_tile.end, -1)?, back)?, self.keys)
    }

    /// Loops over the query tiles of this CTA, with loop-carried values.
    pub(super) fn for_each_tile(
        &self,
        c: Code,
        carried: &[Value],
        body: &mut QueryTileBody<'_>,
    ) -> Result<()> {
        threads::for_each_tile(c, self.tiles, carried, &mut |c, tile, carried| {
            body(c, &self.query_tile(c, tile)?, carried)
        })?;
        Ok(())
    }
}
