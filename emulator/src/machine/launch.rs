//! What the machine runs.
use crate::ptx::Kernel;
use std::sync::Arc;

/// A kernel launch.
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Arc<Kernel>,
    /// The grid in CTAs.
    pub grid: [u32; 3],
    /// The CTA in threads.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// The parameter buffer, laid out as [`Kernel::params`].
    pub params: &'a [u8],
}
