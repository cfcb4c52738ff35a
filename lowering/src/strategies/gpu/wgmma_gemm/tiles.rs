//! Which tile a product takes: a model of the time that the busiest multiprocessor needs.
use crate::{
    analysis::{Nest, Poly},
    strategies::gpu::{
        common::{assumed, ceil_div as up},
        wgmma_gemm::{DEPTH, Params, Product, SHARED, bytes, computes, split_k},
    },
    target::costs::Left,
};

/// Multiprocessors of an H100 or H200 with SXM; a launch asks the card for its own number.
pub const PROCESSORS: usize = 132;
/// The tiles that the model chooses among.
pub const TILES: &[Tile] = &[
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
/// Rows, columns, stages, and how many blocks share a multiprocessor.
pub type Tile = (usize, usize, usize, usize);
/// Products and sums of 16-bit elements that a multiprocessor does in a clock, at the rate that a
/// long sum reaches; of f32 a step is half as deep, and as long.
const RATE: f64 = 1800.0;
/// Bytes that the second-level cache gives a multiprocessor in a clock when all ask, and at most.
const BANDWIDTH: [f64; 2] = [62.0, 80.0];
/// Clocks from the start of a copy to the start of the one that takes its place: a step takes one
/// of so many slots' share of it at least.
const LATENCY: f64 = 1850.0;
/// Clocks of the shortest step.
const STEP: f64 = 190.0;
/// Clocks in which the copy engine brings a pixel's 64 channels under a place of a window.
const PIXEL: f64 = 4.7;
/// Bytes that memory gives a multiprocessor's ring in a clock when all ask.
const MEMORY: f64 = 14.0;
/// Clocks until the first slots are full, once for a launch.
const START: f64 = 2500.0;
/// Which part of all tiles' ends blocks that share a multiprocessor cannot hide behind each other's
/// products.
const SEEN: f64 = 0.75;
/// Clocks of a tile in which nothing is multiplied, whatever its size.
const WAIT: f64 = 600.0;
/// Elements of a tile that its epilogue finishes in a clock.
const FINISHED: f64 = 30.0;

/// The parameters of a product, and the clocks that it is thought to take.
pub fn choose(nest: &Nest, p: &Product) -> (Params, f64) {
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
        .map_or(Left::default(), |prologue| Left { clocks: prologue.clocks(), slabs: p.slabs() });
    // How many blocks there are has to be known before the call.
    let most = if split_k::known(nest) { usize::MAX } else { 1 };
    let how = How { rights: p.rights.len(), left, most, pixels: p.window.is_some() };
    let (time, (m, n, stages, resident), parts) = fastest(sizes, how);
    let resident = if parts > 1 { 0 } else { resident };
    let params = Params {
        block_k: p.depth(),
        block_m: m,
        block_n: n,
        ctas_per_sm: resident,
        split_k: parts,
        stages,
    };
    (params, time)
}

/// A tile whose accumulators and computed left operand fit registers, with as many stages as fit
/// shared memory.
fn fitting(left: Left, (m, n, stages, resident): Tile) -> Option<Tile> {
    if left.clocks == 0.0 {
        return Some((m, n, stages, resident));
    }
    let ring = |stages: &usize| resident * bytes(left.slabs * m, n, *stages, (m / 64).min(2));
    let most = (2..=stages).rev().find(|stages| ring(stages) <= SHARED);
    most.filter(|_| computes(m, n, resident)).map(|stages| (m, n, stages, resident))
}

/// What there is to a product beside its sizes.
#[derive(Clone, Copy)]
struct How {
    /// Right operands.
    rights: usize,
    left: Left,
    /// How many blocks may share a tile.
    most: usize,
    /// Whether the left operand's rows are pixels under a window.
    pixels: bool,
}

/// The clocks, the tile, and how many blocks share one.
fn fastest([batch, rows, columns, steps]: [i64; 4], how: How) -> (f64, Tile, usize) {
    let How { rights, left, most, .. } = how;
    // A tile has as many columns of each right operand.
    let sizes = [batch, rows, columns * rights as i64, steps];
    let tiles = TILES
        .iter()
        .filter(|(_, n, ..)| n % (DEPTH * rights) == 0)
        .filter_map(|tile| fitting(left, *tile));
    let most = if left.clocks > 0.0 { 1 } else { most };
    let shared = tiles.flat_map(|tile| split_k::PARTS.iter().map(move |parts| (tile, *parts)));
    let shared = shared.filter(|((m, n, _, resident), parts)| {
        *parts <= most && split_k::worth([*m, *n], *resident, steps, *parts)
    });
    let all = shared.map(|(tile, parts)| (time_of(tile, parts, sizes, how), tile, parts));
    let (time, tile, parts) =
        all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::MAX, TILES[0], 1));
    let bytes = 2 * batch * (left.slabs as i64 * sizes[1] + sizes[2]) * steps * DEPTH as i64;
    (START + time.max(bytes as f64 / PROCESSORS as f64 / MEMORY), tile, parts)
}

/// Clocks that a product of these sizes is thought to take: batch, rows, columns, steps of the sum.
pub fn time(sizes: [i64; 4], left: Left) -> f64 {
    fastest(sizes, How { rights: 1, left, most: usize::MAX, pixels: false }).0
}

/// The same where each block has a tile to itself.
pub fn time_alone(sizes: [i64; 4]) -> f64 {
    fastest(sizes, How { rights: 1, left: Left::default(), most: 1, pixels: false }).0
}

/// Clocks of the multiprocessor that has most tiles, from the first products on. `sizes`: batch,
/// rows, columns, steps of the sum.
fn time_of(
    (m, n, stages, resident): Tile,
    parts: usize,
    [batch, rows, columns, steps]: [i64; 4],
    how: How,
) -> f64 {
    let left = how.left;
    let tiles = batch.saturating_mul(up(rows, m)).saturating_mul(up(columns, n));
    let (each, elements) = (up(tiles, split_k::clusters(parts)) as f64, (m * n) as f64);
    let multiply = elements * DEPTH as f64 / RATE;
    let busy = (tiles.saturating_mul(parts as i64) as f64 / PROCESSORS as f64).clamp(0.01, 1.0);
    let load = ((m * left.slabs + n) * 2 * DEPTH) as f64 / (BANDWIDTH[0] / busy).min(BANDWIDTH[1]);
    let pixels = if how.pixels { m as f64 * PIXEL } else { 0.0 };
    let wait = LATENCY / (stages as f64 * (resident as f64).min(each));
    // The threads that compute the left operand are those that wait for products.
    let sum = up(steps, parts) as f64
        * (multiply + (m * DEPTH) as f64 * left.clocks).max(load).max(pixels).max(wait).max(STEP);
    let finish = WAIT + elements / FINISHED + split_k::exchange(m, n, parts);
    // Of blocks that share a multiprocessor, one multiplies while the other stores.
    let seen = if resident > 1 { (SEEN * each).ceil() } else { each };
    each * sum + seen * finish
}
