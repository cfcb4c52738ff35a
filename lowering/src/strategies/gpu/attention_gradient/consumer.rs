//! The consumers of attention's derivatives: two products of a tile for scores and for gradients of
//! weights, and one or two with them.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention_gradient::{
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

    /// A tile of columns. `state`: the accumulators, and the stage of the columns.
    fn column_tile(
        &self,
        c: Code,
        tile: &ScoreTile<'_>,
        kept: [Value; 2],
        state: &[Value],
    ) -> Result<Vec<Value>> {
        let (t, f) = (Tile(c), self.fragments());
        let (stage, sums) = state.split_last().ok_or("carries nothing")?;
        let ring = self.columns_ring;
        t.wait(ring[0], *stage)?;
        let columns = [t.view(ring[0], *stage)?, t.view(ring[1], *stage)?];
        let ty = f.accumulator(Ptx(c).f32(), self.block);
        let scores = t.mma(kept[0], columns[0], None, true, ty)?;
        let by_weights = t.mma(kept[1], columns[1], None, true, ty)?;
        let scores = t.mma_wait(1, &[scores], &[])?[0];
        let weights = self.weights(c, tile, scores)?;
        let done = t.mma_wait(0, &[by_weights, weights], &[])?;
        let [by_weights, weights] = [done[0], done[1]];
        let operand = f.operand(Type::scalar(c.ctx(), self.pattern.element), self.block);
        let mut next = sums.to_vec();
        let mut alive = vec![];
        // The product with weights overlaps the gradients.
        if let Some(sum) = sums.get(1) {
            let left = t.convert(weights, operand)?;
            next[1] = t.mma(left, columns[1], Some(*sum), false, sum.ty())?;
            alive.push(left);
        }
        let gradients = t.convert(self.gradients(c, tile, weights, by_weights)?, operand)?;
        next[0] = t.mma(gradients, columns[0], Some(sums[0]), false, sums[0].ty())?;
        alive.push(gradients);
        let mut next = t.mma_wait(0, &next, &alive)?;
        t.release(ring[0], *stage)?;
        next.push(t.next_stage(ring[0], *stage)?);
        Ok(next)
    }

    /// All columns that a tile of rows sees at a position of the outer loops.
    fn all_columns(
        &self,
        c: Code,
        (rows, kept): (&RowTile, [Value; 2]),
        (outer, statistics): (&[Value], Option<RowStatistics>),
        state: &[Value],
    ) -> Result<Vec<Value>> {
        let (one, mut state) = (c.index(1)?, state.to_vec());
        for (from, to, masked) in &rows.segments {
            state = c.for_dynamic_step(*from, *to, one, &state, &mut |c, i, state| {
                let p = Ptx(c);
                let column = p.mul_const(p.index_to_i32(i)?, self.block)?;
                let tile = ScoreTile { rows, outer, column, masked: *masked, statistics };
                self.column_tile(c, &tile, kept, state)
            })?;
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
            let kept = [t.view(self.rows_ring[0], stage)?, t.view(self.rows_ring[1], stage)?];
            let zeros = self.accumulators(c).into_iter().map(|ty| c.number(0.0, ty));
            let mut state = zeros.collect::<Result<Vec<_>>>()?;
            state.push(carried[1]);
            let mut done = self.for_each_outer(c, rows, &state, &mut |c, outer, state| {
                self.all_columns(c, (rows, kept), (outer, statistics), state)
            })?;
            t.release(self.rows_ring[0], stage)?;
            let columns = done.pop().ok_or("carries nothing")?;
            for (r, sums) in done.into_iter().enumerate() {
                self.finish(c, rows, r, sums)?;
            }
            Ok(vec![t.next_stage(self.rows_ring[0], stage)?, columns])
        })
    }
}
