//! Cost model of GPU kernels that graph-level passes may create, in estimated clocks.

/// Most rows (M) of a skinny GEMM.
pub const SKINNY_ROWS: i64 = 32;
/// Least K of a skinny GEMM: the K slice of a warp.
pub const SKINNY_K: i64 = 32;
/// Fewest rows of a skinny GEMM's matrix: M of mma.sync.
pub const SKINNY_MATRIX_ROWS: i64 = 16;
/// Elements of the matrix in the 16 bytes that a thread loads: of 8 and of 4 bits.
pub const SKINNY_VECTORS: [i64; 2] = [16, 32];
/// Extent assumed for dynamic dimensions of GEMMs.
pub const PRODUCT_EXTENT: i64 = 2048;

/// The problem size of a batched GEMM.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// Number of matrices.
    pub batch: i64,
    /// Rows of the left operand (M).
    pub rows: i64,
    /// Columns of the right operand (N).
    pub columns: i64,
    /// The reduction dimension (K).
    pub k: i64,
}

/// The prologue that computes a GEMM's left operand.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Clocks per element on one SM; 0 if the operand is in memory already.
    pub clocks: f64,
    /// Rows of 128 bytes in memory per row of its tile.
    pub slices: usize,
}

impl Default for Left {
    fn default() -> Left {
        Left { clocks: 0.0, slices: 1 }
    }
}

/// Cost models of GPU kernels, in estimated clocks.
pub trait Costs {
    /// SMs of the largest GPU of the architecture.
    fn processors(&self) -> i64;
    /// K per pipeline stage of a tensor-core GEMM with 16-bit elements.
    fn block_k(&self) -> i64;
    /// A tensor-core GEMM in CTA tiles.
    fn tiled_gemm(&self, g: Gemm, left: Left) -> f64;
    /// The same without split-K within a cluster.
    fn unsplit_gemm(&self, g: Gemm) -> f64;
    /// A skinny GEMM; `None` for more than [`SKINNY_ROWS`] rows.
    fn skinny_gemm(&self, g: Gemm) -> Option<f64>;
    /// Clocks per element on one SM of a prologue of `ops` ops, of which `heavy` are exponentials
    /// and the like.
    fn prologue(&self, ops: usize, heavy: usize) -> f64;
}
