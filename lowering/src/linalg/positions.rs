//! Gathers at a score's own position: an index that a region computes from its position arguments
//! becomes an indexing map, and needs no clamp where it is known to be in range.
use crate::analysis::index_expr::{IndexExpr, IndexLeaf};
use kiln_dialects::{algebra::Expr, ir::*, ops::*};
use std::collections::HashMap;

/// An index that is never negative, and the size that it stays below.
#[derive(Clone, Debug)]
pub struct Position {
    /// The index.
    pub at: IndexExpr,
    /// Its exclusive upper bound.
    pub below: Size,
}

impl Position {
    /// Whether it never exceeds the limit of a gather's clamp.
    fn is_within(&self, limit: &IndexExpr) -> bool {
        match (self.below.known(), limit.known()) {
            (Some(below), Some(limit)) => below <= limit + 1,
            _ => IndexExpr::size(self.below).plus(IndexExpr::number(-1)) == *limit,
        }
    }
}

/// Values that are positions.
#[derive(Default)]
pub struct Positions(pub HashMap<Value, Position>);

impl Positions {
    /// The same indices, with those of gathers at known positions as expressions of the loops.
    pub fn placed(&self, at: Vec<IndexExpr>) -> Vec<IndexExpr> {
        let one = |ix: IndexExpr| match &ix.0 {
            Expr::Leaf(IndexLeaf::Data { tensor, at, limit }) if at.is_empty() => {
                let found = self.position(*tensor).filter(|p| p.is_within(limit));
                found.map_or(ix, |p| p.at)
            }
            _ => ix,
        };
        at.into_iter().map(one).collect()
    }

    /// A 0-d integer as a position, if it is one, or a sum, a product, a quotient or a remainder of
    /// one.
    fn position(&self, v: Value) -> Option<Position> {
        if let Some(found) = self.0.get(&v) {
            return Some(found.clone());
        }
        let op = v.def()?;
        let x = || self.position(op.operand(0));
        let by = || number(op.operand(1)).filter(|n| *n > 0);
        match op.kind()? {
            OpKind::Add => {
                let (a, b) = (x()?, self.position(op.operand(1))?);
                let below = a.below.known()?.checked_add(b.below.known()?)? - 1;
                Some(Position { at: a.at.plus(b.at), below: Size::Static(below) })
            }
            OpKind::Mul => {
                let (a, n) = (x()?, by()?);
                let below = a.below.known()?.checked_sub(1)?.checked_mul(n)? + 1;
                Some(Position { at: a.at.times(IndexExpr::number(n)), below: Size::Static(below) })
            }
            OpKind::FloorDiv => {
                let (a, n) = (x()?, by()?);
                let below = (a.below.known()? - 1) / n + 1;
                let at = a.at.floordiv(IndexExpr::number(n));
                Some(Position { at, below: Size::Static(below) })
            }
            OpKind::Rem => {
                let (a, n) = (x()?, by()?);
                let at = a.at.modulo(IndexExpr::number(n));
                Some(Position { at, below: Size::Static(n) })
            }
            _ => None,
        }
    }
}

/// The integer that a value is everywhere.
fn number(v: Value) -> Option<i64> {
    let op = v.def()?;
    match op.kind()? {
        OpKind::Splat => op.attr("value")?.as_i64(),
        OpKind::Constant => op.attr("value")?.splat_value()?.as_i64(),
        _ => None,
    }
}
