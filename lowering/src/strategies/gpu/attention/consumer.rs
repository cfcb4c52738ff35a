//! A consumer warpgroup of attention: the products of a key tile, for scores and with values, and
//! the softmax between them. The scores of a key tile overlap the product with the previous tile's
//! values.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention::{
            ROWS,
            flash::{Flash, Pipeline, ROW},
            query_tile::Thread,
            softmax::{Edges, SoftmaxState},
        },
        common::ptx::{Mma, Ptx, wgmma_type},
    },
};
use kiln_dialects::ir::*;

/// Loop-carried from one key tile to the next: packed exponentials, accumulators, row statistics,
/// stage and parity of the next keys and of the values that belong to the exponentials.
struct LoopCarried {
    weights: Vec<Value>,
    accumulators: Vec<Value>,
    rows: [SoftmaxState; 2],
    keys: [Value; 2],
    values: [Value; 2],
}

impl LoopCarried {
    fn flat(&self) -> Vec<Value> {
        let rows = self.rows.iter().flat_map(|r| [r.max, r.sum]);
        let (weights, sums) = (self.weights.iter().copied(), self.accumulators.iter().copied());
        weights.chain(sums).chain(rows).chain(self.keys).chain(self.values).collect()
    }

    fn like(&self, flat: &[Value]) -> LoopCarried {
        let (weights, rest) = flat.split_at(self.weights.len());
        let (sums, rest) = rest.split_at(self.accumulators.len());
        LoopCarried {
            weights: weights.to_vec(),
            accumulators: sums.to_vec(),
            rows: [
                SoftmaxState { max: rest[0], sum: rest[1] },
                SoftmaxState { max: rest[2], sum: rest[3] },
            ],
            keys: [rest[4], rest[5]],
            values: [rest[6], rest[7]],
        }
    }
}

