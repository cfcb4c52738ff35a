//! What ops take: tensors and numbers alike, and the arguments of an ATen row.
use super::{Dim, Tensor};
use crate::capture::aten::Val;
use kiln_dialects::{ir::Size, value::DType};

/// A tensor, or a number, which takes part in type promotion as Python's do: it raises the category (truth value, integer, float) but not the width.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'t> {
    /// A tensor.
    Tensor(Tensor<'t>),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A size as an integer.
    Size(Dim<'t>),
}

/// An argument of an ATen row.
pub(super) enum Arg<'t> {
    Operand(Operand<'t>),
    Tensors(Vec<Tensor<'t>>),
    Sizes(Vec<Dim<'t>>),
    Plain(Val),
}

macro_rules! from {
    ($($t:ty => $make:expr),* $(,)?) => { $(
        impl<'t> From<$t> for Operand<'t> {
            fn from(x: $t) -> Operand<'t> {
                $make(x)
            }
        }
        impl<'t> From<$t> for Arg<'t> {
            fn from(x: $t) -> Arg<'t> {
                Arg::Operand($make(x))
            }
        }
    )* };
}
from! {
    Tensor<'t> => Operand::Tensor, i64 => Operand::Int, i32 => |x: i32| Operand::Int(x.into()), f64 => Operand::Float,
    f32 => |x: f32| Operand::Float(x.into()), bool => Operand::Bool, Dim<'t> => Operand::Size,
}

impl<'t> Operand<'t> {
    pub(super) fn tensor(&self) -> Option<Tensor<'t>> {
        if let Operand::Tensor(t) = self { Some(*t) } else { None }
    }
}

impl<'t> Arg<'t> {
    pub(super) fn optional<T: Into<Arg<'t>>>(x: Option<T>) -> Arg<'t> {
        x.map_or(Arg::Plain(Val::None), Into::into)
    }
}
impl<'t> From<Operand<'t>> for Arg<'t> {
    fn from(x: Operand<'t>) -> Arg<'t> {
        Arg::Operand(x)
    }
}
impl<'t> From<Option<Tensor<'t>>> for Arg<'t> {
    fn from(x: Option<Tensor<'t>>) -> Arg<'t> {
        x.map_or(Arg::Plain(Val::None), Arg::from)
    }
}
impl<'t> From<&[Tensor<'t>]> for Arg<'t> {
    fn from(all: &[Tensor<'t>]) -> Arg<'t> {
        Arg::Tensors(all.to_vec())
    }
}
impl<'t> From<Vec<Dim<'t>>> for Arg<'t> {
    fn from(all: Vec<Dim<'t>>) -> Arg<'t> {
        Arg::Sizes(all)
    }
}
impl<'t> From<&[i64]> for Arg<'t> {
    fn from(all: &[i64]) -> Arg<'t> {
        Arg::Plain(Val::List(all.iter().map(|n| Val::Int(Size::Static(*n))).collect()))
    }
}
impl<'t> From<Option<Vec<i64>>> for Arg<'t> {
    fn from(all: Option<Vec<i64>>) -> Arg<'t> {
        all.map_or(Arg::Plain(Val::None), |all| Arg::from(all.as_slice()))
    }
}
impl<'t> From<DType> for Arg<'t> {
    fn from(d: DType) -> Arg<'t> {
        Arg::Plain(Val::DType(d))
    }
}
impl<'t> From<&str> for Arg<'t> {
    fn from(s: &str) -> Arg<'t> {
        Arg::Plain(Val::Str(s.into()))
    }
}
