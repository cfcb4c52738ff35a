//! What all parts of attention on Hopper share: sizes, tensor maps, and the pipelines of queries,
//! keys and values.
use crate::{
    analysis::Body,
    emit::body::Scope,
    strategies::gpu::{
        attention::{FlashPattern, biases::Bias},
        common::{score::Score, tile::Fragments},
    },
};
use kiln_dialects::ir::*;

/// What all parts of the emission share.
pub(super) struct Flash<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) pattern: &'a FlashPattern,
    pub(super) score: Score<'a>,
    /// Tensor maps of queries, keys and values, then of the biases.
    pub(super) maps: &'a [Value],
    /// The pipelines of queries, keys and values.
    pub(super) queries_ring: Value,
    pub(super) keys_ring: Value,
    pub(super) values_ring: Value,
    /// The biases that TMA loads, each with its pipeline, whose stages are those of the keys.
    pub(super) biases: Vec<(&'a Bias, Value)>,
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
    /// Whether a value of the score's body is an element of a bias that TMA loads.
    pub(super) fn is_staged(&self, v: Value) -> bool {
        self.biases.iter().any(|(b, _)| self.bias_argument(b) == Some(v))
    }
    /// The argument of the score's body that is an element of a bias.
    pub(super) fn bias_argument(&self, bias: &Bias) -> Option<Value> {
        let Body::Block(block) = self.score.stage.body else { return None };
        block.args().get(bias.input).copied()
    }
    /// Columns of values.
    pub(super) fn columns(&self) -> usize {
        self.pattern.at.columns as usize
    }
}
