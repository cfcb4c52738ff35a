//! Non-temporal stores, of whole vectors only: the processor combines them to cache lines, and
//! partial ones leave lines half full.
use crate::{
    analysis::{Kernel, Nest, NestPlan, Poly},
    strategies::cpu::common::vector::{lanes, vector_dim},
};

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Bytes of a way of the L1 cache: 64 sets of a line each.
const L1_WAY_BYTES: i64 = 4096;

/// Whether rows with this stride, in elements of `size` bytes, map to the same L1 cache sets.
pub fn shares_sets(stride: &Poly, size: i64) -> bool {
    stride.known().is_some_and(|n| n * size % L1_WAY_BYTES == 0)
}

/// Whether a vector of each result of a nest is a whole cache line. Partial writes to distant lines
/// wait for memory each time.
pub fn whole_lines(k: &Kernel, nest: &Nest, bits: usize) -> bool {
    let size = |b: usize| {
        k.buffers.get(b)?.element.dtype().ok().map(|d| d.byte_size() * lanes(k, nest, bits))
    };
    nest.all().flat_map(|s| &k.stages[s].outputs).all(|o| size(o.access.buffer) == Some(LINE))
}

/// Whether all vector stores to results are aligned to their size, provided that the results are.
pub fn in_lines(k: &Kernel, plan: &NestPlan, nest: &Nest, bits: usize) -> bool {
    let Some(vector) = vector_dim(k, plan, nest, 0).filter(|v| !nest.reduction[*v]) else {
        return false;
    };
    let lanes = lanes(k, nest, bits) as i64;
    let multiple = |p: &Poly| p.terms().all(|(_, n)| n % lanes == 0);
    let real = |b: usize| !plan.forwarded.get(b).copied().unwrap_or(false);
    let mut written = nest
        .all()
        .filter_map(|s| k.stages.get(s))
        .flat_map(|s| &s.outputs)
        .filter(|o| real(o.access.buffer));
    written.all(|o| {
        let at = &o.access.at;
        let along = |d: usize| {
            if d == vector {
                at.coefficient(d).known() == Some(1)
            } else {
                multiple(&at.coefficient(d))
            }
        };
        at.divisions.is_empty() && multiple(&at.constant) && (0..nest.extents.len()).all(along)
    })
}
