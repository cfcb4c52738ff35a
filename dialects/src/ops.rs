//! The op table: generated from `td/` by `build.rs`. One struct per op holds its operands and attributes as plain data.
use crate::ir::{Attr, Node, Size, State, Type, Value, View};

include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
include!(concat!(env!("OUT_DIR"), "/nodes.rs"));
include!(concat!(env!("OUT_DIR"), "/upstream.rs"));

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
