//! Rust's operators on tensors, with tensors and numbers on either side.
use super::{Operand, Tensor, arg::Arg};
use std::{
    ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub},
    panic::Location,
};

macro_rules! binary {
    ($($(#[$doc:meta])* $trait:ident $method:ident $target:literal),* $(,)?) => { $(
        $(#[$doc])*
        impl<'t, T: Into<Operand<'t>>> $trait<T> for Tensor<'t> {
            type Output = Tensor<'t>;
            #[track_caller]
            fn $method(self, other: T) -> Tensor<'t> {
                self.call(stringify!($method), $target, [("other", Arg::Operand(other.into()))])
            }
        }
        binary!(@left $trait $method $target f64 f32 i64 i32 bool);
    )* };
    (@left $trait:ident $method:ident $target:literal $($number:ty)*) => { $(
        impl<'t> $trait<Tensor<'t>> for $number {
            type Output = Tensor<'t>;
            #[track_caller]
            fn $method(self, other: Tensor<'t>) -> Tensor<'t> {
                let args = vec![("self", Arg::from(self)), ("other", Arg::from(other))];
                let [r] = other.graph.exactly(Location::caller(), stringify!($method), $target, args);
                r
            }
        }
    )* };
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
    /// `torch.bitwise_and`, on truth values and integers.
    BitAnd bitand "aten.bitwise_and.Tensor",
    /// `torch.bitwise_or`.
    BitOr bitor "aten.bitwise_or.Tensor",
    /// `torch.bitwise_xor`.
    BitXor bitxor "aten.bitwise_xor.Tensor",
}

/// `torch.neg`.
impl<'t> Neg for Tensor<'t> {
    type Output = Tensor<'t>;
    #[track_caller]
    fn neg(self) -> Tensor<'t> {
        self.call("neg", "aten.neg.default", [])
    }
}
/// `torch.bitwise_not`; on truth values the logical not.
impl<'t> Not for Tensor<'t> {
    type Output = Tensor<'t>;
    #[track_caller]
    fn not(self) -> Tensor<'t> {
        self.call("not", "aten.bitwise_not.default", [])
    }
}
