//! The cost model that chooses the CTA tile: it estimates the time of the busiest SM.
use crate::{
    analysis::{Nest, Poly},
    strategies::gpu::{
        common::{assumed, ceil_div as up},
        wgmma_gemm::{DEPTH, Params, SHARED, TensorCoreProduct, bytes, fits_registers, split_k},
    },
    target::costs::Left,
};

/// SMs of an H100 or H200 SXM; a launch queries the device for its own number.
pub const PROCESSORS: usize = 132;
/// The CTA tiles of the cost model.
pub const TILES: &[TileConfig] = &[
    (128, 256, 4, 1),
    (256, 128, 4, 1),
    (128, 192, 4, 1),
    (128, 128, 6, 1),
    (128, 64, 8, 1),
    (256, 64, 4, 1),
    (64, 128, 8, 1),
    (64, 128, 4, 2),
    (64, 64, 12, 1),
    (64, 64, 5, 2),
];
/// Rows, columns, stages, CTAs per SM.
pub type TileConfig = (usize, usize, usize, usize);
/// Multiply-adds of 16-bit elements per SM and clock, sustained over a large K. An f32 (tf32) K
/// step has half the K and takes as long, one of 8-bit elements twice.
const RATE: f64 = 1800.0;
/// L2 bytes per SM and clock: when all SMs load, and at most.
const BANDWIDTH: [f64; 2] = [62.0, 80.0];
/// Bytes of shared memory per SM and clock.
const SHARED_BANDWIDTH: f64 = 128.0;
/// Clocks from a TMA load to the next load into the same stage: a K step takes at least this
/// divided by the stages.
const LATENCY: f64 = 1850.0;
/// Clocks of the shortest K step.
const STEP: f64 = 190.0;
/// Clocks of an im2col TMA load per pixel of 64 channels.
const PIXEL: f64 = 4.7;
/// HBM bytes per SM and clock when all SMs load.
const MEMORY: f64 = 14.0;
/// Clocks to fill the pipeline, once per launch.
const START: f64 = 2500.0;
/// Fraction of the tiles' epilogues that CTAs sharing an SM cannot overlap with each other's
/// products.
const SEEN: f64 = 0.75;
/// Clocks of a tile without tensor-core work, independent of its size.
const WAIT: f64 = 600.0;
/// Sums of a K step that are promoted per clock.
const ADDED: f64 = 64.0;
/// Elements per clock of a tile's epilogue.
const FINISHED: f64 = 30.0;

/// Clusters guaranteed to be co-resident. A cluster cannot span a GPC (up to 18 SMs), and the
/// number of usable SMs per GPC differs from card to card. Of 32 clusters of 4, and of 16 of 8,
/// some had to wait.
fn clusters(parts: usize) -> usize {
    match parts {
        1 | 2 => PROCESSORS / parts,
        4 => 28,
        _ => 13,
    }
}

/// The cost model's tiles with each split-K factor; a split tile has one CTA per SM.
pub(super) fn shared() -> impl Iterator<Item = (&'static TileConfig, usize)> {
    let several = |tile: &'static TileConfig| {
        split_k::FACTORS.iter().filter(|parts| **parts > 1).map(move |parts| (tile, *parts))
    };
    TILES
        .iter()
        .flat_map(several)
        .filter(|((m, n, _, resident), parts)| *resident == 1 && split_k::can_split(*m, *n, *parts))
}

/// Chooses the parameters of a product; returns them with the estimated clocks.
pub fn choose(nest: &Nest, p: &TensorCoreProduct) -> (Params, f64) {
    let size = |dims: &[usize]| {
        Poly::product(dims.iter().map(|d| &nest.extents[*d]))
            .known()
            .unwrap_or(assumed::PRODUCT)
            .max(1)
    };
    let batch = if p.roles.batch.is_empty() { 1 } else { size(&p.roles.batch) };
    let sizes = [batch, size(&p.roles.rows), size(&p.roles.columns), p.steps(nest)];
    let left = p
        .prologue
        .as_ref()
        .map_or(Left::default(), |prologue| Left { clocks: prologue.clocks(), slices: p.slices() });
    // A cluster launch needs the grid before the call, so K is split for static sizes only.
    let most = if split_k::is_static(nest) { usize::MAX } else { 1 };
    let how = ProductTraits {
        rights: p.rights.len(),
        left,
        max_split: most,
        pixels: [p.window.is_some(), p.depth.is_some()],
        promoted: p.is_promoted(),
    };
    let (time, (m, n, stages, resident), parts) = fastest(sizes, how);
    let resident = if parts > 1 { 0 } else { resident };
    let params = Params {
        block_k: p.k_per_stage(),
        block_m: m,
        block_n: n,
        ctas_per_sm: resident,
        split_k: parts,
        stages,
    };
    (params, time)
}

