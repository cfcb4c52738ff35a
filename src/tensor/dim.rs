//! Sizes: numbers, and expressions over symbols.
use super::Graph;
use kiln_dialects::{ir::Value, ops::SymKind, sym};
use std::{
    ops::{Add, Div, Mul, Rem, Sub},
    panic::Location,
};

/// A size: a number, or an expression over the symbols of [`Graph::dim`]. Computing with sizes never panics; one that has no value (an overflow,
/// a division by 0) is an error of the op that uses it. `/` rounds down, `%` has the divisor's sign, as in Python.
///
/// Two sizes are equal if they are the same for every value of the symbols, as far as their expressions show it.
#[derive(Clone, Copy)]
pub struct Dim<'t>(pub(super) Kind<'t>);

#[derive(Clone, Copy)]
pub(super) enum Kind<'t> {
    Known(i64),
    Open(&'t Open<'t>),
    /// No value: an overflow, or a division by 0.
    NoValue,
    /// Follows from an error that is recorded.
    Poison,
}

/// A symbolic size in the arena.
pub(super) struct Open<'t> {
    pub graph: &'t Graph,
    pub value: Value,
    /// The number of its expression in the graph.
    pub expr: usize,
}

impl<'t> Dim<'t> {
    pub(super) const POISON: Dim<'static> = Dim(Kind::Poison);
    pub(super) const NO_VALUE: Dim<'static> = Dim(Kind::NoValue);

    /// The number, if it is one.
    pub fn known(self) -> Option<i64> {
        if let Kind::Known(n) = self.0 { Some(n) } else { None }
    }
    /// Its expression, with numbers as numbers; unknown if it has no value.
    pub fn expression(self) -> sym::Dim {
        match self.0 {
            Kind::Known(n) => sym::Dim::Known(n),
            Kind::Open(o) => o.graph.expression(o.expr),
            Kind::NoValue | Kind::Poison => sym::Dim::Unknown,
        }
    }
    /// The lesser of two sizes.
    #[track_caller]
    pub fn min(self, other: impl Into<Dim<'t>>) -> Dim<'t> {
        self.apply(SymKind::Min, other.into(), Location::caller())
    }
    /// The greater of two sizes.
    #[track_caller]
    pub fn max(self, other: impl Into<Dim<'t>>) -> Dim<'t> {
        self.apply(SymKind::Max, other.into(), Location::caller())
    }
    fn apply(self, kind: SymKind, other: Dim<'t>, place: &'static Location<'static>) -> Dim<'t> {
        match (self.0, other.0) {
            (Kind::Poison, _) | (_, Kind::Poison) => Dim::POISON,
            (Kind::NoValue, _) | (_, Kind::NoValue) => Dim::NO_VALUE,
            (Kind::Known(x), Kind::Known(y)) => sym::evaluate(kind, x, y).map_or(Dim::NO_VALUE, Dim::from),
            (Kind::Open(o), _) | (_, Kind::Open(o)) => o.graph.compute(kind, self, other, place),
        }
    }
}

impl PartialEq for Dim<'_> {
    fn eq(&self, other: &Dim<'_>) -> bool {
        match (self.0, other.0) {
            (Kind::Known(x), Kind::Known(y)) => x == y,
            (Kind::Open(x), Kind::Open(y)) => std::ptr::eq(x.graph, y.graph) && self.expression() == other.expression(),
            _ => false,
        }
    }
}
impl PartialEq<i64> for Dim<'_> {
    fn eq(&self, other: &i64) -> bool {
        self.known() == Some(*other)
    }
}
impl std::fmt::Display for Dim<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.expression().fmt(f)
    }
}
impl std::fmt::Debug for Dim<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl From<i64> for Dim<'_> {
    fn from(n: i64) -> Self {
        Dim(Kind::Known(n))
    }
}
impl From<i32> for Dim<'_> {
    fn from(n: i32) -> Self {
        Dim(Kind::Known(n.into()))
    }
}
impl From<usize> for Dim<'_> {
    fn from(n: usize) -> Self {
        Dim(i64::try_from(n).map_or(Kind::NoValue, Kind::Known))
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident $kind:ident $negate:expr),*) => { $(
        impl<'t, T: Into<Dim<'t>>> $trait<T> for Dim<'t> {
            type Output = Dim<'t>;
            #[track_caller]
            fn $method(self, other: T) -> Dim<'t> {
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
        impl<'t> $trait<Dim<'t>> for $number {
            type Output = Dim<'t>;
            #[track_caller]
            fn $method(self, other: Dim<'t>) -> Dim<'t> {
                $trait::$method(Dim::from(self), other)
            }
        }
    };
}
arithmetic!(Add add Add false, Sub sub Add true, Mul mul Mul false, Div div Floordiv false, Rem rem Mod false);

/// Sizes of a tensor: an array, a slice or a `Vec` of numbers or of [`Dim`]s, or a tuple of both, such as `(batch, 64)`; `()` has no dimensions.
pub trait Shape<'t> {
    /// The sizes, outermost first.
    fn dims(self) -> Vec<Dim<'t>>;
}
impl<'t, T: Into<Dim<'t>>, const N: usize> Shape<'t> for [T; N] {
    fn dims(self) -> Vec<Dim<'t>> {
        self.into_iter().map(Into::into).collect()
    }
}
impl<'t, T: Into<Dim<'t>> + Copy> Shape<'t> for &[T] {
    fn dims(self) -> Vec<Dim<'t>> {
        self.iter().map(|x| (*x).into()).collect()
    }
}
impl<'t, T: Into<Dim<'t>>> Shape<'t> for Vec<T> {
    fn dims(self) -> Vec<Dim<'t>> {
        self.into_iter().map(Into::into).collect()
    }
}
impl<'t> Shape<'t> for () {
    fn dims(self) -> Vec<Dim<'t>> {
        vec![]
    }
}
macro_rules! tuples {
    ($(($($t:ident)*))*) => { $(
        impl<'t, $($t: Into<Dim<'t>>),*> Shape<'t> for ($($t,)*) {
            #[allow(non_snake_case)]
            fn dims(self) -> Vec<Dim<'t>> {
                let ($($t,)*) = self;
                vec![$($t.into()),*]
            }
        }
    )* };
}
tuples!((A)(A B)(A B C)(A B C D)(A B C D E)(A B C D E F));
