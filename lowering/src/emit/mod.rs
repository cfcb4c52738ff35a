//! Target-independent code of a kernel: loops and index arithmetic, vectorised values, one
//! iteration of a nest's stages, and the function around them. The target's strategy maps
//! iterations to threads.
mod affine_loops;
pub mod body;
pub mod code;
pub mod function;
pub(crate) mod index;
pub mod lanes;
pub mod loops;
pub mod lower_affine;
pub mod partials;