impl Flash<'_> {
    /// Issues the wgmmas of queries and keys.
    fn scores(&self, p: Ptx, queries: Value, stage: Value) -> Result<Value> {
        let mma = Mma {
            columns: self.keys,
            element: wgmma_type(self.pattern.element),
            a_k_major: true,
            b_k_major: true,
        };
        let (left, right) = (
            p.wgmma_descriptor(queries, true)?,
            p.wgmma_descriptor(self.stage_address(p, Pipeline::Keys, stage)?, true)?,
        );
        let mut sums = p.undef_accumulators(self.keys)?;
        p.wgmma_fence()?;
        for k in 0..(self.pattern.at.depth as usize).div_ceil(16) {
            let at = |rows: usize| k / 4 * rows * ROW + k % 4 * 32;
            let (left, right) = (
                p.advance_descriptor(left, at(self.warpgroups * ROWS))?,
                p.advance_descriptor(right, at(self.keys))?,
            );
            sums = p.wgmma(&mma, left, right, sums, k == 0)?;
        }
        p.wgmma_commit_group()?;
        Ok(sums)
    }

    /// Issues the wgmmas of exponentials and values.
    fn multiply_values(
        &self,
        p: Ptx,
        weights: &[Value],
        sums: &[Value],
        stage: Value,
    ) -> Result<Vec<Value>> {
        let right = p.wgmma_descriptor_strided(
            self.stage_address(p, Pipeline::Values, stage)?,
            self.keys * ROW,
        )?;
        let mut sums = sums.to_vec();
        p.wgmma_fence()?;
        for (k, left) in weights.chunks(4).enumerate() {
            sums = p.wgmma_register_operand(
                self.pattern.element,
                left,
                p.advance_descriptor(right, k * 16 * ROW)?,
                false,
                &sums,
            )?;
        }
        p.wgmma_commit_group()?;
        Ok(sums)
    }

    fn release(&self, c: Code, t: &Thread<'_>, pipeline: Pipeline, stage: Value) -> Result<()> {
        c.if_else(
            t.elected,
            &mut |c| Ptx(c).mbarrier_arrive(self.empty_barrier(Ptx(c), pipeline, stage)?),
            None,
        )
    }

    /// The first key tile, whose scores nothing overlaps.
    fn first_tile(&self, c: Code, t: &Thread<'_>, keys: [Value; 2]) -> Result<LoopCarried> {
        let p = Ptx(c);
        p.mbarrier_wait(self.full_barrier(p, Pipeline::Keys, keys[0])?, keys[1])?;
        let scores = self.scores(p, t.queries, keys[0])?;
        let scores = p.wgmma_wait_group(0, &p.extract_accumulators(scores, self.keys / 2)?, &[])?;
        self.release(c, t, Pipeline::Keys, keys[0])?;
        let seen =
            self.masked_scores(c, t, &scores, p.number(0)?, Edges { last: true, window: true })?;
        let (made, rows, _) = self.exponentials(c, &seen, None)?;
        if self.pattern.at.limits.lengths[1].is_some() {
            self.zero_masked_values(c, t, keys)?;
        }
        let nothing = c.number(0.0, p.f32())?;
        let sums = vec![nothing; self.pattern.at.columns as usize / 2];
        Ok(LoopCarried {
            weights: self.pack_fragments(p, &made)?,
            accumulators: sums,
            rows,
            keys: self.next_stage(p, Pipeline::Keys, keys)?,
            values: keys,
        })
    }

    /// A key tile: its scores overlap the product with the previous tile's values.
    fn next_tile(
        &self,
        c: Code,
        t: &Thread<'_>,
        s: &LoopCarried,
        back: Value,
        edges: Edges,
    ) -> Result<LoopCarried> {
        let p = Ptx(c);
        p.mbarrier_wait(self.full_barrier(p, Pipeline::Keys, s.keys[0])?, s.keys[1])?;
        let scores = self.scores(p, t.queries, s.keys[0])?;
        let full = self.full_barrier(p, Pipeline::Values, s.values[0])?;
        p.mbarrier_wait(full, s.values[1])?;
        let sums = self.multiply_values(p, &s.weights, &s.accumulators, s.values[0])?;
        let scores = p.wgmma_wait_group(1, &p.extract_accumulators(scores, self.keys / 2)?, &[])?;
        self.release(c, t, Pipeline::Keys, s.keys[0])?;
        let seen = self.masked_scores(c, t, &scores, back, edges)?;
        let (made, rows, factors) = self.exponentials(c, &seen, Some(&s.rows))?;
        // Ends a basic block: otherwise ptxas sinks the exponentials below the wgmma wait.
        p.mbarrier_wait(full, s.values[1])?;
        // For the same reason the exponentials pass through that wait and are packed only after it:
        // otherwise ptxas serialises wgmma.
        let mut done = p.wgmma_wait_group(0, &[sums.as_slice(), &made].concat(), &s.weights)?;
        let made = done.split_off(sums.len());
        self.release(c, t, Pipeline::Values, s.values[0])?;
        let by = |i: usize| factors[i / 2 % 2].ok_or("has no earlier sums");
        let scaled = done.iter().enumerate().map(|(i, x)| arith::mulf(c, *x, by(i)?));
        let sums = scaled.collect::<Result<Vec<Value>>>()?;
        Ok(LoopCarried {
            weights: self.pack_fragments(p, &made)?,
            accumulators: sums,
            rows,
            keys: self.next_stage(p, Pipeline::Keys, s.keys)?,
            values: s.keys,
        })
    }

    /// A consumer warpgroup. `thread`: its thread, 0 to 127.
    pub(super) fn consume(&self, c: Code, group: Value, thread: Value, warp: Value) -> Result<()> {
        let (zero, p) = (Ptx(c).number(0)?, Ptx(c));
        let lane = p.rem_const(thread, 32)?;
        let high = p.add(p.mul_const(p.rem_const(warp, 4)?, 16)?, p.div_const(lane, 4)?)?;
        let (row, column) =
            (p.add(p.mul_const(group, ROWS)?, high)?, p.mul_const(p.rem_const(lane, 4)?, 2)?);
        let elected = p.eq_const(lane, 0)?;
        self.for_each_tile(c, &[zero; 4], &mut |c, query_tile, carried| {
            let (p, query) = (Ptx(c), [carried[0], carried[1]]);
            let row = p.add(query_tile.first, row)?;
            // Rows out of bounds read what the last row reads, and are not stored.
            let last = p.add_signed(self.queries, -1)?;
            let there = |row: Value| if self.partial_tiles[0] { p.min(row, last) } else { Ok(row) };
            let known = self.score.rows(
                c,
                &query_tile.outer,
                [there(row)?, there(p.add_const(row, 8)?)?],
            )?;
            let queries = p.add(
                self.stage_address(p, Pipeline::Queries, query[0])?,
                p.mul_const(group, ROWS * ROW)?,
            )?;
            let t = Thread {
                query_tile,
                elected,
                lane,
                row,
                column,
                scores: known,
                queries,
                group: [group, thread],
            };
            p.mbarrier_wait(self.full_barrier(p, Pipeline::Queries, query[0])?, query[1])?;
            let first = self.first_tile(c, &t, [carried[2], carried[3]])?;
            let (mut state, mut from) = (first.flat(), p.i32_to_index(p.number(1)?)?);
            let one = c.index(1)?;
            let mut some = |to: Value, last: bool, far: bool| -> Result<()> {
                let to = p.i32_to_index(to)?;
                state = c.for_dynamic_step(from, to, one, &state, &mut |c, back, state| {
                    Ok(self
                        .next_tile(
                            c,
                            &t,
                            &first.like(state),
                            Ptx(c).index_to_i32(back)?,
                            Edges { last, window: far },
                        )?
                        .flat())
                })?;
                from = to;
                Ok(())
            };
            if self.masks_earlier_tiles() {
                some(query_tile.blocks[1], true, true)?;
            }
            if let Some(far) = query_tile.first_key_tile {
                some(far, false, false)?;
            }
            some(query_tile.blocks[0], false, true)?;
            let state = first.like(&state);
            self.release(c, &t, Pipeline::Queries, query[0])?;
            p.mbarrier_wait(
                self.full_barrier(p, Pipeline::Values, state.values[0])?,
                state.values[1],
            )?;
            let sums =
                self.multiply_values(p, &state.weights, &state.accumulators, state.values[0])?;
            let sums = p.wgmma_wait_group(0, &sums, &state.weights)?;
            self.release(c, &t, Pipeline::Values, state.values[0])?;
            self.finish(c, &t, &sums, &state.rows)?;
            Ok([self.next_stage(p, Pipeline::Queries, query)?, state.keys].concat())
        })
    }
}
