//! Products and convolutions of bf16 or f16 by the instructions of a warp, which every chip from
//! sm_80 on has.
pub(crate) mod emit;
pub(crate) mod im2col;

use crate::{
    analysis::{Kernel, Nest, Plan, Poly},
    gpu::gpu_schedule::{USUAL, up},
    strategies::{
        cpu::choose::Schedule,
        gpu::{
            choose::make,
            wgmma_gemm::{self, Product, ROW, tiles::PROCESSORS},
        },
    },
    target::launch::WARP,
};
use kiln_dialects::value::DType;

/// Depth of a step: a row of a tile is 128 bytes.
pub const DEPTH: usize = wgmma_gemm::DEPTH;
/// Warps of a block.
const WARPS: usize = 8;
/// Threads of a block.
pub const THREADS: usize = WARPS * WARP;
/// Bytes of shared memory that a block may ask for on the chip that has least, an sm_86 or sm_89.
pub(crate) const SHARED: usize = 99 << 10;
/// Products and sums of 16-bit elements that a multiprocessor of an A100 does in a clock at most.
const RATE: f64 = 1024.0;
/// Bytes that the second-level cache gives a multiprocessor in a clock when all ask.
const BANDWIDTH: f64 = 40.0;
/// Bytes that a multiprocessor reads from its shared memory, or writes there, in a clock.
const THROUGH: f64 = 128.0;
/// Clocks of a tile in which nothing is multiplied, whatever its size.
const WAIT: f64 = 1500.0;
/// Elements of a tile that its epilogue finishes in a clock.
const FINISHED: f64 = 30.0;
/// Rows, columns and stages of a tile, the largest one first.
const TILES: &[(usize, usize, usize)] = &[(128, 128, 3), (128, 64, 4), (64, 128, 4), (64, 64, 4)];

/// The product that a kernel is, if all of its operands' rows can be copied 16 bytes at a time; of
/// a convolution as for the copy engine.
pub fn product(k: &Kernel, plan: &Plan) -> Option<Product> {
    wgmma_gemm::product(k, plan)
        .filter(|p| p.rights.len() == 1 && p.element != DType::F32 && p.raw != DType::F32)
}

/// Bytes of shared memory that a launch asks for.
pub fn shared(s: &Schedule) -> usize {
    1024 + s.get("stages") * (s.get("m") + s.get("n")) * ROW
}

/// Warps down and across a tile: those parts of it for which a warp reads least from shared memory.
pub fn warps(m: usize, n: usize) -> (usize, usize) {
    if m > n { (WARPS / 2, 2) } else { (2, WARPS / 2) }
}

/// Threads of a block, if the schedule is one that can be computed.
pub fn threads(s: &Schedule) -> Result<usize, String> {
    let (m, n, stages) = (s.get("m"), s.get("n"), s.get("stages"));
    let sizes = [64, 128].contains(&m)
        && [64, 128].contains(&n)
        && (2..=8).contains(&stages)
        && shared(s) <= SHARED;
    let text = "m and n of 64 or 128, 2 to 8 stages in 99 KiB are possible";
    if sizes {
        Ok(THREADS)
    } else {
        Err(format!("has a schedule of m = {m}, n = {n}, stages = {stages}; {text}"))
    }
}

/// The schedule: the tile with which the multiprocessor that has most of them is thought to be done
/// first.
pub fn choose(nest: &Nest, p: &Product) -> Schedule {
    let size = |dims: &[usize]| {
        Poly::product(dims.iter().map(|d| &nest.extents[*d])).known().unwrap_or(USUAL).max(1)
    };
    let sizes = [size(&p.roles.batch), size(&p.roles.rows), size(&p.roles.columns), p.steps(nest)];
    let (_, (m, n, stages)) = fastest(sizes, p.prologue.as_ref().map_or(0.0, |left| left.clocks()));
    make("mma", &[("m", m as i64), ("n", n as i64), ("stages", stages as i64)])
}

/// Clocks that a product of these sizes is thought to take: batch, rows, columns, steps of the sum.
/// `left`: clocks in which a multiprocessor's threads compute one element of its left operand.
pub fn time(sizes: [i64; 4], left: f64) -> f64 {
    fastest(sizes, left).0
}

fn fastest([batch, rows, columns, steps]: [i64; 4], left: f64) -> (f64, (usize, usize, usize)) {
    let time = |(m, n, _): &(usize, usize, usize)| {
        let tiles = up(rows, *m).saturating_mul(up(columns, *n));
        let tiles = batch.saturating_mul(tiles);
        let (multiply, load) = ((m * n * DEPTH) as f64 / RATE, ((m + n) * ROW) as f64 / BANDWIDTH);
        // Of shared memory a warp reads its rows and its columns, and all that is read has been
        // written.
        let (down, over) = warps(*m, *n);
        let through = (WARPS * (m / down + n / over) * ROW + (m + n) * ROW) as f64 / THROUGH;
        // What warps that are side by side have of the left operand, each of them computes.
        let computed = (over * m * DEPTH) as f64 * left;
        let each = steps as f64 * (multiply + computed).max(load).max(through)
            + WAIT
            + (m * n) as f64 / FINISHED;
        up(tiles, PROCESSORS) as f64 * each
    };
    let best = TILES.iter().map(|tile| (time(tile), *tile)).min_by(|a, b| a.0.total_cmp(&b.0));
    best.unwrap_or((f64::MAX, TILES[0]))
}
