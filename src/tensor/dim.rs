//! Sizes: numbers, and expressions over symbols.
use super::Graph;
use kiln_dialects::{
    ops::{CompareKind, SymKind},
    sym,
};
use std::{
    cmp::Ordering,
    ops::{Add, Div, Mul, Rem, Sub},
    panic::Location,
};

/// A size: a number, or an expression over the symbols of [`Graph::dim`]. Computing with sizes never panics; one that has no value (an overflow,
/// a division by 0) is an error of the op that uses it. `/` rounds down, `%` has the divisor's sign, as in Python.
///
/// In a [`trace`](crate::trace), two sizes are equal if they are the same for every value of the symbols, as far as their expressions show it, and
/// ordered as far as the ranges of the symbols show it. In a function that is [compiled](crate::compile()) for a call, a comparison has the answer that
/// it has for this call; the answer becomes a guard.
#[derive(Clone, Copy)]
pub struct Dim(pub(super) Kind);

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Known(i64),
    Open(Open),
    /// No value: an overflow, or a division by 0.
    NoValue,
    /// Follows from an error that is recorded.
    Poison,
}

/// A symbolic size of a graph.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Open {
    pub graph: u64,
    /// The number of its expression in the graph.
    pub index: usize,
}

impl Dim {
    pub(super) const POISON: Dim = Dim(Kind::Poison);
    pub(super) const NO_VALUE: Dim = Dim(Kind::NoValue);

    /// The number, if it is one.
    pub fn known(self) -> Option<i64> {
        if let Kind::Known(n) = self.0 { Some(n) } else { None }
    }
    /// Its expression, with numbers as numbers; unknown if it has no value.
    pub fn expression(self) -> sym::Dim {
        match self.0 {
            Kind::Known(n) => sym::Dim::Known(n),
            Kind::Open(o) => Graph::by_id(o.graph).map_or(sym::Dim::Unknown, |g| g.expression(o.index)),
            Kind::NoValue | Kind::Poison => sym::Dim::Unknown,
        }
    }
    /// The lesser of two sizes.
    #[track_caller]
    pub fn min(self, other: impl Into<Dim>) -> Dim {
        self.apply(SymKind::Min, other.into(), Location::caller())
    }
    /// The greater of two sizes.
    #[track_caller]
    pub fn max(self, other: impl Into<Dim>) -> Dim {
        self.apply(SymKind::Max, other.into(), Location::caller())
    }
    fn apply(self, kind: SymKind, other: Dim, place: &'static Location<'static>) -> Dim {
        match (self.0, other.0) {
            (Kind::Poison, _) | (_, Kind::Poison) => Dim::POISON,
            (Kind::NoValue, _) | (_, Kind::NoValue) => Dim::NO_VALUE,
            (Kind::Known(x), Kind::Known(y)) => sym::evaluate(kind, x, y).map_or(Dim::NO_VALUE, Dim::from),
            (Kind::Open(o), _) | (_, Kind::Open(o)) => Graph::by_id(o.graph).map_or(Dim::NO_VALUE, |g| g.compute(kind, self, other, place)),
        }
    }
}

impl Dim {
    /// The graph of a comparison with this size.
    fn graph(self, other: Dim) -> Option<Graph> {
        match (self.0, other.0) {
            (Kind::Open(x), Kind::Open(y)) if x.graph != y.graph => None,
            (Kind::Open(x), _) | (_, Kind::Open(x)) => Graph::by_id(x.graph),
            _ => None,
        }
    }
    fn compare(self, other: Dim) -> Option<Ordering> {
        if let (Kind::Known(x), Kind::Known(y)) = (self.0, other.0) {
            return Some(x.cmp(&y));
        }
        let graph = self.graph(other)?;
        let (x, y) = (self.expression(), other.expression());
        if x == sym::Dim::Unknown || y == sym::Dim::Unknown {
            return None;
        }
        if x == y {
            return Some(Ordering::Equal);
        }
        let difference = x.sub(&y);
        let mut state = graph.state().ok()?;
        if let Some(n) = difference.known() {
            return Some(n.cmp(&0));
        }
        let bounds = state.facts.bounds(&difference);
        match (bounds, &mut state.session) {
            ((Some(1..), _), _) => Some(Ordering::Greater),
            ((_, Some(..0)), _) => Some(Ordering::Less),
            (_, Some(session)) => session.compare(&x, &y),
            _ => None,
        }
    }
    fn equals(self, other: Dim) -> bool {
        match self.compare(other) {
            Some(order) => order == Ordering::Equal,
            None => false,
        }
    }
    /// Whether both are equal; the answer of a compiled function's call is a guard of [`CompareKind::Eq`] or [`CompareKind::Ne`] only.
    fn same(self, other: Dim) -> bool {
        let decided = || {
            let graph = self.graph(other)?;
            let (x, y) = (self.expression(), other.expression());
            if x == y || x.differs(&y) {
                return None;
            }
            let mut state = graph.state().ok()?;
            let session = state.session.as_mut()?;
            session.decide(CompareKind::Eq, &x, &y)
        };
        decided().unwrap_or_else(|| self.equals(other))
    }
}

