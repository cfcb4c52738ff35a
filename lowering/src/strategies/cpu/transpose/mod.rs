//! Transposes.
pub(crate) mod registers;
