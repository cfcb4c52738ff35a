//! Symbolic sizes: symbols that a call binds, expressions of them, and conditions on them.
use super::Program;
use serde::{Deserialize, Serialize};

/// A size (dimension, stride, offset or byte count).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// A static size.
    Known(i64),
    /// An index into [`Program::symbols`].
    Symbol(usize),
    /// An index into [`Program::exprs`].
    Expr(usize),
}

impl Default for Dim {
    fn default() -> Dim {
        Dim::Known(0)
    }
}

/// A dynamic size, read from an input's shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbol {
    /// Its name in IR.
    pub name: String,
    /// Lower bound of the values that the code is valid for.
    pub min: i64,
    /// Upper bound, if any.
    pub max: Option<i64>,
    /// Divides every value; 1 for no requirement.
    pub divisor: i64,
    /// The argument that it is read from.
    pub input: usize,
    /// The dimension of that argument.
    pub dim: usize,
}

/// A size computed from two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expr {
    /// The operation.
    pub kind: ExprKind,
    /// The left operand; a [`Dim::Expr`] must come earlier in the list.
    pub lhs: Dim,
    /// The right operand.
    pub rhs: Dim,
}

/// The operation of an [`Expr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExprKind {
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// Floor division.
    FloorDiv,
    /// Remainder of [`ExprKind::FloorDiv`].
    Mod,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Power; the exponent must not be negative.
    Pow,
}

/// A condition on sizes that a call must satisfy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The comparison.
    pub kind: Relation,
    /// The left-hand side.
    pub lhs: Dim,
    /// The right-hand side.
    pub rhs: Dim,
    /// The condition as the model states it, with its source location.
    pub text: String,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Equal.
    Eq,
    /// Different.
    Ne,
    /// Less than.
    Lt,
    /// Less than or equal.
    Le,
    /// Greater than.
    Gt,
    /// Greater than or equal.
    Ge,
}

impl Relation {
    /// Evaluates the comparison.
    pub fn holds(self, lhs: i64, rhs: i64) -> bool {
        match self {
            Relation::Eq => lhs == rhs,
            Relation::Ne => lhs != rhs,
            Relation::Lt => lhs < rhs,
            Relation::Le => lhs <= rhs,
            Relation::Gt => lhs > rhs,
            Relation::Ge => lhs >= rhs,
        }
    }
}

/// A size could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A symbol or expression index is out of range, or refers to a later expression.
    #[error("the program names a size that it does not have: {0:?}")]
    Missing(Dim),
    /// A size of a tensor or buffer is negative.
    #[error("the size {0:?} is {1} here")]
    Negative(Dim, i64),
    /// Overflow of 64 bits, division by 0, or a negative exponent.
    #[error("size expression {index} has no value: {kind:?} of {lhs} and {rhs}")]
    NoValue {
        /// Index of the expression.
        index: usize,
        /// Its operation.
        kind: ExprKind,
        /// The left operand's value.
        lhs: i64,
        /// The right operand's value.
        rhs: i64,
    },
}

impl ExprKind {
    fn apply(self, lhs: i64, rhs: i64) -> Option<i64> {
        match self {
            ExprKind::Add => lhs.checked_add(rhs),
            ExprKind::Mul => lhs.checked_mul(rhs),
            ExprKind::FloorDiv => floor_div(lhs, rhs),
            ExprKind::Mod => lhs.checked_sub(floor_div(lhs, rhs)?.checked_mul(rhs)?),
            ExprKind::Min => Some(lhs.min(rhs)),
            ExprKind::Max => Some(lhs.max(rhs)),
            ExprKind::Pow => lhs.checked_pow(u32::try_from(rhs).ok()?),
        }
    }
}

fn floor_div(lhs: i64, rhs: i64) -> Option<i64> {
    let quotient = lhs.checked_div(rhs)?;
    Some(quotient - (lhs % rhs != 0 && (lhs < 0) != (rhs < 0)) as i64)
}

