//! Masked attention scores (score modifications), element by element of a fragment: any expression
//! of a score, its position and what is in memory.
//!
//! A thread has scores of two rows, and of columns at static distances from its first one.
//!
//! - Values that depend on rows only are computed once for all keys.
//! - Values that depend on columns only are computed once for both rows.
//! - Integers that are affine in the position are one register for a tile: a comparison of two is
//!   one of a register with a constant.
//! - Floats with such an integer as a factor are two registers for a row of a tile, and one op for
//!   an element.
mod analysis;
mod elements;
mod graph;
mod place;

pub use elements::{Elements, Known, Leaves, Sym, scalar_op};
pub use graph::{Graph, Leaf};
pub use place::ScoreCache;

use crate::{analysis::Stage, emit::body::Scope};
use kiln_dialects::{ir::*, value::DType};
use std::collections::HashSet;

/// Greatest constant in an affine value.
const NUMBER: i64 = 1 << 22;
/// Greatest coefficient of a position in an affine value: positions below 2^22 times it fit 32
/// bits.
const FACTOR: i64 = 256;

/// Bits of what a value depends on: the row, the column, an element of a tile.
pub const ROW: u8 = 1;
/// See [`ROW`].
pub const COLUMN: u8 = 2;
/// See [`ROW`].
pub const ELEMENT: u8 = 4;

/// The analysed stage of the masked scores.
#[derive(Clone)]
pub struct Score<'a> {
    /// What its kernel's code refers to.
    pub scope: &'a Scope<'a>,
    /// The stage.
    pub stage: &'a Stage,
    /// What its values depend on.
    pub graph: Graph,
    /// Number of loops around those over queries.
    pub outer: usize,
    /// The block argument of the raw score.
    pub raw: Value,
    /// The score expression, without the comparisons of positions.
    pub root: Value,
    /// A final multiplication by the factor, or one inside selects whose other side is -inf, and
    /// the value that replaces it.
    pub product: Option<(Value, Value)>,
    /// Whether the caller applies the causal mask, as it does the sequence lengths.
    pub causal: bool,
    /// Positive factor that is still to be applied to the result.
    pub factor: f64,
    /// Query i attends to no key after i + this.
    pub last_key: Option<i64>,
    /// Query i attends to no key before i - this (sliding window).
    pub window: Option<i64>,
    /// The comparisons that state this window.
    pub window_conditions: HashSet<Value>,
}

/// The number that a value is, if it is a constant.
pub fn number(v: Value) -> Option<f64> {
    v.def_as::<arith::Constant>()?.value()?.as_f64()
}

/// The loop that a `linalg.index` asks for.
pub fn dim(op: Op) -> Option<i64> {
    op.dyn_cast::<linalg::Index>()?.dim()
}

fn integer(v: Value) -> Option<i64> {
    v.def_as::<arith::Constant>()?.value()?.as_i64()
}

/// A small integer constant, splat or scalar.
pub fn small(v: Value) -> Option<i64> {
    let wide = v.ty().is_index() || matches!(v.ty().dtype(), Ok(DType::I32 | DType::I64));
    integer(v).filter(|n| wide && n.abs() <= NUMBER)
}

impl Score<'_> {
    /// The values that the root uses.
    pub fn used(&self) -> HashSet<Value> {
        let (mut used, mut stack) = (HashSet::new(), vec![self.root]);
        while let Some(v) = stack.pop() {
            if used.insert(v) {
                let inside = v.def().filter(|_| self.graph.has(v));
                stack.extend(inside.map(Op::operands).unwrap_or_default());
            }
        }
        used
    }
    /// Whether window conditions hold for all keys of a tile, so that a value is `true`.
    pub fn holds(&self, v: Value, inside: bool) -> bool {
        inside && self.window_conditions.contains(&v)
    }
}
