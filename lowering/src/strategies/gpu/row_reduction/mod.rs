//! Row reductions.
pub(crate) mod emit;
