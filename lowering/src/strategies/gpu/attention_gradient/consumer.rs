//! The consumers of attention's derivatives: two products of a tile for scores and for gradients of
//! weights, and one or two with them.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention_gradient::{
            carried::{Carried, Previous},
            emit::Gradient,
            row_tile::RowTile,
            weights::{RowStatistics, ScoreTile},
        },
        common::{ptx::Ptx, tile::Tile},
    },
};
use kiln_dialects::ir::*;

impl Gradient<'_> {
    /// The types of the accumulators: of the derivative by query, or those by key and value.
    fn accumulators(&self, c: Code) -> Vec<Type> {
        let widths = self.pattern.widths();
        let results = if self.by_keys() { 2 } else { 1 };
        let ty = |n: &usize| self.fragments().accumulator(Ptx(c).f32(), *n);
        widths[..results].iter().map(ty).collect()
    }

    /// Starts the products of both operands that stay with those of a tile of columns: scores, and
    /// gradients of weights.
    fn scores(&self, c: Code, kept: [Value; 2], stage: Value) -> Result<[Value; 2]> {
        let (t, ring) = (Tile(c), self.columns_ring);
        let ty = self.fragments().accumulator(Ptx(c).f32(), self.block);
        let one = |i: usize| t.mma(kept[i], t.view(ring[i], stage)?, None, true, ty);
        Ok([one(0)?, one(1)?])
    }

    /// Adds a product with a tile of columns to the `i`th accumulator, and starts it.
    fn accumulate(
        &self,
        c: Code,
        i: usize,
        left: Value,
        stage: Value,
        sum: Value,
    ) -> Result<Value> {
        let t = Tile(c);
        t.mma(left, t.view(self.columns_ring[i], stage)?, Some(sum), false, sum.ty())
    }

    /// A tile as the left operand of a product.
    fn operand(&self, c: Code, tile: Value) -> Result<Value> {
        let element = Type::scalar(c.ctx(), self.pattern.element);
        Tile(c).convert(tile, self.fragments().operand(element, self.block))
    }

    /// A tile of columns, whose products are done before the next tile.
    fn column_tile(
        &self,
        c: Code,
        tile: &ScoreTile<'_>,
        kept: [Value; 2],
        state: &Carried,
    ) -> Result<Carried> {
        let (t, stage, ring) = (Tile(c), state.stage, self.columns_ring[0]);
        let lse = self.column_statistic(c, tile, 0)?;
        t.wait(ring, stage)?;
        let [scores, by_weights] = self.scores(c, kept, stage)?;
        let stay = in_registers(kept);
        let scores = t.mma_wait(1, &[scores], &stay)?[0];
        let delta = self.column_statistic(c, tile, 1)?;
        let weights = self.weights(c, tile, scores, lse)?;
        let done = t.mma_wait(0, &[by_weights, weights], &stay)?;
        let [by_weights, weights] = [done[0], done[1]];
        let (mut sums, mut alive) = (state.sums.clone(), vec![]);
        // The product with weights overlaps the gradients.
        if let Some(sum) = state.sums.get(1) {
            let left = self.operand(c, weights)?;
            sums[1] = self.accumulate(c, 1, left, stage, *sum)?;
            alive.push(left);
        }
        let left = self.operand(c, self.gradients(c, tile, [weights, by_weights], delta)?)?;
        sums[0] = self.accumulate(c, 0, left, stage, sums[0])?;
        alive.push(left);
        let sums = t.mma_wait(0, &sums, &alive)?;
        t.release(ring, stage)?;
        Ok(Carried { sums, stage: t.next_stage(ring, stage)?, previous: None })
    }

    /// The products of the previous tile's weights and gradients.
    fn previous_products(
        &self,
        c: Code,
        sums: &[Value],
        previous: &Previous,
    ) -> Result<Vec<Value>> {
        let all = sums.iter().zip(&previous.operands).enumerate();
        all.map(|(i, (sum, left))| self.accumulate(c, i, *left, previous.stage, *sum)).collect()
    }

    /// States that the previous tile has been read, if there was one.
    fn release_previous(&self, c: Code, previous: &Previous) -> Result<()> {
        let there = c.compare(CmpIPredicate::Ne, previous.there, Ptx(c).number(0)?)?;
        let release = &mut |c: Code| Tile(c).release(self.columns_ring[0], previous.stage);
        c.if_else(there, release, None)
    }

    /// A tile of columns, whose scores overlap the products of the tile before, and whose weights
    /// and gradients do too. Operands of the first tile's predecessor are 0, in its own stage.
    fn overlapped_tile(
        &self,
        c: Code,
        tile: &ScoreTile<'_>,
        kept: [Value; 2],
        (state, previous): (&Carried, &Previous),
    ) -> Result<Carried> {
        let (t, stage, ring) = (Tile(c), state.stage, self.columns_ring[0]);
        let lse = self.column_statistic(c, tile, 0)?;
        t.wait(ring, stage)?;
        let [scores, by_weights] = self.scores(c, kept, stage)?;
        let sums = self.previous_products(c, &state.sums, previous)?;
        let stay = in_registers(kept);
        let scores = t.mma_wait(1 + sums.len(), &[scores], &stay)?[0];
        let delta = self.column_statistic(c, tile, 1)?;
        let weights = self.weights(c, tile, scores, lse)?;
        let done = t.mma_wait(sums.len(), &[by_weights, weights], &stay)?;
        let gradients = self.gradients(c, tile, [done[1], done[0]], delta)?;
        // Packed only after the wait: otherwise ptxas serialises wgmma.
        let mut made = vec![gradients];
        made.extend((sums.len() > 1).then_some(done[1]));
        let count = sums.len();
        let done = t.mma_wait(0, &[sums, made].concat(), &previous.operands)?;
        let (sums, made) = done.split_at(count);
        self.release_previous(c, previous)?;
        let operands = made.iter().map(|v| self.operand(c, *v)).collect::<Result<_>>()?;
        let previous = Some(Previous { operands, stage, there: Ptx(c).number(1)? });
        Ok(Carried { sums: sums.to_vec(), stage: t.next_stage(ring, stage)?, previous })
    }

    /// The state before the first tile.
    fn first(&self, c: Code, stage: Value) -> Result<Carried> {
        let p = Ptx(c);
        let zeros = self.accumulators(c).into_iter().map(|ty| c.number(0.0, ty));
        let sums = zeros.collect::<Result<Vec<_>>>()?;
        let element = Type::scalar(c.ctx(), self.pattern.element);
        let none = c.number(0.0, self.fragments().operand(element, self.block))?;
        let operands = vec![none; sums.len()];
        let previous = Previous { operands, stage, there: p.number(0)? };
        Ok(Carried { sums, stage, previous: self.overlaps.then_some(previous) })
    }

    /// The sums once the products of the last tile are done, and the next stage.
    fn last(&self, c: Code, state: Carried) -> Result<(Vec<Value>, Value)> {
        let Some(previous) = &state.previous else { return Ok((state.sums, state.stage)) };
        let p = Ptx(c);
        // Without a tile there is no stage to read.
        let count = p.i32_to_index(p.opaque(previous.there)?)?;
        let (none, one) = (c.index(0)?, c.index(1)?);
        let sums = c.for_dynamic_step(none, count, one, &state.sums, &mut |c, _, sums| {
            let made = self.previous_products(c, sums, previous)?;
            Tile(c).mma_wait(0, &made, &previous.operands)
        })?;
        self.release_previous(c, previous)?;
        Ok((sums, state.stage))
    }

    /// One of the tiles that stay, as a left operand.
    fn kept_tile(&self, c: Code, i: usize, stage: Value) -> Result<Value> {
        let (t, element) = (Tile(c), Type::scalar(c.ctx(), self.pattern.element));
        let tile = t.view(self.rows_ring[i], stage)?;
        let operand = || self.fragments().operand(element, self.pattern.widths()[i]);
        if self.in_registers { t.local_load(tile, operand()) } else { Ok(tile) }
    }

    /// All columns that a tile of rows sees at a position of the outer loops.
    fn all_columns(
        &self,
        c: Code,
        (rows, kept): (&RowTile, [Value; 2]),
        (outer, statistics): (&[Value], Option<RowStatistics>),
        state: Carried,
    ) -> Result<Carried> {
        let (one, mut state) = (c.index(1)?, state);
        for (from, to, masked) in &rows.segments {
            let done = c.for_dynamic_step(*from, *to, one, &state.flat(), &mut |c, i, flat| {
                let p = Ptx(c);
                let column = p.mul_const(p.index_to_i32(i)?, self.block)?;
                let tile = ScoreTile { rows, outer, column, masked: *masked, statistics };
                let state = state.like(flat)?;
                let next = match &state.previous {
                    Some(previous) => self.overlapped_tile(c, &tile, kept, (&state, previous))?,
                    None => self.column_tile(c, &tile, kept, &state)?,
                };
                Ok(next.flat())
            })?;
            state = state.like(&done)?;
        }
        Ok(state)
    }

    /// The consumers.
    pub(super) fn consume(&self, c: Code) -> Result<()> {
        let first = Tile(c).first_stage()?;
        self.for_each_tile(c, &[first, first], &mut |c, rows, carried| {
            let (t, stage) = (Tile(c), carried[0]);
            let statistics = match self.by_keys() {
                true => None,
                false => Some(self.row_statistics(c, rows, &rows.kept)?),
            };
            t.wait(self.rows_ring[0], stage)?;
            let kept = [self.kept_tile(c, 0, stage)?, self.kept_tile(c, 1, stage)?];
            let state = self.first(c, carried[1])?;
            let done = self.for_each_outer(c, rows, &state.flat(), &mut |c, outer, flat| {
                let state = state.like(flat)?;
                Ok(self.all_columns(c, (rows, kept), (outer, statistics), state)?.flat())
            })?;
            let (done, columns) = self.last(c, state.like(&done)?)?;
            t.release(self.rows_ring[0], stage)?;
            for (r, sums) in done.into_iter().enumerate() {
                self.finish(c, rows, r, sums)?;
            }
            Ok(vec![t.next_stage(self.rows_ring[0], stage)?, columns])
        })
    }
}

/// The tiles that stay, where products read their registers.
fn in_registers(kept: [Value; 2]) -> Vec<Value> {
    kept.into_iter().filter(|v| !v.ty().is_memref()).collect()
}
