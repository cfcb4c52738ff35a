//! The consumers of attention: the products of a key tile, for scores and with values, and the
//! softmax between them. The scores of a key tile overlap the product with the previous tile's
//! values.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention::{
            flash::Flash,
            masks::{Edges, ScoreRows},
            query_tile::QueryTile,
            softmax::SoftmaxState,
        },
        common::{ptx::Ptx, tile::Tile},
    },
};
use kiln_dialects::ir::*;

/// Consumers at a query tile.
struct Place<'a> {
    query_tile: &'a QueryTile,
    rows: ScoreRows,
    /// The queries in shared memory.
    queries: Value,
}

/// Loop-carried from one key tile to the next: exponentials as a left operand, accumulators, row
/// statistics, the stages of the next keys and of the values that belong to the exponentials.
#[derive(Clone, Copy)]
struct LoopCarried {
    weights: Value,
    accumulators: Value,
    rows: SoftmaxState,
    keys: Value,
    values: Value,
}

impl LoopCarried {
    fn flat(&self) -> [Value; 6] {
        [self.weights, self.accumulators, self.rows.max, self.rows.sum, self.keys, self.values]
    }

    fn of(flat: &[Value]) -> Result<LoopCarried> {
        let [weights, accumulators, max, sum, keys, values] =
            <[Value; 6]>::try_from(flat).map_err(|_| "carries something else than a key tile")?;
        Ok(LoopCarried { weights, accumulators, rows: SoftmaxState { max, sum }, keys, values })
    }
}

