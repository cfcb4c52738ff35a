//! Kernel strategies: how a kernel is computed, for both targets.
pub(crate) mod cpu;
pub(crate) mod gpu;
