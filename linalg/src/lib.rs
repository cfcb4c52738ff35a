//! Matrix factorizations that programs call on the host, by names such as `kiln.linalg.lu`, and the
//! names of Fourier transforms.
//!
//! A [`Factorization`] has a rule of types and an implementation. Both take batches: the dimensions
//! in front of the last two are a loop over matrices, on the calling thread. Matrices are f32 or f64,
//! row-major where a function does not say that they are stored by columns. Conventions are LAPACK's: packed factors, 1-based pivots, `info` as the position of
//! the first failure or 0. Singular values, eigenvalues, matrix products and triangular systems are
//! the crate faer's.
mod check;
mod cholesky;
mod eigen;
mod factorization;
mod fourier;
mod householder;
mod ldl;
mod lu;
mod matrix;
mod spectral;
mod tensors;
mod triangular;

pub use check::Api;
pub use factorization::Factorization;
pub use fourier::Fourier;
pub use tensors::{Element, Error, Input, Output, Slice, SliceMut, Type};
