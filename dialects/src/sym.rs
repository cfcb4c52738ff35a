//! Sizes of a graph: constants, symbolic expressions, or unknown. Expressions are polynomials in
//! normal form, so equal sums and products compare equal.
pub use crate::algebra::{common_divisor, evaluate};
use crate::{
    algebra::Sum,
    ops::{CompareKind, SymKind},
};
use std::{cell::RefCell, rc::Rc};

thread_local! {
    /// Pairs that [`assumptions`] collects while it runs.
    static ASSUMED: RefCell<Option<Vec<(Dim, Dim)>>> = const { RefCell::new(None) };
}

/// Runs `body` and also returns the pairs of sizes that [`Dim::differs`] could not decide, which
/// rules assume to be equal.
pub fn assumptions<R>(body: impl FnOnce() -> R) -> (R, Vec<(Dim, Dim)>) {
    struct Restore(Option<Vec<(Dim, Dim)>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ASSUMED.set(self.0.take());
        }
    }
    let restore = Restore(ASSUMED.replace(Some(vec![])));
    let result = body();
    let found = ASSUMED.take().unwrap_or_default();
    drop(restore);
    (result, found)
}

/// A dimension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dim {
    /// A constant.
    Known(i64),
    /// An expression over symbols; never a constant.
    Expr(Rc<Poly>),
    /// Unknown.
    Unknown,
}

/// A polynomial over symbols and operations on them.
pub type Poly = Sum<Atom>;

/// A factor that is not a sum or a product.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A symbol by name.
    Sym(String),
    /// An unnamed size with an identity that its creator chooses: equal identities are equal sizes.
    Opaque(usize, usize),
    /// `floordiv`, `mod`, `min`, `max` or `pow` of two sizes.
    Op(SymKind, Box<(Dim, Dim)>),
}

/// The product of sizes, if all are constants and it does not overflow: 1 of none.
pub fn known_product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Option<i64> {
    dims.into_iter().try_fold(1i64, |n, d| n.checked_mul(d.known()?))
}

/// The value range, where bounded.
pub type Bounds = (Option<i64>, Option<i64>);

