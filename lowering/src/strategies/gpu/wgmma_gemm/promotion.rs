//! Products of 8-bit floats. wgmma adds their products with about 14 bits, so that the sum of a K
//! step of 128 elements is added to others in f32 registers ("two-level accumulation": CUTLASS's
//! `GmmaFP8Accumulation`, DeepSeek-V3, arXiv:2412.19437, section 3.3.2).
use crate::{
    emit::code::Code,
    strategies::gpu::{common::tile::Tile, wgmma_gemm::tile::WgmmaTile},
};
use kiln_dialects::ir::*;

/// Most columns of a tile whose sums of a K step a thread holds beside its accumulators.
pub(super) const MOST_COLUMNS: usize = 192;

impl WgmmaTile<'_> {
    /// The sum of a K step. The other consumer warpgroup multiplies while this one adds.
    fn multiply_alone(&self, c: Code, stage: Value) -> Result<Value> {
        let t = Tile(c);
        t.wait(self.left, stage)?;
        let sums = self.start_product(c, stage, None)?;
        let sums = t.mma_wait(0, &[sums], &[])?[0];
        t.release(self.left, stage)?;
        Ok(sums)
    }

    /// The consumers.
    pub(super) fn consume_promoted(&self, c: Code) -> Result<()> {
        self.for_each_tile(c, &mut |c, coord, first| {
            let sums = self.multiply_alone(c, first)?;
            // Loop-carried: accumulators, stage.
            let state = [sums, Tile(c).next_stage(self.left, first)?];
            let (one, steps) = (c.index(1)?, self.k_split.count);
            let done = c.for_dynamic_step(one, steps, one, &state, &mut |c, _, state| {
                let more = self.multiply_alone(c, state[1])?;
                let sums = arith::addf(c, state[0], more)?;
                Ok(vec![sums, Tile(c).next_stage(self.left, state[1])?])
            })?;
            self.finish(c, coord, done[0])?;
            Ok(done[1])
        })
    }
}
