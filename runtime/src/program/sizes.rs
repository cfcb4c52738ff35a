//! Symbolic sizes: symbols that a call binds, expressions of them, and conditions on them.
use serde::{Deserialize, Serialize};

/// A size (dimension, stride, offset or byte count).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// A static size.
    Known(i64),
    /// An index into [`Program::symbols`](super::Program::symbols), or beyond them into
    /// [`Program::unbacked`](super::Program::unbacked).
    Symbol(usize),
    /// An index into [`Program::exprs`](super::Program::exprs).
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

impl Expr {
    /// The value of expression `index` for these operands.
    pub(super) fn value(&self, index: usize, lhs: i64, rhs: i64) -> Result<i64, SizeError> {
        self.kind.apply(lhs, rhs).ok_or(SizeError::NoValue { index, kind: self.kind, lhs, rhs })
    }
}

impl Expr {
    /// As [`Expr::value`], of upper bounds: an overflow is the bound of 64 bits.
    pub(super) fn bound(&self, index: usize, lhs: i64, rhs: i64) -> Result<i64, SizeError> {
        match self.kind {
            ExprKind::Add => Ok(lhs.saturating_add(rhs)),
            ExprKind::Mul => Ok(lhs.saturating_mul(rhs)),
            _ => self.value(index, lhs, rhs),
        }
    }
}

/// Evaluates expressions for these values of the symbols.
pub fn values(exprs: &[Expr], symbols: &[i64]) -> Result<Vec<i64>, SizeError> {
    let mut values = Vec::with_capacity(exprs.len());
    for (index, e) in exprs.iter().enumerate() {
        let (lhs, rhs) = (e.lhs.value(symbols, &values)?, e.rhs.value(symbols, &values)?);
        values.push(e.value(index, lhs, rhs)?);
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
