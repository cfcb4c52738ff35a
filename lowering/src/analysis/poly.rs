//! Index arithmetic as plain data: sizes are polynomials over SSA sizes, addresses are affine in
//! the loop dimensions plus divisions.
use kiln_dialects::{
    Result,
    algebra::{Expr, Sum},
    ir::{Affine, MapInput, Value},
    ops::SymKind,
};
use std::collections::BTreeMap;

/// A polynomial over SSA sizes, with integer coefficients. No buffer has as many elements as would
/// overflow one, so that the arithmetic saturates.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Poly(Sum<Value>);

impl Poly {
    /// A constant.
    pub fn number(k: i64) -> Poly {
        Poly(Sum::number(k))
    }
    /// An SSA size.
    pub fn symbol(v: Value) -> Poly {
        Poly(Sum::leaf(v))
    }
    /// The constant, if no SSA size is in it.
    pub fn known(&self) -> Option<i64> {
        self.0.known()
    }
    /// The SSA size, if it is exactly that.
    pub fn as_symbol(&self) -> Option<Value> {
        self.0.as_leaf().copied()
    }
    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
    /// The sum.
    pub fn plus(&self, other: &Poly) -> Poly {
        Poly(self.0.plus(&other.0).unwrap_or_else(|| Sum::number(i64::MAX)))
    }
    /// The product.
    pub fn times(&self, other: &Poly) -> Poly {
        Poly(self.0.times(&other.0).unwrap_or_else(|| Sum::number(i64::MAX)))
    }
    /// The terms: SSA sizes and coefficient.
    pub fn terms(&self) -> impl Iterator<Item = (&[Value], i64)> {
        self.0.terms()
    }
    /// The greatest known divisor, from those of the SSA sizes; 0 for the constant 0.
    pub fn divisor(&self, size: &dyn Fn(&Value) -> i64) -> i64 {
        self.0.divisor(size)
    }
    /// The product of several.
    pub fn product<'a>(all: impl IntoIterator<Item = &'a Poly>) -> Poly {
        all.into_iter().fold(Poly::number(1), |a, b| a.times(b))
    }
}

/// Strides of contiguous row-major data.
pub fn row_major(sizes: &[Poly]) -> Vec<Poly> {
    let mut strides = vec![Poly::number(1); sizes.len()];
    for i in (1..sizes.len()).rev() {
        // A tensor with an extent of 0 has no elements. Skipping that extent keeps the strides
        // above 0, so that dimensions still differ in them.
        strides[i - 1] =
            if sizes[i].is_zero() { strides[i].clone() } else { strides[i].times(&sizes[i]) };
    }
    strides
}

/// `Σ dims·coefficient + constant + Σ rest·coefficient`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinearExpr {
    /// Coefficients of the loop dimensions; none is 0.
    pub dims: BTreeMap<usize, Poly>,
    /// The term that depends on no loop dimension.
    pub constant: Poly,
    /// The terms that are not affine: divisions.
    pub divisions: Vec<(Div, Poly)>,
}

/// `of floordiv by` or `of mod by`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Div {
    /// The dividend.
    pub dividend: LinearExpr,
    /// The divisor, above 0.
    pub divisor: i64,
    /// Whether it is the remainder.
    pub modulo: bool,
}

