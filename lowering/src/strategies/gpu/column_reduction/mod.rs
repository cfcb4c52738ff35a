//! Column reductions.
pub(crate) mod emit;
