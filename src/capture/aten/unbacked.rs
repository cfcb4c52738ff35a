//! The sizes of a graph that depend on data, while it is captured.
use crate::capture::srepr::Range;
use kiln_dialects::ir::Value;
use std::collections::VecDeque;

/// The unbacked sizes of a graph.
#[derive(Default)]
pub struct Unbacked {
    /// Names that the current node's results have first, with their ranges.
    pub fresh: VecDeque<(String, Range)>,
    /// Names and 0-d i64 values of all sizes so far.
    pub values: Vec<(String, Value)>,
    /// How many branches and loops are around.
    pub inside: usize,
    /// Symbols of the sizes so far.
    pub symbols: Vec<(String, Value)>,
}
