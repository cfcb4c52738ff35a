//! The consumers: the products of each K step, and the accumulators' way to the epilogue.
use crate::{
    emit::code::{Code, constant_value, rolled},
    strategies::gpu::{
        common::tile::Tile,
        wgmma_gemm::{
            ROW,
            tile::{TileCoord, WgmmaTile},
        },
    },
};
use kiln_dialects::ir::*;

/// wgmma instructions of a tile up to which LLVM may unroll the K loop: with 32 of them and 128
/// accumulators per thread, addresses spill.
const WRITTEN_OUT: usize = 24;

/// Trip count up to which LLVM unrolls a loop completely.
const SHORT: usize = 6;

impl WgmmaTile<'_> {
    /// Starts the product of a stage.
    pub(super) fn start_product(
        &self,
        c: Code,
        stage: Value,
        sums: Option<Value>,
    ) -> Result<Value> {
        let (t, product) = (Tile(c), self.product());
        let transposed = [!product.left.k_major, product.rights[0].k_major];
        let (left, right) = (t.view(self.left, stage)?, t.view(self.right, stage)?);
        let ty = self.accumulators(c, self.n);
        t.mma_transposed(left, right, sums, transposed, ty)
    }

    /// Starts the product of a stage and waits until it is the only one under way.
    fn multiply(&self, c: Code, stage: Value, sums: Option<Value>) -> Result<Value> {
        let sums = self.start_product(c, stage, sums)?;
        Tile(c).mma_wait(1, &[], &[])?;
        Ok(sums)
    }

    /// The consumers.
    pub(super) fn consume(&self, c: Code) -> Result<()> {
        if self.product().prologue.is_some() {
            return self.consume_computed(c);
        }
        if self.product().is_promoted() {
            return self.consume_promoted(c);
        }
        self.for_each_tile(c, &mut |c, coord, first| {
            let t = Tile(c);
            // The first K step ignores the accumulators: zeroing them needs a wgmma fence, and LLVM
            // moves register writes across it.
            t.wait(self.left, first)?;
            let sums = self.multiply(c, first, None)?;
            // Loop-carried: accumulators, stage, previous stage.
            let state = [sums, t.next_stage(self.left, first)?, first];
            let (one, steps) = (c.index(1)?, self.k_split.count);
            let done = c.for_dynamic_step(one, steps, one, &state, &mut |c, _, state| {
                let (t, stage) = (Tile(c), state[1]);
                t.wait(self.left, stage)?;
                let sums = self.multiply(c, stage, Some(state[0]))?;
                t.release(self.left, state[2])?;
                Ok(vec![sums, t.next_stage(self.left, stage)?, stage])
            })?;
            // LLVM would unroll the loop and keep the addresses of all K steps live beside the
            // accumulators. LLVM and ptxas leave longer loops rolled.
            let each = self.m / 64 / self.warpgroups * (ROW / 32);
            if constant_value(steps)
                .is_some_and(|n| n as usize <= SHORT && n as usize * each > WRITTEN_OUT)
            {
                rolled(&done)?;
            }
            let sums = t.mma_wait(0, &[done[0]], &[])?[0];
            t.release(self.left, done[2])?;
            self.finish(c, coord, sums)?;
            Ok(done[1])
        })
    }

    /// The end of a tile: the sum over the CTAs that share it, and the epilogue.
    pub(super) fn finish(&self, c: Code, coord: &TileCoord, sums: Value) -> Result<()> {
        let k = &self.k_split;
        match k.splits {
            1 => self.epilogue(c, coord, sums),
            splits => Tile(c)
                .cluster_reduce(sums, k.rank, splits, &mut |c, sums| self.epilogue(c, coord, sums)),
        }
    }
}
