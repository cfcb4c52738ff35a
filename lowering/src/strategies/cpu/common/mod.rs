//! What several CPU strategies share.
pub(crate) mod cache_lines;
pub(crate) mod tasks;
pub(crate) mod transposed;
