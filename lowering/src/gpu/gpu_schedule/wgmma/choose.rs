//! Which tile a product takes: a model of the time that the busiest multiprocessor needs.
use super::{DEPTH, Product, SHARED, bytes, computes};
use crate::{
    gpu::gpu_schedule::{USUAL, choose::make, up},
    host::schedule::Schedule,
    kernel::{Nest, Poly},
};

/// Multiprocessors of an H100 or H200 with SXM; a launch asks the card for its own number.
pub const PROCESSORS: usize = 132;
/// Rows, columns, stages, and how many blocks share a multiprocessor.
pub const TILES: &[Tile] = &[
    (128, 256, 4, 1),
    (256, 128, 4, 1),
    (128, 192, 4, 1),
    (128, 128, 6, 1),
    (128, 64, 8, 1),
    (64, 128, 8, 1),
    (64, 128, 4, 2),
    (64, 64, 5, 2),
];
type Tile = (usize, usize, usize, usize);
/// Products and sums of 16-bit elements that a multiprocessor does in a clock, at the rate that a long sum reaches; of f32 a step is half as deep, and as long.
const RATE: f64 = 1800.0;
/// Bytes that the second-level cache gives a multiprocessor in a clock when all ask.
const BANDWIDTH: f64 = 54.0;
/// Bytes that memory gives a multiprocessor's ring in a clock when all ask.
const MEMORY: f64 = 10.0;
/// Clocks of a tile in which nothing is multiplied, whatever its size.
const WAIT: f64 = 600.0;
/// Elements of a tile that its epilogue finishes in a clock.
const FINISHED: f64 = 30.0;

/// The schedule of a product, and the clocks that it is thought to take.
pub fn choose(nest: &Nest, p: &Product) -> (Schedule, f64) {
    let size = |dims: &[usize]| Poly::product(dims.iter().map(|d| &nest.extents[*d])).known().unwrap_or(USUAL).max(1);
    let batch = if p.roles.batch.is_empty() { 1 } else { size(&p.roles.batch) };
    let sizes = [batch, size(&p.roles.rows), size(&p.roles.columns), p.steps(nest)];
    let left = p.prologue.as_ref().map_or(Left::default(), |prologue| Left { clocks: prologue.clocks(), slabs: p.slabs() });
    let (time, (m, n, stages, resident)) = fastest(sizes, p.rights.len(), left);
    let parameters = [("k", p.depth()), ("m", m), ("n", n), ("resident", resident), ("stages", stages)];
    (make("wgmma", &parameters.map(|(name, n)| (name, n as i64))), time)
}

/// How a product comes by its left operand.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Clocks in which a multiprocessor's threads compute one element of it, 0 if it is in memory as it is.
    pub clocks: f64,
    /// How many rows of 128 bytes are one of its tile.
    pub slabs: usize,
}

impl Default for Left {
    fn default() -> Left {
        Left { clocks: 0.0, slabs: 1 }
    }
}

impl Left {
    /// A tile whose sums and left operands fit registers, with as many stages as fit shared memory.
    fn tile(self, (m, n, stages, resident): Tile) -> Option<Tile> {
        let plain = self.clocks == 0.0;
        let most = (2..=stages).rev().find(|stages| resident * bytes(self.slabs * m, n, *stages, (m / 64).min(2)) <= SHARED);
        if plain {
            Some((m, n, stages, resident))
        } else {
            most.filter(|_| computes(m, n, resident)).map(|stages| (m, n, stages, resident))
        }
    }
}

fn fastest([batch, rows, columns, steps]: [i64; 4], rights: usize, left: Left) -> (f64, Tile) {
    // A tile has as many columns of each right operand.
    let sizes = [batch, rows, columns * rights as i64, steps];
    let tiles = TILES.iter().filter(|(_, n, ..)| n % (DEPTH * rights) == 0).filter_map(|tile| left.tile(*tile));
    let all = tiles.map(|tile| (time_of(tile, sizes, left), tile));
    let (time, tile) = all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::MAX, TILES[0]));
    let bytes = 2 * batch * (left.slabs as i64 * sizes[1] + sizes[2]) * steps * DEPTH as i64;
    (time.max(bytes as f64 / PROCESSORS as f64 / MEMORY), tile)
}

/// Clocks that a product of these sizes is thought to take: batch, rows, columns, steps of the sum.
pub fn time(sizes: [i64; 4], left: Left) -> f64 {
    fastest(sizes, 1, left).0
}

/// Clocks of the multiprocessor that has most tiles. `sizes`: batch, rows, columns, steps of the sum.
fn time_of((m, n, _, resident): Tile, [batch, rows, columns, steps]: [i64; 4], left: Left) -> f64 {
    let tiles = batch.saturating_mul(up(rows, m)).saturating_mul(up(columns, n));
    let (each, elements) = (up(tiles, PROCESSORS) as f64, (m * n) as f64);
    let multiply = elements * DEPTH as f64 / RATE;
    let load = ((m * left.slabs + n) * 2 * DEPTH) as f64 / BANDWIDTH;
    // The threads that compute the left operand are those that wait for products.
    let sum = steps as f64 * (multiply + (m * DEPTH) as f64 * left.clocks).max(load);
    let finish = WAIT + elements / FINISHED;
    // Of blocks that share a multiprocessor, one multiplies while the other stores.
    each * sum + (each / resident as f64).ceil() * finish
}
