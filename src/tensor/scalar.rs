//! Number arguments of compiled functions. In a graph they are 0-d tensors, or symbolic sizes.
use super::{
    Dim, Graph, Operand, Tensor, arg::Arg, call_site::CallSite, handle::Node, handle::Repr,
};
use crate::runtime::guards::Scalar as Plain;
use kiln_dialects::value::DType;
use std::{
    ops::{Add, Div, Mul, Neg, Sub},
    panic::Location,
    sync::Arc,
};

/// A number argument of a [compiled](crate::compile()) function: an integer, float or bool. As an
/// operand it acts as a plain number in type promotion. The first value is specialised; a second
/// value causes one recompilation, where the number is an input, and further values none. Bools are
/// always specialised. Arithmetic on numbers gives numbers, in `i64` (wrapping) and `f64`, by
/// Python's rules: `/` gives a float.
///
/// Loop-carried numbers, and numbers returned from a branch, exist in the graph only; reading one
/// is a graph break.
///
/// Reading the value ([`Scalar::value`], [`Scalar::integer`]), or an op that needs it statically,
/// specialises on it, with a guard.
#[derive(Clone)]
pub struct Scalar {
    value: Plain,
    source: NumberSource,
}

#[derive(Clone)]
enum NumberSource {
    /// A plain value.
    Plain,
    /// An argument of the traced function, by leaf index.
    Argument { graph: u64, leaf: usize },
    /// Computed in a graph, from these arguments.
    Tensor(Tensor, Vec<usize>),
    /// An input of a program for all values; `value` is only an example.
    Dynamic(Tensor),
    /// Loop-carried, or returned from a branch: exists in the graph only; `value` merely tells the
    /// type.
    Carried(Tensor),
}

impl std::fmt::Debug for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.value)
    }
}

/// Equal values of the same origin. Numbers computed in a trace equal nothing.
impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        let same_source = match (&self.source, &other.source) {
            (NumberSource::Plain, NumberSource::Plain) => true,
            (
                NumberSource::Argument { graph, leaf },
                NumberSource::Argument { graph: g, leaf: l },
            ) => (graph, leaf) == (g, l),
            _ => false,
        };
        same_source && self.value == other.value
    }
}

