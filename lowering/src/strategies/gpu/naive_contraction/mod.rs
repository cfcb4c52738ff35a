//! Naive contraction.
pub(crate) mod emit;
