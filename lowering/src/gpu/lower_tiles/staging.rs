//! Staging of results: a warp writes 16 rows of 128 bytes to shared memory, and TMA stores them while
//! the next ones are computed. Where rows are not 16-byte aligned, `lines` stores them.
use crate::{
    emit::code::Code,
    gpu::lower_tiles::{
        role::Role,
        thread::{Thread, WARPS},
    },
    strategies::gpu::{
        common::ptx::Ptx,
        wgmma_gemm::{ROW, STORED},
    },
};
use kiln_dialects::ir::*;

/// Staging buffers of a warp.
pub(super) const BUFFERS: usize = 2;

/// Where a result is stored.
pub(super) struct Destination {
    /// A tensor map, or memory.
    pub(super) to: Value,
    pub(super) element: Type,
    /// Columns of 128 bytes.
    pub(super) columns: usize,
}

impl Destination {
    pub(super) fn is_tensor_map(&self) -> bool {
        !self.to.ty().is_memref()
    }
}

/// A warp's staging buffers.
pub(super) struct Staging {
    /// The base of its two buffers.
    memory: Value,
    pub(super) lane: Value,
    elected: Value,
    /// Buffers used so far for this tile.
    used: usize,
    /// Whether a tile may begin with the buffer that the previous tile used last.
    odd: bool,
    /// Whether TMA stores all results, so that the two buffers alternate.
    all: bool,
}

impl Staging {
    /// `buffers`: how many a tile uses.
    pub(super) fn of(
        p: Ptx,
        role: &Role<'_>,
        thread: Thread,
        destinations: &[Destination],
        buffers: usize,
    ) -> Result<Staging> {
        let own = p.add(p.mul_const(thread.group, WARPS)?, thread.warp)?;
        Ok(Staging {
            memory: p.add(role.rings.staging(p)?, p.mul_const(own, BUFFERS * STORED * ROW)?)?,
            lane: thread.lane,
            elected: thread.elected,
            used: 0,
            odd: buffers % 2 == 1,
            all: destinations.iter().all(Destination::is_tensor_map),
        })
    }
    /// A buffer that no TMA store still reads.
    pub(super) fn next_buffer(&mut self, c: Code) -> Result<Value> {
        let left = usize::from(self.all && !(self.odd && self.used == 0));
        c.if_else(self.elected, &mut |c| Ptx(c).tma_store_wait(left, false), None)?;
        Ptx(c).warp_barrier()?;
        let at = Ptx(c).add_const(self.memory, self.used % 2 * STORED * ROW)?;
        self.used += 1;
        Ok(at)
    }
    /// Begins with the first buffer again, since nothing reads either.
    pub(super) fn restart(&mut self) {
        self.used = 0;
    }
    /// The address of 16-byte chunk `chunk` of a row, under the 128-byte swizzle.
    pub(super) fn chunk_address(
        &self,
        p: Ptx,
        buffer: Value,
        row: Value,
        chunk: Value,
    ) -> Result<Value> {
        let swizzled = arith::xori(p.0, chunk, p.rem_const(row, 8)?)?;
        p.add(buffer, p.add(p.mul_const(row, ROW)?, p.mul_const(swizzled, 16)?)?)
    }
    /// Stages pairs of elements of the upper and the lower 8 rows, for each 8 columns.
    pub(super) fn stage(
        &self,
        p: Ptx,
        d: &Destination,
        buffer: Value,
        pairs: &[[Value; 2]],
    ) -> Result<()> {
        match d.element.dtype()?.byte_size() {
            2 => self.stage_16_bit(p, buffer, pairs),
            _ => self.stage_32_bit(p, buffer, pairs),
        }
    }
    /// By stmatrix.
    fn stage_16_bit(&self, p: Ptx, buffer: Value, pairs: &[[Value; 2]]) -> Result<()> {
        let (row, right) = (p.rem_const(self.lane, 16)?, p.div_const(self.lane, 16)?);
        for (i, both) in pairs.chunks(2).enumerate() {
            let [[a, b], [c, d]] = both else {
                return Err("has an odd number of columns".into());
            };
            let parts = [
                p.pack_elements(*a)?,
                p.pack_elements(*b)?,
                p.pack_elements(*c)?,
                p.pack_elements(*d)?,
            ];
            p.stmatrix(self.chunk_address(p, buffer, row, p.add_const(right, 2 * i)?)?, parts)?;
        }
        Ok(())
    }
    fn stage_32_bit(&self, p: Ptx, buffer: Value, pairs: &[[Value; 2]]) -> Result<()> {
        let (row, pair) = (p.div_const(self.lane, 4)?, p.rem_const(self.lane, 4)?);
        for (i, halves) in pairs.iter().enumerate() {
            for (half, v) in halves.iter().enumerate() {
                let at = self.chunk_address(
                    p,
                    buffer,
                    p.add_const(row, 8 * half)?,
                    p.add_const(p.div_const(pair, 2)?, 2 * i)?,
                )?;
                p.store_shared(p.add(at, p.mul_const(p.rem_const(pair, 2)?, 8)?)?, *v, 8)?;
            }
        }
        Ok(())
    }

    /// Stores a buffer by TMA.
    pub(super) fn store_by_tma(
        &self,
        c: Code,
        d: &Destination,
        buffer: Value,
        at: &[Value],
    ) -> Result<()> {
        let p = Ptx(c);
        p.fence_proxy_async()?;
        p.warp_barrier()?;
        c.if_else(self.elected, &mut |c| Ptx(c).tma_store(d.to, buffer, at), None)
    }
}