impl Flash<'_> {
    /// Starts the product of queries and keys.
    fn scores(&self, c: Code, at: &Place<'_>, keys: Value) -> Result<Value> {
        let (t, ty) = (Tile(c), self.fragments().accumulator(Ptx(c).f32(), self.keys));
        t.mma(at.queries, t.view(self.keys_ring, keys)?, None, true, ty)
    }

    /// Starts the product of exponentials and values.
    fn multiply_values(&self, c: Code, s: &LoopCarried) -> Result<Value> {
        let (t, sums) = (Tile(c), s.accumulators);
        t.mma(s.weights, t.view(self.values_ring, s.values)?, Some(sums), false, sums.ty())
    }

    /// Masked scores of a key tile, with its biases.
    fn seen(
        &self,
        c: Code,
        at: &Place<'_>,
        stage: Value,
        scores: Value,
        key_tile: (Value, Edges),
    ) -> Result<Value> {
        let (t, f) = (Tile(c), self.fragments());
        let mut biases = vec![];
        for (bias, ring) in &self.biases {
            t.wait(*ring, stage)?;
            let ty = f.accumulator(Type::scalar(c.ctx(), bias.element), self.keys);
            let own = self.bias_argument(bias).ok_or("has a bias that nothing reads")?;
            biases.push((own, t.local_load(t.view(*ring, stage)?, ty)?));
        }
        let seen = self.masked_scores(c, at.query_tile, &at.rows, (scores, &biases), key_tile)?;
        for (_, ring) in &self.biases {
            t.release(*ring, stage)?;
        }
        Ok(seen)
    }

    /// Exponentials as the left operand of the product with values.
    fn weights(&self, c: Code, exponentials: Value) -> Result<Value> {
        let element = Type::scalar(c.ctx(), self.pattern.element);
        Tile(c).convert(exponentials, self.fragments().operand(element, self.keys))
    }

    /// The first key tile, whose scores nothing overlaps.
    fn first_tile(&self, c: Code, at: &Place<'_>, keys: Value) -> Result<LoopCarried> {
        let (t, p) = (Tile(c), Ptx(c));
        t.wait(self.keys_ring, keys)?;
        let scores = self.scores(c, at, keys)?;
        let scores = t.mma_wait(0, &[scores], &[])?[0];
        t.release(self.keys_ring, keys)?;
        let edges = Edges { last: true, window: true };
        let seen = self.seen(c, at, keys, scores, (p.number(0)?, edges))?;
        let (made, rows, _) = self.exponentials(c, seen, None)?;
        if self.pattern.at.limits.lengths[1].is_some() {
            self.zero_masked_values(c, at.query_tile, keys)?;
        }
        let ty = self.fragments().accumulator(p.f32(), self.columns());
        Ok(LoopCarried {
            weights: self.weights(c, made)?,
            accumulators: c.number(0.0, ty)?,
            rows,
            keys: t.next_stage(self.keys_ring, keys)?,
            values: keys,
        })
    }

    /// A key tile: its scores overlap the product with the previous tile's values.
    fn next_tile(
        &self,
        c: Code,
        at: &Place<'_>,
        s: &LoopCarried,
        back: Value,
        edges: Edges,
    ) -> Result<LoopCarried> {
        let t = Tile(c);
        t.wait(self.keys_ring, s.keys)?;
        let scores = self.scores(c, at, s.keys)?;
        t.wait(self.values_ring, s.values)?;
        let sums = self.multiply_values(c, s)?;
        let scores = t.mma_wait(1, &[scores], &[])?[0];
        t.release(self.keys_ring, s.keys)?;
        let back = Ptx(c).index_to_i32(back)?;
        let seen = self.seen(c, at, s.keys, scores, (back, edges))?;
        let (made, rows, factor) = self.exponentials(c, seen, Some(s.rows))?;
        // Ends a basic block: otherwise ptxas sinks the exponentials below the wgmma wait.
        t.wait(self.values_ring, s.values)?;
        // For the same reason the exponentials pass through that wait and are packed only after it:
        // otherwise ptxas serialises wgmma.
        let done = t.mma_wait(0, &[sums, made], &[s.weights])?;
        let [sums, made] = [done[0], done[1]];
        t.release(self.values_ring, s.values)?;
        let factor = factor.ok_or("has no earlier sums")?;
        let scaled = arith::mulf(c, sums, t.broadcast(factor, sums.ty())?)?;
        Ok(LoopCarried {
            weights: self.weights(c, made)?,
            accumulators: scaled,
            rows,
            keys: t.next_stage(self.keys_ring, s.keys)?,
            values: s.keys,
        })
    }

    /// The consumers.
    pub(super) fn consume(&self, c: Code) -> Result<()> {
        let first = Tile(c).first_stage()?;
        self.for_each_tile(c, &[first, first], &mut |c, query_tile, carried| {
            let (t, p, query) = (Tile(c), Ptx(c), carried[0]);
            let rows = self.score_rows(c, query_tile)?;
            let queries = t.view(self.queries_ring, query)?;
            let at = Place { query_tile, rows, queries };
            t.wait(self.queries_ring, query)?;
            let mut state = self.first_tile(c, &at, carried[1])?;
            let (mut from, one) = (c.index(1)?, c.index(1)?);
            let mut some = |to: Value, last: bool, window: bool| -> Result<()> {
                let to = p.i32_to_index(to)?;
                let next =
                    c.for_dynamic_step(from, to, one, &state.flat(), &mut |c, back, state| {
                        let (s, edges) = (LoopCarried::of(state)?, Edges { last, window });
                        Ok(self.next_tile(c, &at, &s, back, edges)?.flat().to_vec())
                    })?;
                (state, from) = (LoopCarried::of(&next)?, to);
                Ok(())
            };
            if self.masks_earlier_tiles() {
                some(query_tile.blocks[1], true, true)?;
            }
            if let Some(far) = query_tile.first_key_tile {
                some(far, false, false)?;
            }
            some(query_tile.blocks[0], false, true)?;
            t.release(self.queries_ring, query)?;
            t.wait(self.values_ring, state.values)?;
            let sums = self.multiply_values(c, &state)?;
            let sums = t.mma_wait(0, &[sums], &[state.weights])?[0];
            t.release(self.values_ring, state.values)?;
            self.finish(c, query_tile, &at.rows, sums, state.rows)?;
            Ok(vec![t.next_stage(self.queries_ring, query)?, state.keys])
        })
    }
}
