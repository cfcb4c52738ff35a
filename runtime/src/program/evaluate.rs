//! The sizes of a program as numbers, and as text.
use super::{CallSizes, Dim, ExprKind, Program, SizeError};

impl Program {
    /// A size as text: a number, a symbol's name, or an expression of these. Long expressions are
    /// truncated.
    pub fn size_text(&self, d: Dim) -> String {
        const TERMS: usize = 64;
        self.text_of(d, self.exprs.len(), &mut TERMS.clone())
    }
    /// The name of a symbol, which may be unbacked.
    pub fn symbol_name(&self, i: usize) -> Option<&str> {
        let unbacked = || self.unbacked.get(i.checked_sub(self.symbols.len())?);
        self.symbols.get(i).map(|s| s.name.as_str()).or_else(|| Some(&unbacked()?.name))
    }
    /// Only expressions before `exprs` are expanded, so that this terminates; `left` is the budget
    /// of terms.
    fn text_of(&self, d: Dim, exprs: usize, left: &mut usize) -> String {
        let i = match d {
            _ if *left == 0 => return "…".into(),
            Dim::Known(n) => return n.to_string(),
            Dim::Symbol(i) => return self.symbol_name(i).unwrap_or("?").into(),
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
    /// Evaluates all expressions for these values of the symbols; unbacked sizes are at their upper
    /// bounds.
    pub fn expr_values(&self, symbols: &[i64]) -> Result<Vec<i64>, SizeError> {
        Ok(CallSizes::new(self, symbols.to_vec())?.at_bounds(self)?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Expr;

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
