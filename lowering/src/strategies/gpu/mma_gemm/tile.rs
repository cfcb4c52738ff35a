//! What all parts of a product by mma.sync share: a CTA's tile, and an operand's part of it.
use crate::strategies::gpu::{
    common::fragments::ProductResults, mma_gemm::THREADS, wgmma_gemm::MatrixOperand,
};
use kiln_dialects::ir::*;

/// Rows of a shared-memory tile that one cp.async of all threads fills: eight threads copy a row of
/// 128 bytes.
pub(super) const ROWS_PER_COPY: usize = THREADS / 8;

/// What all parts of the emission share.
pub(super) struct MmaTile<'a> {
    pub(super) results: ProductResults<'a>,
    pub(super) m: usize,
    pub(super) n: usize,
    /// Warps along M and along N of the tile.
    pub(super) warps: (usize, usize),
    pub(super) stages: usize,
    /// The K steps, at least one.
    pub(super) steps: Value,
    /// The base of the pipeline's stages in shared memory.
    pub(super) pipeline: Value,
    pub(super) thread: Value,
    /// The thread's lane.
    pub(super) lane: Value,
    /// The warp's row and column among the CTA's warps.
    pub(super) warp: [Value; 2],
}

/// An operand's part of a tile.
pub(super) struct OperandTile<'a> {
    pub(super) operand: &'a MatrixOperand,
    /// Whether it is the left operand.
    pub(super) left: bool,
    /// The tile's size along M (left) or N (right).
    pub(super) across: usize,
    /// The address of the matrix in global memory.
    pub(super) base: Value,
    /// The tile's first row (left) or first column (right).
    pub(super) first: Value,
    /// The pixels that this thread copies, for a convolution's left operand.
    pub(super) pixels: Vec<Pixel>,
}

/// Where the window of an output pixel begins: height and width in the image, and the address.
pub(super) struct Pixel {
    pub(super) at: [Value; 2],
    pub(super) begin: Value,
}
