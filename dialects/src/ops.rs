//! The op table: generated from `td/` by `build.rs`. One struct per op holds its operands and
//! attributes as plain data.
use crate::ir::{Attr, Node, Size, State, Type, Value, View};

include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
include!(concat!(env!("OUT_DIR"), "/nodes.rs"));
include!(concat!(env!("OUT_DIR"), "/upstream.rs"));

impl OpKind {
    /// Whether each element of the result is made of the operands' elements at its place.
    pub fn is_elementwise(self) -> bool {
        matches!(self.family(), Family::Unary | Family::Binary | Family::Elementwise)
    }
    /// The same of numbers: a bitcast sees their bits.
    pub fn is_arithmetic(self) -> bool {
        self.is_elementwise() && self != OpKind::Bitcast
    }
}

impl ReduceKind {
    /// What a step of the reduction does with the result so far and the next element.
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
    /// Whether `kiln-decompose` can write it as prims.
    pub fn is_composite(self) -> bool {
        self.family() == Family::Composite
    }
    /// The name without the dialect, such as `add`.
    pub fn mnemonic(self) -> &'static str {
        &self.name()["kiln.".len()..]
    }
}
