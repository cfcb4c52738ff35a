//! Folds for upstream's `canonicalize`: constants and sizes. The rest is in `kiln-simplify`.
use crate::{ir::*, ops::*, sym};

/// The result of a fold.
pub enum Fold {
    /// Folds to this constant.
    Constant(Attr),
    /// Folds to this value.
    Value(Value),
}

/// `constants[i]` is the value of operand `i` if it is constant.
pub fn fold(op: Op, constants: &[Option<Attr>]) -> Option<Fold> {
    match op.kind()? {
        OpKind::Constant => op.attr("value").map(Fold::Constant),
        OpKind::Dim => {
            let o = Dim::of(op)?;
            let size = o.input.ty().dims().get(usize::try_from(o.axis).ok()?)?.known()?;
            Some(Fold::Constant(Attr::index(op.ctx(), size)))
        }
        OpKind::SymExpr => {
            let o = SymExpr::of(op)?;
            let at = |i: usize| constants.get(i).copied().flatten().and_then(Attr::as_i64);
            match (o.kind, at(0), at(1)) {
                (SymKind::Add, _, Some(0))
                | (SymKind::Mul | SymKind::Floordiv | SymKind::Pow, _, Some(1)) => {
                    Some(Fold::Value(o.lhs))
                }
                (SymKind::Add, Some(0), _) | (SymKind::Mul, Some(1), _) => Some(Fold::Value(o.rhs)),
                (SymKind::Min | SymKind::Max, ..) if o.lhs == o.rhs => Some(Fold::Value(o.lhs)),
                (kind, Some(a), Some(b)) => {
                    sym::evaluate(kind, a, b).map(|v| Fold::Constant(Attr::index(op.ctx(), v)))
                }
                _ => None,
            }
        }
        _ => None,
    }
}
