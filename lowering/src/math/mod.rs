//! Expansions of math functions into arithmetic.
pub(crate) mod approximation;
pub(crate) mod double;
pub(crate) mod emit;
pub(crate) mod exp;
pub mod expand_math;
pub(crate) mod fp8;
pub(crate) mod log;
pub(crate) mod pow;
pub(crate) mod rare;
pub(crate) mod remainder;
pub(crate) mod trig;
