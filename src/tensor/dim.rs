//! Symbolic sizes: numbers, and expressions over symbols.
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

/// A size: a number, or an expression over the symbols of [`Graph::dim`]. Arithmetic never panics:
/// a size without a value (overflow, division by 0) is an error of the op that uses it. `/` rounds
/// down and `%` has the divisor's sign, as in Python.
///
/// In a [`trace`](crate::trace), a comparison is true only if it holds for all symbol values;
/// equality is decided by expressions, order by symbol ranges. In a [compiled](crate::compile())
/// function a comparison is evaluated with the hints of the current call, and adds a guard.
#[derive(Clone, Copy)]
pub struct Dim(pub(super) Kind);

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Known(i64),
    Symbolic(SymbolicDim),
    /// No value: overflow or division by 0.
    NoValue,
    /// Follows from a recorded error.
    Poison,
}

/// A symbolic size of a graph.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SymbolicDim {
    pub graph: u64,
    /// Index of its expression in the graph.
    pub index: usize,
}

impl Dim {
    pub(super) const POISON: Dim = Dim(Kind::Poison);
    pub(super) const NO_VALUE: Dim = Dim(Kind::NoValue);

    /// The value, if it is static.
    pub fn known(self) -> Option<i64> {
        if let Kind::Known(n) = self.0 { Some(n) } else { None }
    }
    /// The value. In a compiled function, specialises a symbolic size on its value in this call,
    /// which adds a guard. `None` in a trace without a call.
    pub fn specialised(self) -> Option<i64> {
        let Kind::Symbolic(symbolic) = self.0 else { return self.known() };
        let (graph, expression) = (Graph::by_id(symbolic.graph)?, self.expression());
        let mut state = graph.state().ok()?;
        state.session.as_mut()?.specialise(&expression)
    }
    /// The hint: its value in the current call, if there is one.
    pub(super) fn hint(self) -> Option<i64> {
        let Kind::Symbolic(symbolic) = self.0 else { return self.known() };
        let (graph, expression) = (Graph::by_id(symbolic.graph)?, self.expression());
        let state = graph.state().ok()?;
        state.session.as_ref()?.value(&expression)
    }
    /// Its expression; unknown if it has no value.
    pub fn expression(self) -> sym::Dim {
        match self.0 {
            Kind::Known(n) => sym::Dim::Known(n),
            Kind::Symbolic(o) => {
                Graph::by_id(o.graph).map_or(sym::Dim::Unknown, |g| g.expression(o.index))
            }
            Kind::NoValue | Kind::Poison => sym::Dim::Unknown,
        }
    }
    /// Minimum of two sizes.
    #[track_caller]
    pub fn min(self, other: impl Into<Dim>) -> Dim {
        self.apply(SymKind::Min, other.into(), Location::caller())
    }
    /// Maximum of two sizes.
    #[track_caller]
    pub fn max(self, other: impl Into<Dim>) -> Dim {
        self.apply(SymKind::Max, other.into(), Location::caller())
    }
    fn apply(self, kind: SymKind, other: Dim, site: &'static Location<'static>) -> Dim {
        match (self.0, other.0) {
            (Kind::Poison, _) | (_, Kind::Poison) => Dim::POISON,
            (Kind::NoValue, _) | (_, Kind::NoValue) => Dim::NO_VALUE,
            (Kind::Known(x), Kind::Known(y)) => {
                sym::evaluate(kind, x, y).map_or(Dim::NO_VALUE, Dim::from)
            }
            (Kind::Symbolic(o), _) | (_, Kind::Symbolic(o)) => {
                Graph::by_id(o.graph).map_or(Dim::NO_VALUE, |g| g.compute(kind, self, other, site))
            }
        }
    }
}

impl Dim {
    /// Evaluates a comparison; false if it is undecided. In a compiled function it is evaluated
    /// with hints, and adds a guard.
    fn holds(self, kind: CompareKind, other: Dim) -> bool {
        let decided = || {
            let graph = match (self.0, other.0) {
                (Kind::Known(x), Kind::Known(y)) => return Some(sym::holds(kind, x, y)),
                (Kind::Symbolic(x), Kind::Symbolic(y)) if x.graph != y.graph => return None,
                (Kind::Symbolic(x), _) | (_, Kind::Symbolic(x)) => Graph::by_id(x.graph)?,
                _ => return None,
            };
            let (x, y) = (self.expression(), other.expression());
            if x == sym::Dim::Unknown || y == sym::Dim::Unknown {
                return None;
            }
            let difference = x.sub(&y);
            let mut state = graph.state().ok()?;
            let (low, high) = difference
                .known()
                .map_or_else(|| state.facts.bounds(&difference), |n| (Some(n), Some(n)));
            // If it has the same answer at both ends of the difference's range, it has that answer
            // in between.
            let always = match kind {
                CompareKind::Eq | CompareKind::Ne => match (low, high) {
                    (Some(0), Some(0)) => Some(true),
                    (Some(1..), _) | (_, Some(..0)) => Some(false),
                    _ => None,
                }
                .map(|equal| equal == (kind == CompareKind::Eq)),
                CompareKind::Lt => order(low, high, 0),
                CompareKind::Le => order(low, high, 1),
                CompareKind::Gt => order(low, high, 1).map(|b| !b),
                CompareKind::Ge => order(low, high, 0).map(|b| !b),
            };
            always.or_else(|| state.session.as_mut()?.decide(kind, &x, &y))
        };
        decided().unwrap_or(false)
    }
}

/// Whether every number in this range is below `n`; `None` if undecided.
fn order(low: Option<i64>, high: Option<i64>, n: i64) -> Option<bool> {
    match (low, high) {
        (_, Some(high)) if high < n => Some(true),
        (Some(low), _) if low >= n => Some(false),
        _ => None,
    }
}

impl PartialEq for Dim {
    fn eq(&self, other: &Dim) -> bool {
        self.holds(CompareKind::Eq, *other)
    }
}
impl PartialEq<i64> for Dim {
    fn eq(&self, other: &i64) -> bool {
        self.holds(CompareKind::Eq, Dim::from(*other))
    }
}
macro_rules! ordered {
    ($($other:ty),*) => { $(
        impl PartialOrd<$other> for Dim {
            fn partial_cmp(&self, other: &$other) -> Option<Ordering> {
                let other = Dim::from(*other);
                let all = [(CompareKind::Lt, Ordering::Less), (CompareKind::Eq, Ordering::Equal), (CompareKind::Gt, Ordering::Greater)];
                all.into_iter().find(|(kind, _)| self.holds(*kind, other)).map(|(_, order)| order)
            }
            fn lt(&self, other: &$other) -> bool {
                self.holds(CompareKind::Lt, Dim::from(*other))
            }
            fn le(&self, other: &$other) -> bool {
                self.holds(CompareKind::Le, Dim::from(*other))
            }
            fn gt(&self, other: &$other) -> bool {
                self.holds(CompareKind::Gt, Dim::from(*other))
            }
            fn ge(&self, other: &$other) -> bool {
                self.holds(CompareKind::Ge, Dim::from(*other))
            }
        }
    )* };
}
ordered!(Dim, i64);

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
                let (site, other) = (Location::caller(), other.into());
                let other = if $negate { other.apply(SymKind::Mul, Dim::from(-1i64), site) } else { other };
                self.apply(SymKind::$kind, other, site)
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

/// A shape: an array, a slice or a `Vec` of numbers or [`Dim`]s, or a tuple of both, such as
/// `(batch, 64)`; `()` is 0-d.
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
