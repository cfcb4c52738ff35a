//! What several CPU strategies share.
pub(crate) mod cache_lines;
pub(crate) mod tasks;
pub(crate) mod transposed;
pub(crate) mod vector;

use crate::analysis::{Kernel, NestPlan};
use kiln_dialects::ir::walk;

/// Least work of a task, in elements.
pub const MIN_TASK_ELEMENTS: i64 = 16384;

/// Unroll factor of the innermost loop in vectors: short bodies leave registers for more.
pub fn unroll(k: &Kernel, plan: &NestPlan) -> usize {
    let ops = |s: usize| walk(k.stages[s].op).len();
    if plan.nests.iter().all(|n| n.all().map(ops).sum::<usize>() < 16) { 4 } else { 2 }
}
