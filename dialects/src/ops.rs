//! The op table: generated from `td/` by `build.rs`. One struct per op holds its operands and
//! attributes as plain data.
use crate::ir::{Attr, Node, Size, State, Type, Value, View};

include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
include!(concat!(env!("OUT_DIR"), "/nodes.rs"));
include!(concat!(env!("OUT_DIR"), "/upstream.rs"));

impl OpKind {
    /// Whether each result element depends only on the operands' elements at its index.
    pub fn is_elementwise(self) -> bool {
        matches!(self.family(), Family::Unary | Family::Binary | Family::Elementwise)
    }
    /// As [`OpKind::is_elementwise`], without bitcasts, which operate on bits.
    pub fn is_arithmetic(self) -> bool {
        self.is_elementwise() && self != OpKind::Bitcast
    }
}

impl ReduceKind {
    /// The binary op that combines the accumulator with the next element.
    pub fn step(self) -> BinaryKind {
        match self {
            ReduceKind::Sum => BinaryKind::Add,
            ReduceKind::Prod => BinaryKind::Mul,
            ReduceKind::Max => BinaryKind::Max,
            ReduceKind::Min => BinaryKind::Min,
            ReduceKind::Any => BinaryKind::Or,
            ReduceKind::All => BinaryKind::And,
        }
    }
}

impl OpKind {
    /// Whether `kiln-decompose` can expand it into prims.
    pub fn is_composite(self) -> bool {
        self.family() == Family::Composite
    }
    /// Whether it is an op of a GPU kernel's tile program.
    pub fn is_tile(self) -> bool {
        self.family() == Family::Tile
    }
    /// The name without the dialect, such as `add`.
    pub fn mnemonic(self) -> &'static str {
        &self.name()["kiln.".len()..]
    }
}
