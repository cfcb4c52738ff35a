//! Polynomials in normal form, so that equal sums and products compare equal.
use std::collections::BTreeMap;

/// A sum of products of leaves `A`: coefficient by sorted factors. The empty product is the
/// constant term. No coefficient is 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sum<A: Ord>(BTreeMap<Vec<A>, i64>);

impl<A: Ord> Default for Sum<A> {
    fn default() -> Sum<A> {
        Sum(BTreeMap::new())
    }
}

impl<A: Ord + Clone> Sum<A> {
    /// A constant.
    pub fn number(n: i64) -> Sum<A> {
        Sum(if n == 0 { BTreeMap::new() } else { BTreeMap::from([(vec![], n)]) })
    }
    /// One leaf.
    pub fn leaf(a: A) -> Sum<A> {
        Sum(BTreeMap::from([(vec![a], 1)]))
    }
    /// The constant, if it is one.
    pub fn known(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get([].as_slice()).copied(),
            _ => None,
        }
    }
    /// The leaf, if it is exactly that.
    pub fn as_leaf(&self) -> Option<&A> {
        match self.0.iter().next() {
            Some((factors, 1)) if self.0.len() == 1 && factors.len() == 1 => factors.first(),
            _ => None,
        }
    }
    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }
    /// The terms, by factors: factors and coefficient.
    pub fn terms(&self) -> impl DoubleEndedIterator<Item = (&[A], i64)> {
        self.0.iter().map(|(factors, n)| (factors.as_slice(), *n))
    }
    fn insert(&mut self, factors: Vec<A>, n: i64) -> Option<()> {
        let sum = self.0.get(&factors).copied().unwrap_or(0).checked_add(n)?;
        if sum == 0 {
            self.0.remove(&factors)
        } else {
            self.0.insert(factors, sum)
        };
        Some(())
    }
    /// The sum; `None` on overflow of a coefficient.
    pub fn plus(&self, other: &Sum<A>) -> Option<Sum<A>> {
        let mut r = self.clone();
        other.0.iter().try_for_each(|(f, n)| r.insert(f.clone(), *n))?;
        Some(r)
    }
    /// The product; `None` on overflow of a coefficient.
    pub fn times(&self, other: &Sum<A>) -> Option<Sum<A>> {
        let mut r = Sum::default();
        for (f, n) in &self.0 {
            for (g, m) in &other.0 {
                let mut factors = [f.as_slice(), g.as_slice()].concat();
                factors.sort();
                r.insert(factors, n.checked_mul(*m)?)?;
            }
        }
        Some(r)
    }
    /// The quotient if `other` is one term that divides every term of `self`. A divisor with
    /// leaves is taken as nonzero.
    pub fn divided_exactly(&self, other: &Sum<A>) -> Option<Sum<A>> {
        let (divisor, m) = other.0.iter().next().filter(|_| other.0.len() == 1)?;
        let mut r = Sum::default();
        for (factors, n) in &self.0 {
            if *m <= 0 || n % m != 0 {
                return None;
            }
            let mut rest = factors.clone();
            for d in divisor {
                rest.remove(rest.iter().position(|x| x == d)?);
            }
            r.insert(rest, n / m)?;
        }
        Some(r)
    }
    /// The greatest known divisor of every value, from the divisors of the leaves; 0 for the
    /// constant 0.
    pub fn divisor(&self, leaf: &dyn Fn(&A) -> i64) -> i64 {
        common_divisor(self.0.iter().map(|(f, n)| (*n, f.iter().map(leaf).collect())))
    }
}

/// The greatest known divisor of a sum of products: gcd over the terms of coefficient times
/// divisors of the factors. 0 divides nothing else.
pub fn common_divisor(terms: impl IntoIterator<Item = (i64, Vec<i64>)>) -> i64 {
    let gcd = |mut a: i64, mut b: i64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // Terms that overflow are ignored.
    let product = |(n, sizes): (i64, Vec<i64>)| {
        sizes.into_iter().fold(n.saturating_abs(), |all, d| all.checked_mul(d).unwrap_or(all))
    };
    terms.into_iter().map(product).fold(0, gcd)
}
