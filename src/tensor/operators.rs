//! Rust operators, with tensors and numbers on either side.
use super::{Operand, Scalar, Tensor, arg::Arg, emit};
use std::{
    ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub},
    panic::Location,
};

macro_rules! binary {
    ($($(#[$doc:meta])* $trait:ident $method:ident $target:literal),* $(,)?) => { $(
        binary!(@tensor $(#[$doc])* $trait $method $target Tensor);
        binary!(@tensor $(#[$doc])* $trait $method $target &Tensor);
        binary!(@left $trait $method $target f64, f32, i64, i32, bool, Scalar, &Scalar);
    )* };
    (@tensor $(#[$doc:meta])* $trait:ident $method:ident $target:literal $own:ty) => {
        $(#[$doc])*
        impl<T: Into<Operand>> $trait<T> for $own {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: T) -> Tensor {
                self.call(stringify!($method), $target, [("other", Arg::Operand(other.into()))])
            }
        }
    };
    (@left $trait:ident $method:ident $target:literal $($number:ty),*) => { $(
        binary!(@number $trait $method $target $number, Tensor);
        binary!(@number $trait $method $target $number, &Tensor);
    )* };
    (@number $trait:ident $method:ident $target:literal $number:ty, $own:ty) => {
        impl $trait<$own> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $own) -> Tensor {
                let args = vec![("self", Arg::from(self)), ("other", Arg::tensor(other))];
                let [r] = emit::exactly(Location::caller(), stringify!($method), $target, args);
                r
            }
        }
    };
}
binary! {
    /// `torch.add`.
    Add add "aten.add.Tensor",
    /// `torch.sub`.
    Sub sub "aten.sub.Tensor",
    /// `torch.mul`.
    Mul mul "aten.mul.Tensor",
    /// `torch.div`: integers become floats.
    Div div "aten.div.Tensor",
    /// `torch.remainder`, Python's `%`: the result has the divisor's sign.
    Rem rem "aten.remainder.Tensor",
    /// `torch.bitwise_and`, on bools and integers.
    BitAnd bitand "aten.bitwise_and.Tensor",
    /// `torch.bitwise_or`.
    BitOr bitor "aten.bitwise_or.Tensor",
    /// `torch.bitwise_xor`.
    BitXor bitxor "aten.bitwise_xor.Tensor",
}

macro_rules! unary {
    ($($(#[$doc:meta])* $trait:ident $method:ident $target:literal),* $(,)?) => { $(
        unary!(@one $(#[$doc])* $trait $method $target Tensor);
        unary!(@one $(#[$doc])* $trait $method $target &Tensor);
    )* };
    (@one $(#[$doc:meta])* $trait:ident $method:ident $target:literal $own:ty) => {
        $(#[$doc])*
        impl $trait for $own {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                self.call(stringify!($method), $target, [])
            }
        }
    };
}
unary! {
    /// `torch.neg`.
    Neg neg "aten.neg.default",
    /// `torch.bitwise_not`; logical not on bools.
    Not not "aten.bitwise_not.default",
}
