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
mod element;

use crate::{
    analysis::{Body, Stage},
    emit::{body::Scope, code::Code},
};
use kiln_dialects::{ir::*, value::DType};
use std::collections::{HashMap, HashSet};

/// Greatest constant in an affine value.
const NUMBER: i64 = 1 << 22;

/// Bits of what a value depends on.
const ROW: u8 = 1;
const COLUMN: u8 = 2;
const SCORE: u8 = 4;

/// The analysed stage of the masked scores.
#[derive(Clone)]
pub struct Score<'a> {
    scope: &'a Scope<'a>,
    stage: &'a Stage,
    outer: usize,
    /// The block argument of the raw score.
    raw: Value,
    /// The score expression, without the comparisons of positions.
    root: Value,
    /// A final multiplication by the factor, or one inside selects whose other side is -inf, and
    /// the value that replaces it.
    product: Option<(Value, Value)>,
    /// Whether the caller applies the causal mask, as it does the sequence lengths.
    pub causal: bool,
    /// Positive factor that is still to be applied to the result.
    pub factor: f64,
    /// Query i attends to no key after i + this.
    pub last_key: Option<i64>,
    /// Query i attends to no key before i - this (sliding window).
    pub window: Option<i64>,
    /// The comparisons that state this window.
    window_conditions: HashSet<Value>,
    depends: HashMap<Value, u8>,
    affine_ints: HashSet<Value>,
    affine_floats: HashSet<Value>,
}

/// A symbolic value at an element.
#[derive(Clone, Copy)]
enum Sym {
    /// An i32 affine in the column: a register, and its step per column.
    AffineInt(Value, i64),
    /// An f32 affine in the column: value, and step per column.
    AffineFloat(Value, Value),
    /// Any other value.
    Value(Value),
}

/// Values computed so far at a position, and the position.
#[derive(Clone)]
pub struct ScoreCache {
    outer: Vec<Value>,
    rows: [Value; 2],
    /// The thread's first column, and the last valid one if the tile may go beyond.
    first: Option<(Value, Option<Value>)>,
    /// Whether the window masks no key of the tile for any row.
    inside: bool,
    values: HashMap<(Value, Option<usize>, Option<usize>), Sym>,
}

fn number(v: Value) -> Option<f64> {
    v.def_as::<arith::Constant>()?.value()?.as_f64()
}

/// The loop that a `linalg.index` asks for.
fn dim(op: Op) -> Option<i64> {
    op.dyn_cast::<linalg::Index>()?.dim()
}

fn integer(v: Value) -> Option<i64> {
    v.def_as::<arith::Constant>()?.value()?.as_i64()
}

/// A small integer constant, splat or scalar.
fn small(v: Value) -> Option<i64> {
    let wide = v.ty().is_index() || matches!(v.ty().dtype(), Ok(DType::I32 | DType::I64));
    integer(v).filter(|n| wide && n.abs() <= NUMBER)
}

impl<'a> Score<'a> {
    fn depends(&self, v: Value) -> u8 {
        self.depends.get(&v).copied().unwrap_or(0)
    }

    /// Computes what is invariant over keys, once. `rows`: both rows of the thread, clamped to
    /// existing ones.
    pub fn rows(&self, c: Code, outer: &[Value], rows: [Value; 2]) -> Result<ScoreCache> {
        let mut known = ScoreCache {
            outer: outer.to_vec(),
            rows,
            first: None,
            inside: false,
            values: HashMap::new(),
        };
        let Body::Block(block) = self.stage.body else { return Ok(known) };
        let used = self.used();
        let all = block.args().into_iter().chain(block.ops().into_iter().flat_map(Op::results));
        for v in all.filter(|v| used.contains(v) && self.depends(*v) & !ROW == 0) {
            for r in 0..if self.depends(v) == 0 { 1 } else { 2 } {
                self.value(c, v, r, 0, &mut known, None)?;
            }
        }
        Ok(known)
    }
    /// The values that the root uses.
    fn used(&self) -> HashSet<Value> {
        let (mut used, mut stack) = (HashSet::new(), vec![self.root]);
        while let Some(v) = stack.pop() {
            if used.insert(v) {
                stack.extend(
                    v.def()
                        .filter(|_| self.depends.contains_key(&v))
                        .map(Op::operands)
                        .unwrap_or_default(),
                );
            }
        }
        used
    }
    /// State of a tile of keys. `first`: the thread's first column. `last`: the last key, if the
    /// tile may go beyond it. `inside`: whether the window masks no key for any row.
    pub fn tile(
        &self,
        rows: &ScoreCache,
        first: Value,
        last: Option<Value>,
        inside: bool,
    ) -> ScoreCache {
        ScoreCache { first: Some((first, last)), inside, ..rows.clone() }
    }
    /// The masked score in row `row` of the thread, `column` columns after its first one, without
    /// the factor.
    pub fn element(
        &self,
        c: Code,
        known: &mut ScoreCache,
        raw: Value,
        row: usize,
        column: usize,
    ) -> Result<Value> {
        match self.value(c, self.root, row, column, known, Some(raw))? {
            Sym::AffineInt(..) => Err("has scores that are integers".into()),
            s => self.materialise(c, s, column, raw.ty()),
        }
    }
}
