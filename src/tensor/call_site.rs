//! Source locations of ops.
use std::panic::Location;

/// A source location in the user's code.
pub(super) type CallSite = &'static Location<'static>;
