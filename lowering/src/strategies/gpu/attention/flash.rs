//! What all parts of attention on Hopper share: sizes, tensor maps, and the pipelines of queries,
//! keys and values.
use crate::{
    emit::body::Scope,
    strategies::gpu::{
        attention::FlashPattern,
        common::{score::Score, tile::Fragments},
    },
};
use kiln_dialects::ir::*;

/// What all parts of the emission share.
pub(super) struct Flash<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) pattern: &'a FlashPattern,
    pub(super) score: Score<'a>,
    /// Tensor maps of queries, keys and values.
    pub(super) maps: [Value; 3],
    /// The pipelines of queries, keys and values.
    pub(super) queries_ring: Value,
    pub(super) keys_ring: Value,
    pub(super) values_ring: Value,
    /// Queries, and keys, of a tile.
    pub(super) rows: usize,
    pub(super) keys: usize,
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

impl Flash<'_> {
    /// Types of fragments of a query tile's rows.
    pub(super) fn fragments(&self) -> Fragments {
        Fragments { rows: self.rows }
    }
    /// Columns of values.
    pub(super) fn columns(&self) -> usize {
        self.pattern.at.columns as usize
    }
}