impl Scalar {
    pub(crate) fn plain(value: Plain) -> Scalar {
        Scalar { value, source: NumberSource::Plain }
    }
    /// An argument of the traced function.
    pub(crate) fn argument(graph: &Graph, leaf: usize, value: Plain) -> Scalar {
        Scalar { value, source: NumberSource::Argument { graph: graph.id(), leaf } }
    }
    /// The value in this call, without a guard.
    pub(crate) fn peek(&self) -> Plain {
        self.value
    }
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.source, NumberSource::Plain)
    }
    /// Whether its value is unknown.
    pub(super) fn is_dynamic(&self) -> bool {
        matches!(self.source, NumberSource::Dynamic(_))
    }
    pub(super) fn is_float(&self) -> bool {
        self.dtype().is_float()
    }
    pub(super) fn dtype(&self) -> DType {
        match self.value {
            Plain::Float(_) => DType::F64,
            Plain::Bool(_) => DType::I1,
            _ => DType::I64,
        }
    }
    /// The value as a float; specialises on it.
    #[track_caller]
    pub fn value(&self) -> f64 {
        match self.specialise(Location::caller(), "the function reads it") {
            Plain::Float(x) => x,
            Plain::Int(n) => n as f64,
            other => f64::from(other == Plain::Bool(true)),
        }
    }
    /// As [`Scalar::value`], for integers; `None` for other types.
    #[track_caller]
    pub fn integer(&self) -> Option<i64> {
        if let Plain::Int(n) = self.specialise(Location::caller(), "the function reads it") {
            Some(n)
        } else {
            None
        }
    }
    /// Specialises on the value.
    pub(super) fn specialise(&self, site: CallSite, why: &str) -> Plain {
        let why = |graph: &Graph| {
            let at = graph.site(site);
            format!("{why} at {}:{}", at.file(), at.line())
        };
        match &self.source {
            NumberSource::Plain | NumberSource::Dynamic(_) => {}
            NumberSource::Carried(tensor) => {
                tensor.unread(site);
            }
            NumberSource::Argument { graph, leaf } => {
                if let Some(graph) = Graph::by_id(*graph) {
                    graph.specialise_number(*leaf, why(&graph));
                }
            }
            NumberSource::Tensor(tensor, leaves) => {
                let graph = tensor.graph();
                leaves.iter().for_each(|leaf| graph.specialise_number(*leaf, why(&graph)));
            }
        }
        self.value
    }
    /// A 0-d tensor of i64, f64 or i1. As an operand prefer the number itself: a tensor's dtype
    /// takes part in promotion.
    #[track_caller]
    pub fn tensor(&self) -> Tensor {
        let failed = |reason: String| Graph::current().failed("scalar", reason);
        match &self.source {
            NumberSource::Plain => {
                let made = match self.value {
                    Plain::Float(x) => Tensor::scalar(x),
                    Plain::Bool(b) => Tensor::scalar(b),
                    Plain::Int(n) => Tensor::scalar(n),
                    Plain::Count(_) | Plain::Training(_) => return failed("is no number".into()),
                };
                made.unwrap_or_else(|e| failed(e.to_string()))
            }
            NumberSource::Argument { graph, leaf } => match Graph::by_id(*graph) {
                Some(g) => g.number(*leaf, self.dtype(), Location::caller()),
                // As for every tensor of a finished trace.
                None => Tensor(Repr::Node(Arc::new(Node { graph: *graph, alias: None }))),
            },
            NumberSource::Tensor(t, _) | NumberSource::Dynamic(t) | NumberSource::Carried(t) => {
                t.clone()
            }
        }
    }
    /// An integer as a size. If the number is an input of the program, the size is a symbol with
    /// the range 2 and up. Negative values, 0, 1 and computed numbers are specialised. A float
    /// gives a size without a value, which is an error of the op that uses it.
    #[track_caller]
    pub fn size(&self) -> Dim {
        let Plain::Int(n) = self.value else { return Dim::NO_VALUE };
        let site = Location::caller();
        if let NumberSource::Argument { graph, leaf } = &self.source
            && let Some(size) = Graph::by_id(*graph).and_then(|g| g.number_as_size(*leaf, site))
        {
            return size;
        }
        self.specialise(
            site,
            if n < 2 {
                "0, 1 and negative numbers are no symbolic sizes"
            } else {
                "a size cannot be computed from it"
            },
        );
        n.into()
    }
    /// Replaces the value by a tensor, in ops that take it as an input.
    pub(super) fn with(&self, tensor: Tensor) -> Scalar {
        Scalar { value: self.value, source: NumberSource::Dynamic(tensor) }
    }
    /// A loop-carried number of the same kind, known only in the graph.
    pub(super) fn carried(&self, tensor: Tensor) -> Scalar {
        Scalar { value: self.value, source: NumberSource::Carried(tensor) }
    }
    /// Whether it was computed in a graph.
    pub(super) fn is_computed(&self) -> bool {
        matches!(self.source, NumberSource::Tensor(..) | NumberSource::Carried(_))
    }
    /// As a static operand; specialises.
    pub(super) fn specialised(&self, site: CallSite, why: &str) -> Operand {
        match self.specialise(site, why) {
            Plain::Float(x) => Operand::Float(x),
            Plain::Bool(b) => Operand::Bool(b),
            Plain::Int(n) => Operand::Int(n),
            // No public API creates this variant.
            Plain::Count(n) => Operand::Int(n as i64),
            Plain::Training(b) => Operand::Bool(b),
        }
    }
    fn leaves(&self) -> Vec<usize> {
        match &self.source {
            NumberSource::Plain | NumberSource::Dynamic(_) | NumberSource::Carried(_) => vec![],
            NumberSource::Argument { leaf, .. } => vec![*leaf],
            NumberSource::Tensor(_, leaves) => leaves.clone(),
        }
    }
    fn float(&self) -> f64 {
        match self.value {
            Plain::Float(x) => x,
            Plain::Int(n) => n as f64,
            other => f64::from(other == Plain::Bool(true)),
        }
    }
    /// As an operand of f64 or i64 arithmetic.
    fn operand(&self, dtype: DType) -> Operand {
        match (&self.source, dtype) {
            (NumberSource::Plain, DType::F64) => Operand::Float(self.float()),
            (NumberSource::Plain, _) => self.specialised(Location::caller(), ""),
            _ => Operand::Tensor(if self.dtype() == dtype {
                self.tensor()
            } else {
                self.tensor().to(dtype)
            }),
        }
    }
    #[track_caller]
    fn apply(&self, kind: Kind, other: &Scalar) -> Scalar {
        let integers = match (self.value, other.value) {
            (Plain::Int(x), Plain::Int(y)) if kind != Kind::Div => Some((x, y)),
            _ => None,
        };
        let value = match (integers, self.float(), other.float()) {
            (Some((x, y)), ..) => Plain::Int(match kind {
                Kind::Add => x.wrapping_add(y),
                Kind::Sub => x.wrapping_sub(y),
                Kind::Mul | Kind::Div => x.wrapping_mul(y),
            }),
            (None, x, y) => Plain::Float(match kind {
                Kind::Add => x + y,
                Kind::Sub => x - y,
                Kind::Mul => x * y,
                Kind::Div => x / y,
            }),
        };
        if self.is_plain() && other.is_plain() {
            return Scalar::plain(value);
        }
        let dtype = if integers.is_some() { DType::I64 } else { DType::F64 };
        let (op, target) = match kind {
            Kind::Add => ("add", "aten.add.Tensor"),
            Kind::Sub => ("sub", "aten.sub.Tensor"),
            Kind::Mul => ("mul", "aten.mul.Tensor"),
            Kind::Div => ("div", "aten.div.Tensor"),
        };
        let args = vec![
            ("self", Arg::Operand(self.operand(dtype))),
            ("other", Arg::Operand(other.operand(dtype))),
        ];
        let [tensor] = super::emit::exactly(Location::caller(), op, target, args);
        let mut leaves = self.leaves();
        leaves.extend(other.leaves());
        let carried = [self, other].iter().any(|s| matches!(s.source, NumberSource::Carried(_)));
        Scalar {
            value,
            source: if carried {
                NumberSource::Carried(tensor)
            } else {
                NumberSource::Tensor(tensor, leaves)
            },
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Add,
    Sub,
    Mul,
    Div,
}

macro_rules! from {
    ($($t:ty: $kind:ident),*) => { $(
        impl From<$t> for Scalar {
            fn from(x: $t) -> Scalar {
                Scalar::plain(Plain::$kind(x.into()))
            }
        }
    )* };
}
from!(f64: Float, f32: Float, i64: Int, i32: Int, bool: Bool);

impl From<&Scalar> for Scalar {
    fn from(s: &Scalar) -> Scalar {
        s.clone()
    }
}
/// [`Scalar::tensor`].
impl From<&Scalar> for Tensor {
    #[track_caller]
    fn from(s: &Scalar) -> Tensor {
        s.tensor()
    }
}
impl From<Scalar> for Tensor {
    #[track_caller]
    fn from(s: Scalar) -> Tensor {
        s.tensor()
    }
}
/// [`Scalar::size`].
impl From<&Scalar> for Dim {
    #[track_caller]
    fn from(s: &Scalar) -> Dim {
        s.size()
    }
}
impl From<Scalar> for Dim {
    #[track_caller]
    fn from(s: Scalar) -> Dim {
        s.size()
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident),*) => { $(
        arithmetic!(@right $trait $method Scalar);
        arithmetic!(@right $trait $method &Scalar);
        arithmetic!(@left $trait $method f64, f32, i64, i32);
    )* };
    (@right $trait:ident $method:ident $own:ty) => {
        impl<T: Into<Scalar>> $trait<T> for $own {
            type Output = Scalar;
            #[track_caller]
            fn $method(self, other: T) -> Scalar {
                self.apply(Kind::$trait, &other.into())
            }
        }
    };
    (@left $trait:ident $method:ident $($number:ty),*) => { $(
        arithmetic!(@number $trait $method $number, Scalar);
        arithmetic!(@number $trait $method $number, &Scalar);
    )* };
    (@number $trait:ident $method:ident $number:ty, $other:ty) => {
        impl $trait<$other> for $number {
            type Output = Scalar;
            #[track_caller]
            fn $method(self, other: $other) -> Scalar {
                Scalar::from(self).apply(Kind::$trait, &Scalar::from(other))
            }
        }
    };
}
arithmetic!(Add add, Sub sub, Mul mul, Div div);

