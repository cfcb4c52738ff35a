//! Sums over a cluster. Each CTA owns some rows of the tile, 16 per warp: the others send it their
//! elements of these rows, and it adds them and runs the body. The order of the sum is fixed, so
//! results are the same in every run.
//!
//! `cp.async.bulk` copies the elements to the owner's shared memory, over its pipeline stages, and
//! an mbarrier counts the bytes: making threads' stores visible to a whole cluster would take
//! microseconds.
use crate::{
    emit::code::Code,
    gpu::lower_tiles::{
        fragments::Lowered,
        rings::Rings,
        role::Role,
        thread::{WARP_ROWS, WARPS},
    },
    strategies::gpu::common::{ptx::Ptx, threads},
    target::launch::WARP,
};
use kiln_dialects::{ir::*, ops::*};

/// Bytes of a warp's line: four elements per lane.
const LINE: usize = 16 * WARP;

/// How a tile is shared among CTAs.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    ctas: usize,
    /// Blocks of a warp's rows that each CTA owns.
    owned: usize,
    /// Bytes of a warp's elements, and of the tile.
    warp_bytes: usize,
    bytes: usize,
}

impl Shares {
    pub(super) fn of(op: Op) -> Result<Shares> {
        let o = TileClusterReduce::of(op).ok_or_malformed(op)?;
        let sizes: Vec<usize> =
            o.value.ty().dims().iter().filter_map(|d| Some(d.known()? as usize)).collect();
        let ([rows, columns], ctas) = (sizes.as_slice(), o.ctas as usize) else {
            return Err("has no tile".into());
        };
        let (owned, warp_bytes) = (rows / WARP_ROWS / ctas, 4 * WARP_ROWS * columns);
        Ok(Shares { ctas, owned, warp_bytes, bytes: 4 * rows * columns })
    }
    /// Initialises the mbarrier, which expects the bytes of all other CTAs.
    pub(super) fn barrier(self, p: Ptx, rings: &Rings) -> Result<()> {
        p.mbarrier_init(rings.reduction(p)?, 1)?;
        let bytes = (self.ctas - 1) * self.owned * self.warp_bytes;
        p.mbarrier_arrive_expect_tx(rings.reduction(p)?, bytes)
    }
}

/// The barriers that the producer warps pass while the consumers reduce.
pub(super) fn producer_barriers(c: Code) -> Result<()> {
    threads::barrier(c)?;
    Ptx(c).cluster_barrier_relaxed()?;
    Ptx(c).cluster_barrier_relaxed()
}

impl Role<'_> {
    /// Sums the elements of all CTAs; the owners of the rows run the body.
    pub(super) fn cluster_reduce(&mut self, c: Code, op: Op) -> Result<()> {
        let o = TileClusterReduce::of(op).ok_or_malformed(op)?;
        let (p, s, thread, rings) = (Ptx(c), Shares::of(op)?, self.thread()?, self.rings);
        if self.blocks(o.value.ty())? != 1 {
            return Err("has more than 64 rows of a warpgroup".into());
        }
        let (own, rank) = (self.elements(o.value)?, self.scalar(o.rank));
        let element = o.value.ty().element().ok_or("has no element type")?;
        let is_float = element.dtype()?.is_float();
        let add = |p: Ptx, a: Value, b: Value| match is_float {
            true => arith::addf(p, a, b),
            false => arith::addi(p, a, b),
        };
        let unit = p.add(p.mul_const(thread.group, WARPS)?, thread.warp)?;
        let (owner, number) = (p.div_const(unit, s.owned)?, p.rem_const(unit, s.owned)?);
        let mine = c.compare(CmpIPredicate::Eq, owner, rank)?;
        // Received elements follow the CTA's own, by the sender's distance in rank.
        let received = |p: Ptx, distance: Value| -> Result<Value> {
            let before = p.add(p.mul_const(distance, s.owned)?, number)?;
            p.add_const(
                p.add(rings.base, p.mul_const(before, s.warp_bytes)?)?,
                s.bytes - s.owned * s.warp_bytes,
            )
        };
        // All wgmmas of the CTA, then of the cluster, have read the pipeline stages.
        threads::barrier(c)?;
        p.cluster_barrier_relaxed()?;
        let mut give = |c: Code| -> Result<()> {
            let (p, four) = (Ptx(c), Type::vector(element, 4));
            let from = p.add(rings.base, p.mul_const(unit, s.warp_bytes)?)?;
            let at = p.add(from, p.mul_const(thread.lane, 16)?)?;
            for (i, sums) in own.chunks(4).enumerate() {
                let sums = vector::from_elements(c, sums, four)?;
                p.store_shared(p.add_const(at, i * LINE)?, sums, 16)?;
            }
            p.fence_proxy_async()?;
            p.warp_barrier()?;
            let distance = p.rem_const(p.add_const(p.sub(rank, owner)?, s.ctas)?, s.ctas)?;
            let to = received(p, distance)?;
            let mut send = |c: Code| {
                let (p, barrier) = (Ptx(c), rings.reduction(Ptx(c))?);
                p.bulk_copy_to_cluster(from, to, owner, s.warp_bytes, barrier)
            };
            c.if_else(p.eq_const(thread.lane, 0)?, &mut send, None)
        };
        let body = op.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
        let mut take = |c: Code| -> Result<()> {
            let (p, mut all) = (Ptx(c), own.clone());
            p.mbarrier_wait(rings.reduction(p)?, p.number(0)?)?;
            for i in 1..s.ctas {
                let at = p.add(received(p, p.number(i)?)?, p.mul_const(thread.lane, 16)?)?;
                for (line, sums) in all.chunks_mut(4).enumerate() {
                    let other = p.load_shared_vector(p.add_const(at, line * LINE)?, element, 4)?;
                    for (a, b) in sums.iter_mut().zip(other) {
                        *a = add(p, *a, b)?;
                    }
                }
            }
            self.values.extend(body.args().first().map(|v| (*v, Lowered::Elements(all))));
            self.block(c, body).map(drop)
        };
        c.if_else(mine, &mut take, Some(&mut give))?;
        // A CTA must not exit while another one reads its shared memory.
        p.cluster_barrier_relaxed()
    }
}