impl LinearExpr {
    /// A loop dimension.
    pub fn dim(d: usize) -> LinearExpr {
        LinearExpr { dims: BTreeMap::from([(d, Poly::number(1))]), ..LinearExpr::default() }
    }
    /// A form that depends on no loop dimension.
    pub fn fixed(constant: Poly) -> LinearExpr {
        LinearExpr { constant, ..LinearExpr::default() }
    }
    /// The sum.
    pub fn plus(&self, other: &LinearExpr) -> LinearExpr {
        let mut all = self.clone();
        for (d, p) in &other.dims {
            let sum = all.dims.get(d).map_or(p.clone(), |q| q.plus(p));
            all.dims.insert(*d, sum);
        }
        all.dims.retain(|_, p| !p.is_zero());
        all.constant = all.constant.plus(&other.constant);
        all.divisions.extend(other.divisions.iter().cloned());
        all
    }
    /// The product with a size.
    pub fn times(&self, p: &Poly) -> LinearExpr {
        LinearExpr {
            dims: self
                .dims
                .iter()
                .map(|(d, q)| (*d, q.times(p)))
                .filter(|(_, q)| !q.is_zero())
                .collect(),
            constant: self.constant.times(p),
            divisions: self.divisions.iter().map(|(d, q)| (d.clone(), q.times(p))).collect(),
        }
    }
    /// The loop dimension, if it is exactly that.
    pub fn as_dim(&self) -> Option<usize> {
        let (d, p) = self.dims.iter().next()?;
        (*self == LinearExpr::dim(*d) && p.known() == Some(1)).then_some(*d)
    }
    /// Its loop and the coefficient, of loops that reduce and of others, if it has at most one of
    /// each and nothing else.
    pub fn loop_terms(&self, reduction: &[bool]) -> Option<[Option<(usize, i64)>; 2]> {
        let mut found = [None; 2];
        for (d, coefficient) in &self.dims {
            let of = &mut found[usize::from(!*reduction.get(*d)?)];
            if of.replace((*d, coefficient.known()?)).is_some() {
                return None;
            }
        }
        (self.constant.is_zero() && self.divisions.is_empty()).then_some(found)
    }
    /// Whether a loop dimension occurs in it.
    pub fn uses(&self, d: usize) -> bool {
        self.dims.contains_key(&d) || self.in_division(d)
    }
    /// Whether a loop dimension occurs in a division.
    pub fn in_division(&self, d: usize) -> bool {
        self.divisions.iter().any(|(r, _)| r.dividend.uses(d))
    }
    /// The coefficient of a loop dimension; 0 if it does not occur.
    pub fn coefficient(&self, d: usize) -> Poly {
        self.dims.get(&d).cloned().unwrap_or_default()
    }
    /// Substitutes every loop dimension `d` by `f(d)`. `extents`: those of the new dimensions, by
    /// which divisions are simplified.
    pub fn substitute(&self, extents: &[Poly], f: &dyn Fn(usize) -> LinearExpr) -> LinearExpr {
        let mut all = LinearExpr::fixed(self.constant.clone());
        for (d, p) in &self.dims {
            all = all.plus(&f(*d).times(p));
        }
        for (r, p) in &self.divisions {
            all = all.plus(
                &division(r.dividend.substitute(extents, f), r.divisor, r.modulo, extents).times(p),
            );
        }
        all
    }
    /// The constant, if it depends on nothing.
    pub fn known(&self) -> Option<i64> {
        let constant = self.dims.is_empty() && self.divisions.is_empty();
        self.constant.known().filter(|_| constant)
    }
    /// The affine expression, if no coefficient has an SSA size: dimensions by their number, then
    /// the constant, then divisions.
    pub fn affine(&self) -> Option<Affine> {
        let scaled = |e, p: &Poly| p.known().map(|k| Expr::apply(SymKind::Mul, e, Expr::Const(k)));
        let mut terms = vec![];
        for (d, p) in &self.dims {
            terms.push(scaled(Affine::dim(*d), p)?);
        }
        terms.push(Expr::Const(self.constant.known()?));
        for (div, p) in &self.divisions {
            let kind = if div.modulo { SymKind::Mod } else { SymKind::Floordiv };
            terms.push(scaled(
                Expr::apply(kind, div.dividend.affine()?, Expr::Const(div.divisor)),
                p,
            )?);
        }
        terms.into_iter().reduce(|a, b| Expr::apply(SymKind::Add, a, b))
    }
    /// From an affine expression without symbols.
    pub fn of(e: &Affine, extents: &[Poly]) -> Result<LinearExpr> {
        const BAD: &str =
            "has an indexing map that multiplies or divides by something that is no number";
        let (kind, both) = match e {
            Expr::Leaf(MapInput::Dim(d)) => return Ok(LinearExpr::dim(*d)),
            Expr::Leaf(MapInput::Symbol(_)) => {
                return Err("has an indexing map with symbols".into());
            }
            Expr::Const(k) => return Ok(LinearExpr::fixed(Poly::number(*k))),
            Expr::Apply(kind, both) => (kind, both),
        };
        let (l, r) = (LinearExpr::of(&both.0, extents)?, LinearExpr::of(&both.1, extents)?);
        match (kind, l.known(), r.known()) {
            (SymKind::Add, ..) => Ok(l.plus(&r)),
            (SymKind::Mul, _, Some(k)) => Ok(l.times(&Poly::number(k))),
            (SymKind::Mul, Some(k), None) => Ok(r.times(&Poly::number(k))),
            (SymKind::Mod, _, Some(k)) if k > 0 => Ok(division(l, k, true, extents)),
            (SymKind::Floordiv, _, Some(k)) if k > 0 => Ok(division(l, k, false, extents)),
            _ => Err(BAD.into()),
        }
    }
}

/// A division, simplified: divisible terms are divided, and a remainder below the divisor drops
/// out.
fn division(of: LinearExpr, by: i64, modulo: bool, extents: &[Poly]) -> LinearExpr {
    let divisible = |p: &Poly| p.terms().all(|(_, k)| k % by == 0);
    let quotient = |p: &Poly| {
        p.terms().fold(Poly::default(), |a, (s, k)| {
            a.plus(&s.iter().fold(Poly::number(k / by), |m, v| m.times(&Poly::symbol(*v))))
        })
    };
    let (mut whole, mut left) = (
        LinearExpr::default(),
        LinearExpr { divisions: of.divisions.clone(), ..LinearExpr::default() },
    );
    for (d, p) in &of.dims {
        if divisible(p) {
            whole.dims.insert(*d, quotient(p))
        } else {
            left.dims.insert(*d, p.clone())
        };
    }
    if divisible(&of.constant) {
        whole.constant = quotient(&of.constant)
    } else {
        left.constant = of.constant.clone()
    }
    // With 0 <= left < by, its quotient is 0.
    let most = left.dims.iter().try_fold(left.constant.known(), |sum, (d, p)| {
        let (k, n) = (p.known().filter(|k| *k >= 0)?, extents.get(*d)?.known()?);
        Some(sum.map(|s| s + k * (n - 1).max(0)))
    });
    let small = left.divisions.is_empty()
        && left.constant.known().is_some_and(|k| k >= 0)
        && most.flatten().is_some_and(|m| m < by);
    let part = if left == LinearExpr::default() {
        LinearExpr::default()
    } else if small {
        if modulo { left } else { LinearExpr::default() }
    } else {
        LinearExpr {
            divisions: vec![(Div { dividend: left, divisor: by, modulo }, Poly::number(1))],
            ..LinearExpr::default()
        }
    };
    if modulo { part } else { whole.plus(&part) }
}
