//! Products and convolutions of bf16 or f16 by the instructions of a warp, which every chip from sm_80 on has.
use super::{
    choose::make,
    wgmma::{self, PROCESSORS, Product, ROW},
};
use crate::{
    gpu::WARP,
    host::schedule::Schedule,
    kernel::{Kernel, Nest, Plan, Poly},
};
use kiln_dialects::value::DType;

/// Depth of a step: a row of a tile is 128 bytes.
pub const DEPTH: usize = wgmma::DEPTH;
/// Warps of a block, down and across its tile.
pub const WARPS: (usize, usize) = (2, 4);
/// Threads of a block.
pub const THREADS: usize = WARPS.0 * WARPS.1 * WARP;
/// Bytes of shared memory that a block may ask for on the chip that has least, an sm_86 or sm_89.
const SHARED: usize = 99 << 10;
/// What a size is taken for if it depends on the call.
const USUAL: i64 = 2048;
/// Rows, columns and stages of a tile, the largest one first.
const TILES: &[(usize, usize, usize)] = &[(128, 128, 3), (128, 64, 4), (64, 128, 4), (64, 64, 4)];

/// The product that a kernel is, if all of its operands' rows can be copied 16 bytes at a time; of a convolution as for the copy engine.
pub fn product(k: &Kernel, plan: &Plan) -> Option<Product> {
    wgmma::product(k, plan).filter(|p| p.rights.len() == 1 && p.element != DType::F32)
}

/// Bytes of shared memory that a launch asks for.
pub fn shared(s: &Schedule) -> usize {
    1024 + s.get("stages") * (s.get("m") + s.get("n")) * ROW
}

/// Threads of a block, if the schedule is one that can be computed.
pub fn threads(s: &Schedule) -> Result<usize, String> {
    let (m, n, stages) = (s.get("m"), s.get("n"), s.get("stages"));
    let sizes = [64, 128].contains(&m) && [64, 128].contains(&n) && (2..=8).contains(&stages) && shared(s) <= SHARED;
    let text = "m and n of 64 or 128, 2 to 8 stages in 99 KiB are possible";
    if sizes { Ok(THREADS) } else { Err(format!("has a schedule of m = {m}, n = {n}, stages = {stages}; {text}")) }
}

/// The schedule: the largest tile of which there are enough for all multiprocessors.
pub fn choose(nest: &Nest, p: &Product) -> Schedule {
    let size = |dims: &[usize]| Poly::product(dims.iter().map(|d| &nest.extents[*d])).known().unwrap_or(USUAL);
    let tiles = |(m, n, _): &&(usize, usize, usize)| {
        let up = |a: i64, b: usize| (a + b as i64 - 1) / b as i64;
        size(&p.roles.batch) * up(size(&p.roles.rows), *m) * up(size(&p.roles.columns), *n) >= PROCESSORS as i64
    };
    let (m, n, stages) = TILES.iter().find(tiles).copied().unwrap_or(TILES[TILES.len() - 1]);
    make("mma", &[("m", m as i64), ("n", n as i64), ("stages", stages as i64)])
}
