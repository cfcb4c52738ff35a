//! Op arguments: tensors or numbers, and the arguments of an ATen row.
use super::{Dim, Scalar, Tensor, call_site::CallSite};
use crate::capture::aten::Val;
use kiln_dialects::{ir::Size, value::DType};

/// A tensor or a number. In type promotion a number acts as in PyTorch: it raises the category
/// (bool, integer, float) but not the width.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A bool.
    Bool(bool),
    /// A size, as an integer.
    Size(Dim),
    /// A number that may change between calls.
    Number(Scalar),
}

/// An argument of an ATen row.
#[derive(Clone, Debug)]
pub(super) enum Arg {
    Operand(Operand),
    Tensors(Vec<Tensor>),
    Sizes(Vec<Dim>),
    Plain(Val),
}

macro_rules! from {
    ($($t:ty => $make:expr),* $(,)?) => { $(
        impl From<$t> for Operand {
            fn from(x: $t) -> Operand {
                $make(x)
            }
        }
        impl From<$t> for Arg {
            fn from(x: $t) -> Arg {
                Arg::Operand($make(x))
            }
        }
    )* };
}
from! {
    Tensor => Operand::Tensor, &Tensor => |x: &Tensor| Operand::Tensor(x.clone()), i64 => Operand::Int, i32 => |x: i32| Operand::Int(x.into()), f64 => Operand::Float,
    f32 => |x: f32| Operand::Float(x.into()), bool => Operand::Bool, Dim => Operand::Size,
}

impl Operand {
    /// The operand, if it is represented by a tensor, possibly a 0-d one.
    pub(super) fn tensor(&self) -> Option<Tensor> {
        match self {
            Operand::Tensor(t) => Some(t.clone()),
            Operand::Number(s) => Some(s.tensor()),
            _ => None,
        }
    }
}
impl From<Scalar> for Operand {
    fn from(s: Scalar) -> Operand {
        if s.dtype() == DType::I1 { Operand::Bool(s.value() != 0.0) } else { Operand::Number(s) }
    }
}
impl From<&Scalar> for Operand {
    fn from(s: &Scalar) -> Operand {
        s.clone().into()
    }
}
impl From<Scalar> for Arg {
    fn from(s: Scalar) -> Arg {
        Arg::Operand(s.into())
    }
}
impl From<&Scalar> for Arg {
    fn from(s: &Scalar) -> Arg {
        Arg::Operand(s.into())
    }
}

impl Arg {
    pub(super) fn tensor(x: impl Into<Tensor>) -> Arg {
        Arg::Operand(Operand::Tensor(x.into()))
    }
    /// The tensors in it, in order.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        match self {
            Arg::Operand(o) => o.tensor().into_iter().collect(),
            Arg::Tensors(all) => all.clone(),
            Arg::Sizes(_) | Arg::Plain(_) => vec![],
        }
    }
    /// Replaces its tensors, in order.
    pub(super) fn with_tensors(self, next: &mut impl Iterator<Item = Tensor>) -> Arg {
        match self {
            Arg::Operand(Operand::Tensor(t)) => {
                Arg::Operand(Operand::Tensor(next.next().unwrap_or(t)))
            }
            Arg::Operand(Operand::Number(s)) => {
                Arg::Operand(Operand::Number(next.next().map_or_else(|| s.clone(), |t| s.with(t))))
            }
            Arg::Tensors(all) => {
                Arg::Tensors(all.into_iter().map(|t| next.next().unwrap_or(t)).collect())
            }
            other => other,
        }
    }
    /// Whether it is a number that may change between calls.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Arg::Operand(Operand::Number(_)))
    }
    /// Whether its value is unknown while tracing.
    pub(super) fn is_dynamic_number(&self) -> bool {
        matches!(self, Arg::Operand(Operand::Number(s)) if s.is_dynamic())
    }
    /// Whether it is a plain integer or float.
    pub(super) fn is_plain_number(&self) -> bool {
        matches!(self, Arg::Operand(Operand::Int(_) | Operand::Float(_)))
    }
    /// Turns a plain number into one that may change between calls.
    pub(super) fn into_number(self) -> Arg {
        match self {
            Arg::Operand(Operand::Int(n)) => Arg::Operand(Operand::Number(n.into())),
            Arg::Operand(Operand::Float(x)) => Arg::Operand(Operand::Number(x.into())),
            other => other,
        }
    }
    /// Specialises a number on its value in this call.
    pub(super) fn specialised(self, site: CallSite, why: &str) -> Arg {
        match self {
            Arg::Operand(Operand::Number(s)) => Arg::Operand(s.specialised(site, why)),
            other => other,
        }
    }
    pub(super) fn optional<T: Into<Arg>>(x: Option<T>) -> Arg {
        x.map_or(Arg::Plain(Val::None), Into::into)
    }
}
impl From<Operand> for Arg {
    fn from(x: Operand) -> Arg {
        Arg::Operand(x)
    }
}
impl From<Option<Tensor>> for Arg {
    fn from(x: Option<Tensor>) -> Arg {
        x.map_or(Arg::Plain(Val::None), Arg::from)
    }
}
impl From<&[Tensor]> for Arg {
    fn from(all: &[Tensor]) -> Arg {
        Arg::Tensors(all.to_vec())
    }
}
impl From<Vec<Dim>> for Arg {
    fn from(all: Vec<Dim>) -> Arg {
        Arg::Sizes(all)
    }
}
impl From<&[i64]> for Arg {
    fn from(all: &[i64]) -> Arg {
        Arg::Plain(Val::List(all.iter().map(|n| Val::Int(Size::Static(*n))).collect()))
    }
}
impl From<Option<Vec<i64>>> for Arg {
    fn from(all: Option<Vec<i64>>) -> Arg {
        all.map_or(Arg::Plain(Val::None), |all| Arg::from(all.as_slice()))
    }
}
impl From<DType> for Arg {
    fn from(d: DType) -> Arg {
        Arg::Plain(Val::DType(d))
    }
}
impl From<&str> for Arg {
    fn from(s: &str) -> Arg {
        Arg::Plain(Val::Str(s.into()))
    }
}
