//! Strategies for CPUs.
pub mod attention;
pub mod blocked_gemm;
pub(crate) mod common;
pub mod contraction;
pub mod elementwise;
pub mod rows;
pub mod scalar;
pub mod transpose;

use super::Emission;
use common::tasks::Threads;
use kiln_dialects::Result;

impl Emission<'_, '_> {
    /// The calling thread's number and the number of threads.
    ///
    /// # Errors
    /// The kernel is not lowered for a CPU.
    pub fn threads(&self) -> Result<Threads> {
        match *self.arguments {
            [thread, count] => Ok((thread, count)),
            _ => Err("has no thread number".into()),
        }
    }
}
