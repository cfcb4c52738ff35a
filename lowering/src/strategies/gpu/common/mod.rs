//! What several GPU strategies share: extents, lanes and warps, PTX instructions, fragments.
pub(crate) mod accumulators;
pub(crate) mod cooperative;
pub(crate) mod fragments;
pub(crate) mod grid;
pub(crate) mod grid_stride;
pub(crate) mod ptx;
pub(crate) mod roles;
pub(crate) mod score;
pub(crate) mod threads;
pub(crate) mod tma_store;
pub(crate) mod vector_width;
pub(crate) mod warp_mma;
pub(crate) mod warp_specialisation;

use crate::{
    analysis::{Kernel, Nest, Poly, Stage},
    emit::code::Code,
};
use kiln_dialects::Result;
use kiln_dialects::ir::{Attr, Type, Value};

/// Extents that cost models assume for dynamic dimensions.
pub mod assumed {
    /// Of a matrix product: rows, columns and K of a layer, so that tiles are full.
    pub const PRODUCT: i64 = crate::target::costs::PRODUCT_EXTENT;
    /// Of a scan's axis, and of its other dimensions together.
    pub const SCAN: i64 = 2048;
    /// Of both dimensions of a transpose.
    pub const TRANSPOSE: i64 = 128;
    /// Of a batch of images.
    pub const IMAGES: i64 = 32;
    /// Of the keys of an attention.
    pub const KEYS: i64 = 4096;
    /// Of what a row reduces.
    pub const ROW: i64 = 1024;
}

/// How many pieces of a length cover all; lengths may be as large as numbers are.
pub(crate) fn ceil_div(length: i64, piece: usize) -> i64 {
    length / piece as i64 + i64::from(length % piece as i64 != 0)
}

/// The product of some extents of a nest, if it is known.
pub(crate) fn size(nest: &Nest, dims: &[usize]) -> Option<i64> {
    Poly::product(dims.iter().filter_map(|d| nest.extents.get(*d))).known()
}

/// Loops from one on that reduce, or that do not.
pub(crate) fn dims(nest: &Nest, from: usize, reduction: bool) -> Vec<usize> {
    (from..nest.extents.len()).filter(|d| nest.reduction[*d] == reduction).collect()
}

/// The greatest power of two that is not above.
pub(crate) fn power_below(n: i64) -> i64 {
    let n = n.max(1) as u64;
    (if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 }) as i64
}

/// Whether partial results of all that a nest reduces combine.
pub fn combine(k: &Kernel, nest: &Nest) -> bool {
    nest.stages.iter().filter_map(|s| k.stages.get(*s)).all(Stage::combines)
}

/// Static shared memory of so many elements, aligned to 16 bytes.
pub(crate) fn shared(c: Code, element: Type, count: i64) -> Result<Value> {
    let text = format!("memref<{count}x{element}, 3>");
    let ty = Type::parse(c.ctx(), &text).ok_or_else(|| format!("'{text}' is no type"))?;
    let attrs = [
        ("operandSegmentSizes", Attr::i32s(c.ctx(), &[0, 0])),
        ("alignment", Attr::i64(c.ctx(), 16)),
    ];
    c.op("memref.alloca", &[], ty, &attrs)
}
