//! Expressions as trees: what a source states, in its order.
use crate::{algebra::evaluate, ops::SymKind};

/// An integer expression over leaves `L`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr<L> {
    /// A constant.
    Const(i64),
    /// A leaf.
    Leaf(L),
    /// An operation on two expressions.
    Apply(SymKind, Box<(Expr<L>, Expr<L>)>),
}

impl<L> Expr<L> {
    /// `a kind b`. Constants and neutral operands fold (`x + 0`, `x * 1`, `x floordiv 1`,
    /// `x mod 1`); everything else stays as it is written.
    pub fn apply(kind: SymKind, a: Expr<L>, b: Expr<L>) -> Expr<L> {
        let known = (a.known(), b.known());
        if let (Some(x), Some(y)) = known
            && let Some(n) = evaluate(kind, x, y)
        {
            return Expr::Const(n);
        }
        match (kind, known) {
            (SymKind::Add, (Some(0), _)) | (SymKind::Mul, (Some(1), _)) => b,
            (SymKind::Add, (_, Some(0))) | (SymKind::Mul | SymKind::Floordiv, (_, Some(1))) => a,
            (SymKind::Mod, (_, Some(1))) => Expr::Const(0),
            _ => Expr::Apply(kind, Box::new((a, b))),
        }
    }
    /// The constant, if it is one.
    pub fn known(&self) -> Option<i64> {
        if let Expr::Const(n) = self { Some(*n) } else { None }
    }
    /// The expression without its constant term, and that term.
    pub fn split_constant(self) -> (Expr<L>, i64) {
        match self {
            Expr::Const(k) => (Expr::Const(0), k),
            Expr::Apply(SymKind::Add, both) => match *both {
                (e, Expr::Const(k)) => (e, k),
                (a, b) => (Expr::Apply(SymKind::Add, Box::new((a, b))), 0),
            },
            e => (e, 0),
        }
    }
    /// The expression plus `k`; constant terms are one.
    pub fn plus_constant(self, k: i64) -> Expr<L> {
        let (e, j) = self.split_constant();
        let constant = Expr::apply(SymKind::Add, Expr::Const(j), Expr::Const(k));
        Expr::apply(SymKind::Add, e, constant)
    }
    /// The leaves, from left to right.
    pub fn leaves(&self) -> Vec<&L> {
        match self {
            Expr::Const(_) => vec![],
            Expr::Leaf(l) => vec![l],
            Expr::Apply(_, both) => [both.0.leaves(), both.1.leaves()].concat(),
        }
    }
    /// The same tree with each leaf replaced; `None` if one has no replacement.
    pub fn substitute<M>(&self, f: &dyn Fn(&L) -> Option<Expr<M>>) -> Option<Expr<M>> {
        Some(match self {
            Expr::Const(n) => Expr::Const(*n),
            Expr::Leaf(l) => f(l)?,
            Expr::Apply(kind, both) => {
                Expr::apply(*kind, both.0.substitute(f)?, both.1.substitute(f)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x() -> Expr<&'static str> {
        Expr::Leaf("x")
    }

    #[test]
    fn constants_and_neutral_operands_fold() {
        let n = Expr::Const;
        assert_eq!(Expr::apply(SymKind::Add, x(), n(0)), x());
        assert_eq!(Expr::apply(SymKind::Mul, n(1), x()), x());
        assert_eq!(Expr::apply(SymKind::Floordiv, x(), n(1)), x());
        assert_eq!(Expr::apply(SymKind::Mod, x(), n(1)), n(0));
        assert_eq!(Expr::<&str>::apply(SymKind::Floordiv, n(-7), n(2)), n(-4));
        // Without a value it stays.
        assert_eq!(Expr::<&str>::apply(SymKind::Floordiv, n(1), n(0)).known(), None);
        assert_eq!(Expr::apply(SymKind::Max, x(), n(1)).leaves(), [&"x"]);
    }

    #[test]
    fn constant_terms_are_one() {
        let n = Expr::Const;
        let sum = Expr::apply(SymKind::Add, x(), n(2));
        assert_eq!(sum.clone().split_constant(), (x(), 2));
        assert_eq!(x().split_constant(), (x(), 0));
        assert_eq!(sum.clone().plus_constant(3), Expr::apply(SymKind::Add, x(), n(5)));
        assert_eq!(sum.plus_constant(-2), x());
        assert_eq!(Expr::<&str>::Const(2).plus_constant(3), n(5));
    }

    #[test]
    fn substituted_leaves_fold() {
        let sum = Expr::apply(SymKind::Add, x(), Expr::Const(2));
        let four = |_: &&str| Some(Expr::<&str>::Const(4));
        assert_eq!(sum.substitute(&four), Some(Expr::Const(6)));
        assert_eq!(sum.substitute(&|_| None::<Expr<&str>>), None);
    }
}
