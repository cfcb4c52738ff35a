//! Split-K within a cluster. Each CTA owns some rows of the tile, 16 per warp: the others send it
//! their accumulators of these rows, and it reduces them and runs the epilogue. The order of the
//! reduction is fixed, so results are the same in every run.
//!
//! `cp.async.bulk` copies accumulators to the owner's shared memory, over its pipeline stages, and
//! an mbarrier counts the bytes: making threads' stores visible to a whole cluster would take
//! microseconds.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        common::{ptx::Ptx, threads},
        wgmma_gemm::{split_k::ROWS, tile::WgmmaTile},
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

/// Bytes of a warp's line: four accumulators per lane.
const LINE: usize = 16 * WARP;

/// Emits the epilogue on a warpgroup's accumulators, by 64 rows.
pub(super) type Finish<'a> = dyn Fn(Code, &[Vec<Value>]) -> Result<()> + 'a;

impl WgmmaTile<'_> {
    /// The mbarrier at which the other CTAs' accumulators arrive.
    fn reduction_mbarrier(&self, p: Ptx) -> Result<Value> {
        self.empty_barrier(p, p.number(self.stages)?)
    }
    /// Bytes of a warp's accumulators.
    fn warp_bytes(&self) -> usize {
        4 * ROWS * self.n
    }
    /// Warp-sized row blocks of a tile that each CTA owns.
    fn owned_blocks(&self) -> usize {
        self.m / ROWS / self.k_split.splits
    }
    /// Initialises that mbarrier, which expects the bytes of all other CTAs.
    pub(super) fn init_reduction_mbarrier(&self, p: Ptx) -> Result<()> {
        if self.k_split.splits == 1 {
            return Ok(());
        }
        p.mbarrier_init(self.reduction_mbarrier(p)?, 1)?;
        p.mbarrier_arrive_expect_tx(
            self.reduction_mbarrier(p)?,
            (self.k_split.splits - 1) * self.owned_blocks() * self.warp_bytes(),
        )
    }
    /// The barriers that the producer warps pass while the consumers reduce.
    pub(super) fn producer_barriers(&self, c: Code) -> Result<()> {
        threads::barrier(c)?;
        Ptx(c).cluster_barrier_relaxed()?;
        Ptx(c).cluster_barrier_relaxed()
    }
    /// Reduces the accumulators of all CTAs; the owners of the rows run the epilogue. `[group,
    /// thread, warp]`: the warpgroup, the thread in it, the warp in the CTA.
    pub(super) fn reduce_and_finish(
        &self,
        c: Code,
        [group, thread, warp]: [Value; 3],
        values: &[Vec<Value>],
        finish: &Finish<'_>,
    ) -> Result<()> {
        let (p, units) = (Ptx(c), self.owned_blocks());
        let [own] = values else { return Err("has more than 64 rows of a group".into()) };
        let unit = p.add(p.mul_const(group, 4)?, p.rem_const(warp, 4)?)?;
        let (owner, number) = (p.div_const(unit, units)?, p.rem_const(unit, units)?);
        let mine = c.compare(CmpIPredicate::Eq, owner, self.k_split.rank)?;
        let lane = p.rem_const(thread, WARP)?;
        // Received accumulators follow the CTA's own, by the sender's distance in rank.
        let partial_address = |p: Ptx, distance: Value| -> Result<Value> {
            let before = p.add(p.mul_const(distance, units)?, number)?;
            p.add_const(
                p.add(self.pipeline, p.mul_const(before, self.warp_bytes())?)?,
                4 * self.m * self.n - units * self.warp_bytes(),
            )
        };
        // All wgmmas of the CTA, then of the cluster, have read the pipeline stages.
        threads::barrier(c)?;
        p.cluster_barrier_relaxed()?;
        let mut give = |c: Code| -> Result<()> {
            let (p, four) = (Ptx(c), Type::vector(Ptx(c).f32(), 4));
            let from = p.add(self.pipeline, p.mul_const(unit, self.warp_bytes())?)?;
            let at = p.add(from, p.mul_const(lane, 16)?)?;
            for (i, sums) in own.chunks(4).enumerate() {
                p.store_shared(
                    p.add_const(at, i * LINE)?,
                    vector::from_elements(c, sums, four)?,
                    16,
                )?;
            }
            p.fence_proxy_async()?;
            p.warp_barrier()?;
            let distance = p.rem_const(
                p.add_const(p.sub(self.k_split.rank, owner)?, self.k_split.splits)?,
                self.k_split.splits,
            )?;
            let to = partial_address(p, distance)?;
            c.if_else(
                p.eq_const(lane, 0)?,
                &mut |c| {
                    Ptx(c).bulk_copy_to_cluster(
                        from,
                        to,
                        owner,
                        self.warp_bytes(),
                        self.reduction_mbarrier(Ptx(c))?,
                    )
                },
                None,
            )
        };
        let mut take = |c: Code| -> Result<()> {
            let (p, mut all) = (Ptx(c), own.clone());
            p.mbarrier_wait(self.reduction_mbarrier(p)?, p.number(0)?)?;
            for i in 1..self.k_split.splits {
                let at = p.add(partial_address(p, p.number(i)?)?, p.mul_const(lane, 16)?)?;
                for (line, sums) in all.chunks_mut(4).enumerate() {
                    let other = p.load_shared_vector(p.add_const(at, line * LINE)?, p.f32(), 4)?;
                    sums.iter_mut()
                        .zip(other)
                        .try_for_each(|(a, b)| arith::addf(p, *a, b).map(|sum| *a = sum))?;
                }
            }
            finish(c, &[all])
        };
        c.if_else(mine, &mut take, Some(&mut give))?;
        // A CTA must not exit while another one reads its shared memory.
        p.cluster_barrier_relaxed()
    }
}
