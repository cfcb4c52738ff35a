//! What several GPU strategies share: grid sizes, vector widths, thread groups, PTX instructions,
//! accumulator fragments.
pub(crate) mod accumulators;
pub(crate) mod cluster;
pub(crate) mod cooperative;
pub(crate) mod fragments;
pub(crate) mod grid;
pub(crate) mod grid_stride;
pub(crate) mod ptx;
pub(crate) mod roles;
pub(crate) mod score;
pub(crate) mod threads;
pub(crate) mod tile;
mod tile_bodies;
pub(crate) mod tma_store;
pub(crate) mod vector_width;
pub(crate) mod warp_mma;

use crate::{
    analysis::{Kernel, Nest, Poly, Stage},
    emit::code::Code,
    target::launch::SHARED_SPACE,
};
use kiln_dialects::{ir::*, sym::Dim};

/// Extents that cost models assume for dynamic dimensions.
pub mod assumed {
    /// M, N and K of a matrix product: as of a layer, so that tiles are full.
    pub const PRODUCT: i64 = crate::target::costs::PRODUCT_EXTENT;
    /// Axis of a scan, and product of its other dimensions.
    pub const SCAN: i64 = 2048;
    /// Of both dimensions of a transpose.
    pub const TRANSPOSE: i64 = 128;
    /// Batch size of images.
    pub const IMAGES: i64 = 32;
    /// Key count (sequence length) of an attention.
    pub const KEYS: i64 = 4096;
    /// Reduction extent of a row.
    pub const ROW: i64 = 1024;
}

/// `length / piece`, rounded up, without overflow at the largest lengths.
pub(crate) fn ceil_div(length: i64, piece: usize) -> i64 {
    length / piece as i64 + i64::from(length % piece as i64 != 0)
}

/// Checks the threads of a CTA.
///
/// # Errors
/// Fewer than a warp, or more than a CTA has.
pub(crate) fn check_threads(threads: usize) -> Result<()> {
    if (32..=1024).contains(&threads) {
        return Ok(());
    }
    Err(format!("has a schedule of {threads} threads a CTA; 32 to 1024 are possible").into())
}

/// Product of some extents of a nest, if all are static.
pub(crate) fn size(nest: &Nest, dims: &[usize]) -> Option<i64> {
    Poly::product(dims.iter().filter_map(|d| nest.extents.get(*d))).known()
}

/// Loop dimensions from `from` on that are reductions, or that are parallel.
pub(crate) fn dims(nest: &Nest, from: usize, reduction: bool) -> Vec<usize> {
    (from..nest.extents.len()).filter(|d| nest.reduction[*d] == reduction).collect()
}

/// Greatest power of two that does not exceed `n`.
pub(crate) fn floor_power_of_two(n: i64) -> i64 {
    let n = n.max(1) as u64;
    (if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 }) as i64
}

/// Whether partial results of all reductions of a nest can be combined.
pub fn combine(k: &Kernel, nest: &Nest) -> bool {
    nest.stages.iter().filter_map(|s| k.stages.get(*s)).all(Stage::combines)
}

/// Static shared memory for this many elements, aligned to 16 bytes.
pub(crate) fn shared(c: Code, element: Type, count: i64) -> Result<Value> {
    let ty = Type::memref_in(element, &[Dim::Known(count)], SHARED_SPACE);
    memref::Alloca::new(c, &[], &[], ty).alignment(16).result()
}

/// Stores the value, a scalar or a vector, if one is given, else loads one of the type.
pub(crate) fn exchange(
    c: Code,
    memory: Value,
    at: Value,
    v: Option<Value>,
    ty: Type,
) -> Result<Option<Value>> {
    let vector = ty.element().is_some();
    match v {
        Some(v) if vector => vector::store(c, v, memory, &[at]).map(|()| None),
        Some(v) => memref::store(c, v, memory, &[at]).map(|()| None),
        None if vector => vector::load(c, memory, &[at], ty).map(Some),
        None => memref::load(c, memory, &[at]).map(Some),
    }
}