impl Dim {
    /// A symbol.
    pub fn sym(name: &str) -> Dim {
        Dim::atom(Atom::Sym(name.into()))
    }
    /// One factor.
    pub fn atom(a: Atom) -> Dim {
        Dim::Expr(Rc::new(Poly::leaf(a)))
    }
    /// The constant, if it is one.
    pub fn known(&self) -> Option<i64> {
        if let Dim::Known(n) = self { Some(*n) } else { None }
    }
    fn poly(&self) -> Option<Poly> {
        match self {
            Dim::Known(n) => Some(Poly::number(*n)),
            Dim::Expr(p) => Some(Poly::clone(p)),
            Dim::Unknown => None,
        }
    }
    fn from_poly(p: Poly) -> Dim {
        p.known().map_or_else(|| Dim::Expr(Rc::new(p)), Dim::Known)
    }
    /// `a kind b`; unknown if an operand is, on overflow, and for division by 0 or below.
    pub fn apply(kind: SymKind, a: &Dim, b: &Dim) -> Dim {
        let known = match (a.known(), b.known()) {
            (Some(x), Some(y)) => Some(evaluate(kind, x, y)),
            _ => None,
        };
        if let Some(value) = known {
            return value.map_or(Dim::Unknown, Dim::Known);
        }
        let (Some(p), Some(q)) = (a.poly(), b.poly()) else { return Dim::Unknown };
        let opaque = || Dim::atom(Atom::Op(kind, Box::new((a.clone(), b.clone()))));
        match kind {
            SymKind::Add => p.plus(&q).map_or(Dim::Unknown, Dim::from_poly),
            SymKind::Mul => p.times(&q).map_or(Dim::Unknown, Dim::from_poly),
            SymKind::Floordiv if b.known() == Some(1) => a.clone(),
            // A term-by-term exact quotient folds; otherwise the division stays.
            SymKind::Floordiv => p.divided_exactly(&q).map_or_else(opaque, Dim::from_poly),
            SymKind::Mod if p.divided_exactly(&q).is_some() => Dim::Known(0),
            SymKind::Min | SymKind::Max if a == b => a.clone(),
            SymKind::Min | SymKind::Max => {
                let (x, y) = if a <= b { (a, b) } else { (b, a) };
                Dim::atom(Atom::Op(kind, Box::new((x.clone(), y.clone()))))
            }
            SymKind::Pow => match b.known() {
                Some(0) => Dim::Known(1),
                Some(n @ 1..=8) => (1..n).fold(a.clone(), |r, _| Dim::apply(SymKind::Mul, &r, a)),
                _ => opaque(),
            },
            SymKind::Mod => opaque(),
        }
    }
    /// The sum.
    pub fn add(&self, other: &Dim) -> Dim {
        Dim::apply(SymKind::Add, self, other)
    }
    /// The difference.
    pub fn sub(&self, other: &Dim) -> Dim {
        self.add(&other.mul(&Dim::Known(-1)))
    }
    /// The product.
    pub fn mul(&self, other: &Dim) -> Dim {
        Dim::apply(SymKind::Mul, self, other)
    }
    /// The floor quotient.
    pub fn floordiv(&self, other: &Dim) -> Dim {
        Dim::apply(SymKind::Floordiv, self, other)
    }
    /// Whether both are known and provably differ for all symbol values, by a constant difference.
    pub fn differs(&self, other: &Dim) -> bool {
        match (self, other) {
            (Dim::Unknown, _) | (_, Dim::Unknown) => false,
            (Dim::Known(a), Dim::Known(b)) => a != b,
            // Fast path: most comparisons are of a size with itself.
            _ if self == other => false,
            _ => {
                let differ = self.sub(other).known().is_some_and(|d| d != 0);
                if !differ {
                    ASSUMED.with_borrow_mut(|all| {
                        all.iter_mut().for_each(|all| all.push((self.clone(), other.clone())))
                    });
                }
                differ
            }
        }
    }
    /// The terms of an expression: factors and coefficient.
    pub fn terms(&self) -> Vec<(Vec<Atom>, i64)> {
        if let Dim::Expr(p) = self {
            p.terms().map(|(f, n)| (f.to_vec(), n)).collect()
        } else {
            vec![]
        }
    }
    /// Every factor of every term.
    pub fn atoms(&self) -> Vec<&Atom> {
        let Dim::Expr(p) = self else { return vec![] };
        p.terms().flat_map(|(factors, _)| factors).collect()
    }
    /// The range, from the ranges of the atoms; a product is bounded only if no factor can be
    /// negative.
    pub fn bounds(&self, atom: &dyn Fn(&Atom) -> Bounds) -> Bounds {
        let Dim::Expr(p) = self else { return (self.known(), self.known()) };
        let mut sum = (Some(0i64), Some(0i64));
        for (factors, n) in p.terms() {
            let mut term = (Some(1i64), Some(1i64));
            for a in factors {
                let (low, high) = atom(a);
                let product = |x: Option<i64>, y: Option<i64>| x?.checked_mul(y?);
                term = if low.is_some_and(|l| l >= 0) {
                    (product(term.0, low), product(term.1, high))
                } else {
                    (None, None)
                };
            }
            let scaled = |x: Option<i64>| x.and_then(|x| x.checked_mul(n));
            let (low, high) = if n >= 0 {
                (scaled(term.0), scaled(term.1))
            } else {
                (scaled(term.1), scaled(term.0))
            };
            let plus = |x: Option<i64>, y: Option<i64>| x?.checked_add(y?);
            sum = (plus(sum.0, low), plus(sum.1, high));
        }
        sum
    }
    /// The greatest known divisor of every value, from the divisors of the atoms; 0 for the
    /// constant 0.
    pub fn divisor(&self, atom: &dyn Fn(&Atom) -> i64) -> i64 {
        let of = |a: &Atom| match a {
            Atom::Op(SymKind::Floordiv, args) => match (args.0.divisor(atom), args.1.known()) {
                (d, Some(k)) if k > 0 && d % k == 0 => d / k,
                _ => 1,
            },
            Atom::Op(SymKind::Pow, args) if args.1.known().is_none_or(|n| n < 1) => 1,
            Atom::Op(SymKind::Pow, args) => args.0.divisor(atom),
            // Remainders are sums of multiples of both operands.
            Atom::Op(_, args) => {
                common_divisor([(1, vec![args.0.divisor(atom)]), (1, vec![args.1.divisor(atom)])])
            }
            other => atom(other),
        };
        match self {
            Dim::Known(n) => n.saturating_abs(),
            Dim::Unknown => 1,
            Dim::Expr(p) => p.divisor(&of),
        }
    }
    /// Substitutes symbols; `None` if one is unbound or the arithmetic fails.
    pub fn evaluate(&self, value: &dyn Fn(&Atom) -> Option<i64>) -> Option<i64> {
        let Dim::Expr(p) = self else { return self.known() };
        p.terms().try_fold(0i64, |sum, (factors, n)| {
            let term = factors.iter().try_fold(n, |product, a| {
                let x = match a {
                    Atom::Op(kind, args) => {
                        evaluate(*kind, args.0.evaluate(value)?, args.1.evaluate(value)?)?
                    }
                    other => value(other)?,
                };
                product.checked_mul(x)
            })?;
            sum.checked_add(term)
        })
    }
}

