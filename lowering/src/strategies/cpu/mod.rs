//! Strategies for processors.
pub(crate) mod attention;
pub(crate) mod blocked_gemm;
pub(crate) mod choose;
pub(crate) mod common;
pub(crate) mod contraction;
pub(crate) mod transpose;
