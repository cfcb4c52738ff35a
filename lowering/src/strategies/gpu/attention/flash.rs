//! What all parts of attention on Hopper share: sizes, tensor maps, and the pipelines of queries,
//! keys and values.
use crate::{
    emit::body::Scope,
    strategies::gpu::{attention::FlashPattern, common::score::Score, wgmma_gemm::DEPTH},
};
use kiln_dialects::ir::*;

/// Warps of a consumer warpgroup.
pub(super) const WARPS: usize = 4;

/// Bytes of a row of a slice in shared memory.
pub(super) const ROW: usize = 2 * DEPTH;

/// What all parts of the emission share.
pub(super) struct Flash<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) pattern: &'a FlashPattern,
    pub(super) score: Score<'a>,
    pub(super) maps: [Value; 3],
    pub(super) warpgroups: usize,
    /// Keys of a tile.
    pub(super) keys: usize,
    /// Stages of keys and values.
    pub(super) kv_stages: usize,
    /// Stages of queries.
    pub(super) q_stages: usize,
    /// Bytes of a stage of queries, of keys, of values.
    pub(super) bytes: [usize; 3],
    /// The base of the pipelines in shared memory.
    pub(super) base: Value,
    /// Sizes of the outer loops.
    pub(super) outer_sizes: Vec<Value>,
    /// The numbers of queries and of keys, as 32-bit integers.
    pub(super) queries: Value,
    pub(super) count: Value,
    /// Query tiles of an outer position, and in total.
    pub(super) tiles_per_outer: Value,
    pub(super) tiles: Value,
    /// Whether queries, and keys, may end within a tile.
    pub(super) partial_tiles: [bool; 2],
}

/// A multi-stage pipeline in shared memory.
#[derive(Clone, Copy)]
pub(super) enum Pipeline {
    Queries,
    Keys,
    Values,
}