/// Integer semantics of `kiln.require`.
pub fn holds(kind: CompareKind, a: i64, b: i64) -> bool {
    match kind {
        CompareKind::Eq => a == b,
        CompareKind::Ne => a != b,
        CompareKind::Lt => a < b,
        CompareKind::Le => a <= b,
        CompareKind::Gt => a > b,
        CompareKind::Ge => a >= b,
    }
}

/// The negated comparison.
pub fn opposite(kind: CompareKind) -> CompareKind {
    match kind {
        CompareKind::Eq => CompareKind::Ne,
        CompareKind::Ne => CompareKind::Eq,
        CompareKind::Lt => CompareKind::Ge,
        CompareKind::Ge => CompareKind::Lt,
        CompareKind::Gt => CompareKind::Le,
        CompareKind::Le => CompareKind::Gt,
    }
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Dim::Expr(p) = self else {
            return match self {
                Dim::Known(n) => write!(f, "{n}"),
                _ => f.write_str("?"),
            };
        };
        for (i, (factors, n)) in p.terms().rev().enumerate() {
            if i > 0 {
                f.write_str(" + ")?;
            }
            if n != 1 || factors.is_empty() {
                write!(f, "{n}")?;
            }
            for (j, a) in factors.iter().enumerate() {
                if j > 0 || n != 1 {
                    f.write_str("*")?;
                }
                match a {
                    Atom::Sym(s) => f.write_str(s)?,
                    Atom::Opaque(i, axis) => write!(f, "size{i}.{axis}")?,
                    Atom::Op(kind, args) => {
                        write!(f, "{}({}, {})", kind.keyword(), args.0, args.1)?
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_have_one_form() {
        let (s, t) = (Dim::sym("s"), Dim::sym("t"));
        assert_eq!(s.add(&t).mul(&Dim::Known(2)), t.mul(&Dim::Known(2)).add(&s.add(&s)));
        assert_eq!(s.sub(&s), Dim::Known(0));
        assert_eq!(s.mul(&Dim::Known(6)).floordiv(&Dim::Known(3)), s.add(&s));
        assert_eq!(s.mul(&t).floordiv(&t), s);
        assert_eq!(Dim::apply(SymKind::Mod, &s.mul(&Dim::Known(4)), &Dim::Known(2)), Dim::Known(0));
        assert_eq!(Dim::apply(SymKind::Pow, &s, &Dim::Known(2)), s.mul(&s));
        assert_eq!(Dim::apply(SymKind::Min, &s, &t), Dim::apply(SymKind::Min, &t, &s));
        assert!(s.add(&Dim::Known(1)).differs(&s) && !s.differs(&t));
        assert_eq!(s.add(&Dim::Unknown), Dim::Unknown);
        assert_eq!(Dim::Known(i64::MAX).mul(&Dim::Known(2)), Dim::Unknown);
    }

    #[test]
    fn undecided_comparisons_are_assumptions() {
        let (s, t) = (Dim::sym("s"), Dim::sym("t"));
        let (_, all) = assumptions(|| {
            (
                s.differs(&t),
                s.differs(&s),
                s.add(&Dim::Known(1)).differs(&s),
                s.differs(&Dim::Known(4)),
            )
        });
        assert_eq!(all, [(s.clone(), t.clone()), (s.clone(), Dim::Known(4))]);
        assert!(!s.differs(&t) && assumptions(|| ()).1.is_empty());
    }

    #[test]
    fn bounds_follow_from_those_of_symbols() {
        let (s, t) = (Dim::sym("s"), Dim::sym("t"));
        let atom = |a: &Atom| {
            if *a == Atom::Sym("s".into()) { (Some(2), Some(5)) } else { (Some(0), None) }
        };
        assert_eq!(s.mul(&Dim::Known(3)).add(&Dim::Known(1)).bounds(&atom), (Some(7), Some(16)));
        assert_eq!(s.mul(&s).sub(&s).bounds(&atom), (Some(-1), Some(23)));
        assert_eq!(Dim::Known(9).sub(&t).bounds(&atom), (None, Some(9)));
        assert_eq!(s.mul(&t).bounds(&atom), (Some(0), None));
        assert_eq!(Dim::Unknown.bounds(&atom), (None, None));
    }

    #[test]
    fn divisors_follow_from_those_of_symbols() {
        let (s, t, n) = (Dim::sym("s"), Dim::sym("t"), Dim::Known);
        let atom = |a: &Atom| if *a == Atom::Sym("s".into()) { 16 } else { 1 };
        let divisor = |d: &Dim| d.divisor(&atom);
        assert_eq!(
            [divisor(&s), divisor(&t), divisor(&n(12)), divisor(&n(0)), divisor(&Dim::Unknown)],
            [16, 1, 12, 0, 1]
        );
        assert_eq!(
            [divisor(&s.mul(&t)), divisor(&s.mul(&s)), divisor(&t.mul(&n(6)))],
            [16, 256, 6]
        );
        assert_eq!(
            [
                divisor(&s.add(&n(24))),
                divisor(&s.add(&n(1))),
                divisor(&s.add(&t)),
                divisor(&s.sub(&n(32)))
            ],
            [8, 1, 1, 16]
        );
        assert_eq!([divisor(&s.add(&n(8)).floordiv(&n(4))), divisor(&t.floordiv(&n(4)))], [2, 1]);
        let two = |kind, a: &Dim, b: &Dim| divisor(&Dim::apply(kind, a, b));
        assert_eq!(
            [
                two(SymKind::Min, &s, &n(24)),
                two(SymKind::Max, &s, &t),
                two(SymKind::Mod, &s, &n(24))
            ],
            [8, 1, 8]
        );
        assert_eq!(two(SymKind::Mul, &s, &n(i64::MAX / 2)), i64::MAX / 2);
    }

    #[test]
    fn evaluation_agrees_with_the_integers() {
        let (s, t) = (Dim::sym("s"), Dim::sym("t"));
        let value = |a: &Atom| match a {
            Atom::Sym(n) if n == "s" => Some(7),
            Atom::Sym(n) if n == "t" => Some(3),
            _ => None,
        };
        assert_eq!(s.mul(&s).add(&t).floordiv(&Dim::Known(5)).evaluate(&value), Some(10));
        assert_eq!(Dim::apply(SymKind::Mod, &s, &t).evaluate(&value), Some(1));
        assert_eq!(Dim::sym("u").evaluate(&value), None);
        assert_eq!(s.add(&Dim::Known(-1)).to_string(), "s + -1");
    }
}