impl Neg for Scalar {
    type Output = Scalar;
    #[track_caller]
    fn neg(self) -> Scalar {
        self.apply(Kind::Mul, &Scalar::from(-1i64))
    }
}
impl Neg for &Scalar {
    type Output = Scalar;
    #[track_caller]
    fn neg(self) -> Scalar {
        self.apply(Kind::Mul, &Scalar::from(-1i64))
    }
}

impl Graph {
    /// Lifts a number argument to an input after the arguments.
    fn number(&self, leaf: usize, dtype: DType, site: CallSite) -> Tensor {
        let made = self.state().and_then(|mut state| {
            state.cx.b.loc = state.loc(self.site(site));
            state.number(leaf, dtype)
        });
        match made {
            Ok(alias) => self.handle(Some(alias)),
            Err(e) => self.refuse(site, "scalar", e, &[]),
        }
    }
    /// An integer argument as a symbol, if it may be symbolic.
    fn number_as_size(&self, leaf: usize, site: CallSite) -> Option<Dim> {
        let name = {
            let mut state = self.state().ok()?;
            state.cx.b.loc = state.loc(self.site(site));
            state.size_number(leaf)?
        };
        Some(self.dim(&name, 2..=i64::MAX))
    }
    /// Specialises on a number's value in this call.
    fn specialise_number(&self, leaf: usize, why: String) {
        if let Ok(mut state) = self.state()
            && let Some(session) = &mut state.session
            && !session.specialised_numbers.iter().any(|(l, _)| *l == leaf)
        {
            session.specialised_numbers.push((leaf, why));
        }
    }
}
