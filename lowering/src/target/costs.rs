//! What graph-level passes ask a GPU about kernels that they may create: estimated clocks.

/// Most rows of a product that a skinny GEMM takes.
pub const SKINNY_ROWS: i64 = 32;
/// Least K of such a product: a warp takes so much at once.
pub const SKINNY_K: i64 = 32;
/// An extent that is assumed for dynamic dimensions of products.
pub const PRODUCT_EXTENT: i64 = 2048;

/// A matrix product.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// Matrices.
    pub batch: i64,
    /// Rows of the left operand.
    pub rows: i64,
    /// Columns of the right operand.
    pub columns: i64,
    /// The reduction dimension.
    pub k: i64,
}

/// How a product comes by its left operand.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Clocks in which an SM's threads compute one element of it; 0 if it is in memory as it is.
    pub clocks: f64,
    /// Rows of 128 bytes in memory that are one of its tile.
    pub slabs: usize,
}

impl Default for Left {
    fn default() -> Left {
        Left { clocks: 0.0, slabs: 1 }
    }
}

/// Cost models of a GPU's kernels. Costs are estimated clocks.
pub trait Costs {
    /// SMs of the largest GPU of the architecture.
    fn processors(&self) -> i64;
    /// K of a pipeline stage of a tensor-core product of 16-bit elements.
    fn block_k(&self) -> i64;
    /// A tensor-core product in CTA tiles.
    fn tiled_gemm(&self, g: Gemm, left: Left) -> f64;
    /// The same without splitting K within a cluster.
    fn unsplit_gemm(&self, g: Gemm) -> f64;
    /// A product of few rows; `None` where there are more than [`SKINNY_ROWS`].
    fn skinny_gemm(&self, g: Gemm) -> Option<f64>;
    /// Clocks in which an SM computes one element of a prologue of some ops, of which `heavy` are
    /// exponentials and the like.
    fn prologue(&self, ops: usize, heavy: usize) -> f64;
}