impl PartialEq for Dim {
    fn eq(&self, other: &Dim) -> bool {
        self.same(*other)
    }
}
impl PartialEq<i64> for Dim {
    fn eq(&self, other: &i64) -> bool {
        self.same(Dim::from(*other))
    }
}
impl PartialOrd for Dim {
    fn partial_cmp(&self, other: &Dim) -> Option<Ordering> {
        self.compare(*other)
    }
}
impl PartialOrd<i64> for Dim {
    fn partial_cmp(&self, other: &i64) -> Option<Ordering> {
        self.compare(Dim::from(*other))
    }
}
impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.expression().fmt(f)
    }
}
impl std::fmt::Debug for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl From<i64> for Dim {
    fn from(n: i64) -> Self {
        Dim(Kind::Known(n))
    }
}
impl From<i32> for Dim {
    fn from(n: i32) -> Self {
        Dim(Kind::Known(n.into()))
    }
}
impl From<usize> for Dim {
    fn from(n: usize) -> Self {
        Dim(i64::try_from(n).map_or(Kind::NoValue, Kind::Known))
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident $kind:ident $negate:expr),*) => { $(
        impl<T: Into<Dim>> $trait<T> for Dim {
            type Output = Dim;
            #[track_caller]
            fn $method(self, other: T) -> Dim {
                let (place, other) = (Location::caller(), other.into());
                let other = if $negate { other.apply(SymKind::Mul, Dim::from(-1i64), place) } else { other };
                self.apply(SymKind::$kind, other, place)
            }
        }
        arithmetic!(@left $trait $method i64);
        arithmetic!(@left $trait $method i32);
        arithmetic!(@left $trait $method usize);
    )* };
    (@left $trait:ident $method:ident $number:ty) => {
        impl $trait<Dim> for $number {
            type Output = Dim;
            #[track_caller]
            fn $method(self, other: Dim) -> Dim {
                $trait::$method(Dim::from(self), other)
            }
        }
    };
}
arithmetic!(Add add Add false, Sub sub Add true, Mul mul Mul false, Div div Floordiv false, Rem rem Mod false);

/// Sizes of a tensor: an array, a slice or a `Vec` of numbers or of [`Dim`]s, or a tuple of both, such as `(batch, 64)`; `()` has no dimensions.
pub trait Shape {
    /// The sizes, outermost first.
    fn dims(self) -> Vec<Dim>;
}
impl<T: Into<Dim>, const N: usize> Shape for [T; N] {
    fn dims(self) -> Vec<Dim> {
        self.into_iter().map(Into::into).collect()
    }
}
impl<T: Into<Dim> + Copy> Shape for &[T] {
    fn dims(self) -> Vec<Dim> {
        self.iter().map(|x| (*x).into()).collect()
    }
}
impl<T: Into<Dim>> Shape for Vec<T> {
    fn dims(self) -> Vec<Dim> {
        self.into_iter().map(Into::into).collect()
    }
}
impl Shape for () {
    fn dims(self) -> Vec<Dim> {
        vec![]
    }
}
macro_rules! tuples {
    ($(($($t:ident)*))*) => { $(
        impl<$($t: Into<Dim>),*> Shape for ($($t,)*) {
            #[allow(non_snake_case)]
            fn dims(self) -> Vec<Dim> {
                let ($($t,)*) = self;
                vec![$($t.into()),*]
            }
        }
    )* };
}
tuples!((A)(A B)(A B C)(A B C D)(A B C D E)(A B C D E F));
