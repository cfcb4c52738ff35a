//! A thread of the consumer warpgroups, and where it stands in a tile.
use crate::{emit::code::Code, strategies::gpu::common::ptx::Ptx, target::launch::WARP};
use kiln_dialects::ir::*;

/// Rows of a warpgroup.
pub(super) const ROWS: usize = 64;
/// Rows of a warp.
pub(super) const WARP_ROWS: usize = 16;
/// Warps of a warpgroup.
pub(super) const WARPS: usize = 4;

/// A consumer thread.
#[derive(Clone, Copy)]
pub(super) struct Thread {
    /// Its warpgroup, and its place there.
    pub(super) group: Value,
    pub(super) thread: Value,
    /// Its warp in the warpgroup.
    pub(super) warp: Value,
    /// Its lane, and whether it is its warp's, or its warpgroup's, elected one.
    pub(super) lane: Value,
    pub(super) elected: Value,
    pub(super) leader: Value,
    /// The first row of its warp, and its own first row, in 64 rows of the warpgroup.
    pub(super) warp_row: Value,
    pub(super) row: Value,
    /// Its first column in a tile.
    pub(super) column: Value,
}

impl Thread {
    pub(super) fn of(c: Code, group: Value, thread: Value, warp: Value) -> Result<Thread> {
        let p = Ptx(c);
        let lane = p.rem_const(thread, WARP)?;
        let warp = p.rem_const(warp, WARPS)?;
        let warp_row = p.mul_const(warp, WARP_ROWS)?;
        let row = p.add(warp_row, p.div_const(lane, 4)?)?;
        let column = p.mul_const(p.rem_const(lane, 4)?, 2)?;
        let (elected, leader) = (p.eq_const(lane, 0)?, p.eq_const(thread, 0)?);
        Ok(Thread { group, thread, warp, lane, elected, leader, warp_row, row, column })
    }
}
