//! Sizes that are known when a program is called: symbols, expressions of them, and conditions on
//! them.
use super::Program;
use serde::{Deserialize, Serialize};

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// A number.
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

/// A size that is read off an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbol {
    /// Its name in IR.
    pub name: String,
    /// The least value that the code is right for.
    pub min: i64,
    /// The greatest one, if there is one.
    pub max: Option<i64>,
    /// What divides every value; 1 for none.
    pub divisor: i64,
    /// The argument that it is read from.
    pub input: usize,
    /// The dimension of that argument.
    pub dim: usize,
}

/// A size computed from two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expr {
    /// How.
    pub kind: ExprKind,
    /// The left operand; an [`Dim::Expr`] stands earlier in the list.
    pub lhs: Dim,
    /// The right operand.
    pub rhs: Dim,
}

/// What an [`Expr`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExprKind {
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// Quotient, rounded down.
    FloorDiv,
    /// What [`ExprKind::FloorDiv`] leaves.
    Mod,
    /// The less.
    Min,
    /// The greater.
    Max,
    /// Power; the exponent is not negative.
    Pow,
}

/// A condition on sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What holds between both sides.
    pub kind: Relation,
    /// The left side.
    pub lhs: Dim,
    /// The right side.
    pub rhs: Dim,
    /// The condition in the model's words, and where it stands there.
    pub text: String,
}

/// A comparison of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Equal.
    Eq,
    /// Different.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

impl Relation {
    /// Whether it holds.
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
    /// The list of symbols or expressions is shorter, or the expression is not an earlier one.
    #[error("the program names a size that it does not have: {0:?}")]
    Missing(Dim),
    /// A size of a tensor or of memory is below 0.
    #[error("the size {0:?} is {1} here")]
    Negative(Dim, i64),
    /// Too large for 64 bits, a division by 0, or a negative exponent.
    #[error("size expression {index} has no value: {kind:?} of {lhs} and {rhs}")]
    NoValue {
        /// Which expression.
        index: usize,
        /// What it does.
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
    /// A size as text: a number, a symbol's name, or an expression of these. What would be longer
    /// than people read is cut.
    pub fn size_text(&self, d: Dim) -> String {
        const TERMS: usize = 64;
        self.text_of(d, self.exprs.len(), &mut TERMS.clone())
    }
    /// Of expressions only those before `exprs` count, so that this ends; `left` terms are
    /// written.
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
    /// The values of all expressions, given those of the symbols.
    pub fn expr_values(&self, symbols: &[i64]) -> Result<Vec<i64>, SizeError> {
        values(&self.exprs, symbols)
    }
}

/// The values of expressions, given those of the symbols.
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
    /// The size, given the values of symbols and of expressions.
    pub fn value(self, symbols: &[i64], exprs: &[i64]) -> Result<i64, SizeError> {
        let found = match self {
            Dim::Known(n) => return Ok(n),
            Dim::Symbol(i) => symbols.get(i),
            Dim::Expr(i) => exprs.get(i),
        };
        found.copied().ok_or(SizeError::Missing(self))
    }
    /// The same, as what a tensor or memory has: not below 0.
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
        // Each doubles the text of the one before.
        p.exprs = (0..200).map(|i| e(ExprKind::Add, Dim::Expr(i), Dim::Expr(i))).collect();
        p.exprs.insert(0, e(ExprKind::Add, n(1), n(2)));
        assert!(p.size_text(Dim::Expr(200)).len() < 4096);
        assert_eq!(p.size_text(Dim::Expr(1)), "((1 + 2) + (1 + 2))");
        p.exprs = vec![e(ExprKind::Add, Dim::Expr(0), n(1))];
        assert_eq!(p.expr_values(&[]), Err(SizeError::Missing(Dim::Expr(0))));
    }
}
