//! What all parts of attention with split keys share: tile sizes, and a thread's place in its warp,
//! CTA and cluster.
use crate::{
    emit::body::Scope,
    strategies::gpu::{common::score::Score, split_attention::SplitPattern},
};
use kiln_dialects::ir::*;

/// Columns (N) of the mma.sync instruction.
pub(super) const EIGHT: usize = 8;

/// What all parts of the emission share.
#[derive(Clone)]
pub(super) struct Split<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) pattern: &'a SplitPattern,
    pub(super) score: Score<'a>,
    /// Keys of a warp's step.
    pub(super) keys: usize,
    /// CTAs of a cluster.
    pub(super) splits: usize,
    /// Rows of a tile.
    pub(super) rows: usize,
    pub(super) warps: usize,
    /// The base of shared memory.
    pub(super) base: Value,
    /// The thread in its CTA, and its warp.
    pub(super) thread: Value,
    pub(super) warp: Value,
    /// The lane's group (0 to 7), and its place in the group (0 to 3), as mma.sync numbers them.
    pub(super) lane: [Value; 2],
    /// The CTA's rank in its cluster.
    pub(super) rank: Value,
    /// The numbers of queries, of keys, and of rows.
    pub(super) queries: Value,
    pub(super) count: Value,
    pub(super) total: Value,
    /// Whether a warp's last step may exceed the keys.
    pub(super) partial_step: bool,
}

impl Split<'_> {
    /// Rows of a thread.
    pub(super) fn rows_per_thread(&self) -> usize {
        self.rows / EIGHT
    }
}