impl Program {
    /// A size as text: a number, a symbol's name, or an expression of these. Long expressions are
    /// truncated.
    pub fn size_text(&self, d: Dim) -> String {
        const TERMS: usize = 64;
        self.text_of(d, self.exprs.len(), &mut TERMS.clone())
    }
    /// Only expressions before `exprs` are expanded, so that this terminates; `left` is the budget
    /// of terms.
    fn text_of(&self, d: Dim, exprs: usize, left: &mut usize) -> String {
        let i = match d {
            _ if *left == 0 => return "…".into(),
            Dim::Known(n) => return n.to_string(),
            Dim::Symbol(i) => return self.symbols.get(i).map_or("?".into(), |s| s.name.clone()),
            Dim::Expr(i) => i,
        };
        let Some(e) = self.exprs.get(i).filter(|_| i < exprs) else { return "?".into() };
        *left -= 1;
        let (lhs, rhs) = (self.text_of(e.lhs, i, left), self.text_of(e.rhs, i, left));
        match e.kind {
            ExprKind::Add => format!("({lhs} + {rhs})"),
            ExprKind::Mul => format!("({lhs} * {rhs})"),
            ExprKind::FloorDiv => format!("({lhs} // {rhs})"),
            ExprKind::Mod => format!("({lhs} % {rhs})"),
            ExprKind::Min => format!("min({lhs}, {rhs})"),
            ExprKind::Max => format!("max({lhs}, {rhs})"),
            ExprKind::Pow => format!("{lhs}^{rhs}"),
        }
    }
    /// Evaluates all expressions for these values of the symbols.
    pub fn expr_values(&self, symbols: &[i64]) -> Result<Vec<i64>, SizeError> {
        values(&self.exprs, symbols)
    }
}

/// Evaluates expressions for these values of the symbols.
pub fn values(exprs: &[Expr], symbols: &[i64]) -> Result<Vec<i64>, SizeError> {
    let mut values = Vec::with_capacity(exprs.len());
    for (index, e) in exprs.iter().enumerate() {
        let (lhs, rhs) = (e.lhs.value(symbols, &values)?, e.rhs.value(symbols, &values)?);
        values.push(e.kind.apply(lhs, rhs).ok_or(SizeError::NoValue {
            index,
            kind: e.kind,
            lhs,
            rhs,
        })?);
    }
    Ok(values)
}

impl Dim {
    /// The value, given those of symbols and expressions.
    pub fn value(self, symbols: &[i64], exprs: &[i64]) -> Result<i64, SizeError> {
        let found = match self {
            Dim::Known(n) => return Ok(n),
            Dim::Symbol(i) => symbols.get(i),
            Dim::Expr(i) => exprs.get(i),
        };
        found.copied().ok_or(SizeError::Missing(self))
    }
    /// The value as a size of a tensor or buffer. Err: it is negative.
    pub fn size(self, symbols: &[i64], exprs: &[i64]) -> Result<usize, SizeError> {
        let value = self.value(symbols, exprs)?;
        usize::try_from(value).map_err(|_| SizeError::Negative(self, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_values() {
        let e = |kind, lhs, rhs| Expr { kind, lhs, rhs };
        let (s, n) = (Dim::Symbol(0), Dim::Known);
        let exprs = vec![
            e(ExprKind::Add, s, n(1)),
            e(ExprKind::Mul, Dim::Expr(0), s),
            e(ExprKind::FloorDiv, n(-7), n(2)),
            e(ExprKind::Mod, n(-7), n(2)),
            e(ExprKind::Pow, n(2), n(10)),
            e(ExprKind::Min, s, n(3)),
            e(ExprKind::Max, s, n(3)),
        ];
        let mut p = Program { exprs, ..Default::default() };
        assert_eq!(p.expr_values(&[5]), Ok(vec![6, 30, -4, 1, 1024, 3, 5]));
        assert_eq!(p.expr_values(&[]), Err(SizeError::Missing(s)));
        for bad in [
            (ExprKind::FloorDiv, 1, 0),
            (ExprKind::Mod, 1, 0),
            (ExprKind::Mul, i64::MAX, 2),
            (ExprKind::FloorDiv, i64::MIN, -1),
        ] {
            p.exprs = vec![e(bad.0, n(bad.1), n(bad.2))];
            assert!(matches!(p.expr_values(&[]), Err(SizeError::NoValue { .. })), "{bad:?}");
        }
        // Each expression doubles the text of the one before.
        p.exprs = (0..200).map(|i| e(ExprKind::Add, Dim::Expr(i), Dim::Expr(i))).collect();
        p.exprs.insert(0, e(ExprKind::Add, n(1), n(2)));
        assert!(p.size_text(Dim::Expr(200)).len() < 4096);
        assert_eq!(p.size_text(Dim::Expr(1)), "((1 + 2) + (1 + 2))");
        p.exprs = vec![e(ExprKind::Add, Dim::Expr(0), n(1))];
        assert_eq!(p.expr_values(&[]), Err(SizeError::Missing(Dim::Expr(0))));
    }
}
