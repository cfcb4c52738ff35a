//! A thread of the consumer warpgroups, and where it stands in a tile.
use crate::{emit::code::Code, strategies::gpu::common::ptx::Ptx, target::launch::WARP};
use kiln_dialects::ir::*;

/// Rows of a warpgroup.
pub(super) const ROWS: usize = 64;
/// Warps of a warpgroup.
pub(super) const WARPS: usize = 4;

/// A consumer thread.
#[derive(Clone, Copy)]
pub(super) struct Thread {
    /// Its warpgroup, and its place there.
    pub(super) group: Value,
    pub(super) thread: Value,
    /// Its lane, and whether it is its warp's elected lane.
    pub(super) lane: Value,
    pub(super) elected: Value,
    /// Its first row, and its first column in a tile.
    pub(super) row: Value,
    pub(super) column: Value,
}

impl Thread {
    pub(super) fn of(c: Code, group: Value, thread: Value, warp: Value) -> Result<Thread> {
        let p = Ptx(c);
        let lane = p.rem_const(thread, WARP)?;
        let high = p.add(p.mul_const(p.rem_const(warp, WARPS)?, 16)?, p.div_const(lane, 4)?)?;
        let row = p.add(p.mul_const(group, ROWS)?, high)?;
        let column = p.mul_const(p.rem_const(lane, 4)?, 2)?;
        Ok(Thread { group, thread, lane, elected: p.eq_const(lane, 0)?, row, column })
    }
}
