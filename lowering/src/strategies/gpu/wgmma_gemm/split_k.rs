//! Split-K GEMM within a cluster: each CTA sums a part of K, receives the other CTAs' accumulators
//! of some rows and runs the epilogue on these. Pays where a product has few tiles and a large K,
//! which would leave most SMs idle.
use crate::{
    analysis::{Nest, Poly},
    strategies::gpu::wgmma_gemm::{Params, ROW, TensorCoreProduct},
};
use kiln_dialects::Result;

/// Split-K factors (CTAs of a cluster); not every GPU supports clusters of more than 8.
pub const FACTORS: &[usize] = &[1, 2, 4, 8];
/// Rows of a warp's tile: the fewest that a CTA can own.
pub const ROWS: usize = 16;
/// Bytes of the mbarrier at which accumulators arrive.
pub const BARRIER: usize = 8;
/// Most rows and most columns of a split tile, with one 64-row block per warpgroup: beyond that, a
/// thread's registers cannot hold both its own and the received accumulators.
const MAX_TILE: usize = 128;
/// Bytes per clock that an SM receives over distributed shared memory when all SMs do.
const DSMEM_BYTES_PER_CLOCK: f64 = 17.0;
/// Clocks of the cluster barriers, and of the longer launch of a cluster.
const CLUSTER_BARRIER_CLOCKS: f64 = 2500.0;

/// Estimated clocks to reduce the accumulators of a tile across a cluster.
pub fn exchange(m: usize, n: usize, parts: usize) -> f64 {
    if parts == 1 {
        0.0
    } else {
        CLUSTER_BARRIER_CLOCKS + (4 * m * n * (parts - 1) / parts) as f64 / DSMEM_BYTES_PER_CLOCK
    }
}

/// Whether `parts` CTAs can split the K of an `m` × `n` tile.
pub(super) fn can_split(m: usize, n: usize, parts: usize) -> bool {
    FACTORS.contains(&parts) && m.max(n) <= MAX_TILE && parts <= m / ROWS
}

/// Whether the cost model considers a split-K factor for an `m` × `n` tile, given CTAs per SM and K
/// steps.
pub fn is_profitable([m, n]: [usize; 2], resident: usize, steps: i64, parts: usize) -> bool {
    parts == 1 || (can_split(m, n, parts) && resident == 1 && steps >= 2 * parts as i64)
}

/// Checks the tile of a split-K schedule.
///
/// # Errors
/// The factor, the tile or the pipeline does not allow splitting K.
pub fn check_tile(s: &Params) -> Result<()> {
    let (m, n, parts) = (s.block_m, s.block_n, s.split_k);
    if parts == 1 {
        return Ok(());
    }
    // A CTA's own and received accumulators reuse the pipeline's shared memory.
    let room = 8 * m * n <= s.stages * (m + n) * ROW;
    if !can_split(m, n, parts) || !room || s.ctas_per_sm != 0 {
        let text = "CTAs of a cluster share tiles of at most 128 rows, 16 for each CTA, and 128 \
                    columns, whose accumulators fit half of the pipeline, with ctas_per_sm = 0";
        return Err(format!(
            "has split_k = {parts}, block_m = {m}, block_n = {n}, ctas_per_sm = {}; {text}",
            s.ctas_per_sm
        )
        .into());
    }
    Ok(())
}

/// Checks split-K for a product.
///
/// # Errors
/// The sizes are not static, so that the grid cannot be computed before the call, there are fewer K
/// steps than CTAs, or the product has a prologue.
pub fn fits(s: &Params, nest: &Nest, p: &TensorCoreProduct) -> Result<()> {
    let parts = s.split_k;
    if parts == 1 {
        return Ok(());
    }
    if !is_static(nest) || p.prologue.is_some() || p.steps(nest) < parts as i64 {
        return Err(format!(
            "has split_k = {parts}, which needs static sizes, {parts} steps of K, and operands in memory"
        ).into());
    }
    Ok(())
}

/// Whether all extents are static and none is 0.
pub fn is_static(nest: &Nest) -> bool {
    Poly::product(nest.extents.iter()).known().is_some_and(|n| n > 0)
}
