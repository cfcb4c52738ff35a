//! A consumer warpgroup: it issues the wgmmas of each K step, and hands the accumulators to the
//! epilogue.
use crate::{
    emit::code::{Code, constant_value, rolled},
    strategies::gpu::{
        common::ptx::{Mma, Ptx, wgmma_type},
        wgmma_gemm::{
            ROW,
            tile::{Fragments, WgmmaTile},
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
    /// Issues the wgmmas of a stage.
    fn multiply(
        &self,
        p: Ptx,
        stage: Value,
        group: Value,
        sums: &[Value],
        first: bool,
    ) -> Result<Vec<Value>> {
        let product = self.product();
        let (left_deep, right_deep) = (product.left.k_major, product.rights[0].k_major);
        let element = wgmma_type(product.element);
        let mma = Mma { columns: self.n, element, a_k_major: left_deep, b_k_major: right_deep };
        let left = p.add(self.pipeline, p.mul_const(stage, self.stage_bytes())?)?;
        let right = p.wgmma_descriptor(p.add_const(left, self.m * ROW)?, right_deep)?;
        // 64 rows take 8 KiB, K-major or MN-major.
        let mine = p.mul_const(self.warpgroup_row(p, group)?, ROW)?;
        let left = p.wgmma_descriptor(p.add(left, mine)?, left_deep)?;
        let step = |k_major: bool| if k_major { 32 } else { 16 * ROW };
        p.wgmma_fence()?;
        let mut sums = sums.to_vec();
        // A wgmma takes 32 bytes of K, for any element type.
        for k in 0..ROW / 32 {
            let right = p.advance_descriptor(right, k * step(right_deep))?;
            for (b, sum) in sums.iter_mut().enumerate() {
                let left = p.advance_descriptor(left, k * step(left_deep) + b * 64 * ROW)?;
                *sum = p.wgmma(&mma, left, right, *sum, first && k == 0)?;
            }
        }
        p.wgmma_commit_and_wait()?;
        Ok(sums)
    }

    /// A consumer warpgroup. `thread`: its thread, 0 to 127.
    pub(super) fn consume(&self, c: Code, group: Value, thread: Value, warp: Value) -> Result<()> {
        if self.product().prologue.is_some() {
            return self.consume_computed(c, group, thread, warp);
        }
        let blocks = self.m / 64 / self.warpgroups;
        self.for_each_tile(
            c,
            &[Ptx(c).number(0)?, Ptx(c).number(0)?],
            &mut |c, tile_coord, carried| {
                let p = Ptx(c);
                let elected = p.eq_const(thread, 0)?;
                let release = |c: Code, stage: Value| {
                    c.if_else(
                        elected,
                        &mut |c| Ptx(c).mbarrier_arrive(self.empty_barrier(Ptx(c), stage)?),
                        None,
                    )
                };
                let nothing: Vec<Value> =
                    (0..blocks).map(|_| p.undef_accumulators(self.n)).collect::<Result<_>>()?;
                // The first K step ignores the accumulators: zeroing them needs a wgmma fence, and
                // LLVM moves register writes across it.
                p.mbarrier_wait(self.full_barrier(p, carried[0])?, carried[1])?;
                let mut state = self.multiply(p, carried[0], group, &nothing, true)?;
                // Loop-carried after the accumulators: stage, parity, previous stage.
                state.extend(self.next_stage(p, carried[0], carried[1])?);
                state.push(carried[0]);
                let (one, steps) = (c.index(1)?, self.k_split.count);
                let done = c.for_dynamic_step(one, steps, one, &state, &mut |c, _, state| {
                    let p = Ptx(c);
                    let (sums, rest) = state.split_at(blocks);
                    let [stage, parity, before] = [rest[0], rest[1], rest[2]];
                    p.mbarrier_wait(self.full_barrier(p, stage)?, parity)?;
                    let mut next = self.multiply(p, stage, group, sums, false)?;
                    release(c, before)?;
                    next.extend(self.next_stage(p, stage, parity)?);
                    next.push(stage);
                    Ok(next)
                })?;
                // LLVM would unroll the loop and keep the addresses of all K steps live beside the
                // accumulators. LLVM and ptxas leave longer loops rolled.
                if constant_value(steps).is_some_and(|n| {
                    n as usize <= SHORT && n as usize * blocks * (ROW / 32) > WRITTEN_OUT
                }) {
                    rolled(&done)?;
                }
                let (sums, rest) = done.split_at(blocks);
                let values = p.wgmma_wait_all(sums, self.n)?;
                release(c, rest[2])?;
                let finish = |c: Code, values: &[Vec<Value>]| {
                    let values = values
                        .iter()
                        .map(|v| v.chunks(self.operand_columns() / 2).collect())
                        .collect();
                    self.finish(
                        c,
                        &Fragments { coord: tile_coord, warpgroup: group, thread, warp, values },
                    )
                };
                if self.k_split.splits > 1 {
                    self.reduce_and_finish(c, [group, thread, warp], &values, &finish)
                } else {
                    finish(c, &values)
                }?;
                Ok(vec![rest[0], rest[1]])
            },
        )
    }
}