/// The tile with as many stages as fit shared memory, if its accumulators and computed left
/// fragments, or sums that are promoted, fit registers.
fn fitting(how: ProductTraits, (m, n, stages, resident): TileConfig) -> Option<TileConfig> {
    let ProductTraits { left, promoted, .. } = how;
    if left.clocks == 0.0 {
        let fits = !promoted || fits_registers(m, n, resident, true);
        return fits.then_some((m, n, stages, resident));
    }
    let ring = |stages: &usize| resident * bytes(left.slices * m, n, *stages, (m / 64).min(2));
    let most = (2..=stages).rev().find(|stages| ring(stages) <= SHARED);
    most.filter(|_| fits_registers(m, n, resident, false)).map(|stages| (m, n, stages, resident))
}

/// Properties of a product besides its sizes.
#[derive(Clone, Copy)]
struct ProductTraits {
    /// The number of right operands.
    rights: usize,
    left: Left,
    /// The greatest split-K factor.
    max_split: usize,
    /// Which operands are loaded in im2col mode.
    pixels: [bool; 2],
    /// Whether sums of K steps are promoted.
    promoted: bool,
}

impl ProductTraits {
    /// Of a product of elements in memory.
    const PLAIN: ProductTraits = ProductTraits {
        rights: 1,
        left: Left { clocks: 0.0, slices: 1 },
        max_split: 1,
        pixels: [false; 2],
        promoted: false,
    };
}

/// The fastest choice: estimated clocks, tile, split-K factor.
fn fastest(
    [batch, rows, columns, steps]: [i64; 4],
    how: ProductTraits,
) -> (f64, TileConfig, usize) {
    let ProductTraits { rights, left, max_split: most, .. } = how;
    // The right operands divide a tile's columns.
    let sizes = [batch, rows, columns * rights as i64, steps];
    let tiles = TILES
        .iter()
        .filter(|(_, n, ..)| n % (DEPTH * rights) == 0)
        .filter_map(|tile| fitting(how, *tile));
    let most = if left.clocks > 0.0 { 1 } else { most };
    let shared = tiles.flat_map(|tile| split_k::FACTORS.iter().map(move |parts| (tile, *parts)));
    let shared = shared.filter(|((m, n, _, resident), parts)| {
        *parts <= most && split_k::is_profitable([*m, *n], *resident, steps, *parts)
    });
    let all = shared.map(|(tile, parts)| (time_of(tile, parts, sizes, how), tile, parts));
    let (time, tile, parts) =
        all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::MAX, TILES[0], 1));
    let bytes = 2 * batch * (left.slices as i64 * sizes[1] + sizes[2]) * steps * DEPTH as i64;
    (START + time.max(bytes as f64 / PROCESSORS as f64 / MEMORY), tile, parts)
}

/// Estimated clocks of a product. `sizes`: batch, rows, columns, K steps.
pub fn time(sizes: [i64; 4], left: Left) -> f64 {
    fastest(sizes, ProductTraits { left, max_split: usize::MAX, ..ProductTraits::PLAIN }).0
}

/// The same without split-K.
pub fn time_alone(sizes: [i64; 4]) -> f64 {
    fastest(sizes, ProductTraits::PLAIN).0
}

/// Estimated clocks of the busiest SM, from its first wgmma on. `sizes`: batch, rows, columns, K
/// steps.
fn time_of(
    (m, n, stages, resident): TileConfig,
    parts: usize,
    [batch, rows, columns, steps]: [i64; 4],
    how: ProductTraits,
) -> f64 {
    let left = how.left;
    let tiles = batch.saturating_mul(up(rows, m)).saturating_mul(up(columns, n));
    let (each, elements) = (up(tiles, clusters(parts)) as f64, (m * n) as f64);
    let multiply = elements * DEPTH as f64 / RATE;
    let busy = (tiles.saturating_mul(parts as i64) as f64 / PROCESSORS as f64).clamp(0.01, 1.0);
    let row = 2 * DEPTH;
    let loaded = (m * left.slices + n) * row;
    let load = loaded as f64 / (BANDWIDTH[0] / busy).min(BANDWIDTH[1]);
    let pixels = match how.pixels {
        [true, _] => m as f64 * PIXEL,
        [_, true] => n as f64 * PIXEL,
        _ => 0.0,
    };
    // TMA writes both operands; for each 64 rows a wgmma reads those rows and all columns.
    let shared = (loaded + m / 64 * (64 + n) * row) as f64 / SHARED_BANDWIDTH;
    let wait = LATENCY / (stages as f64 * (resident as f64).min(each));
    // The threads that run the prologue are those that wait for wgmma, so the two add up.
    let sum = up(steps, parts) as f64
        * (multiply + (m * DEPTH) as f64 * left.clocks)
            .max(load)
            .max(shared)
            .max(pixels)
            .max(wait)
            .max(STEP);
    // A single warpgroup adds the sums of a step while nothing multiplies.
    let adds = if how.promoted && m == 64 { elements / ADDED } else { 0.0 };
    let sum = sum + up(steps, parts) as f64 * adds;
    let finish = WAIT + elements / FINISHED + split_k::exchange(m, n, parts);
    // With several CTAs per SM, one multiplies while another runs its epilogue.
    let seen = if resident > 1 { (SEEN * each).ceil() } else { each };
    each * sum + seen * finish
}
