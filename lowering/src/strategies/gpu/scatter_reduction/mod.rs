//! Reductions in which an index says which result an iteration contributes to: gradients of
//! embeddings, scatters. A warp owns a tile of results, and reads all indices to find the
//! iterations that contribute to it, in their order. Nothing is atomic, so that results do not
//! change from call to call.
mod emit;
mod keys;

use crate::{
    analysis::{Kernel, Nest, NestPlan},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            assumed, check_threads, dims, floor_power_of_two,
            grid::grid,
            size,
            vector_width::{fast_dim, narrow_width},
        },
    },
    target::launch::WARP,
};
use keys::Key;
use kiln_dialects::Result;

/// Masked reductions whose mask is an equality.
pub struct ScatterReduction;

/// Tile of a warp.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Threads of a CTA
    #[parameter(PowerOfTwo(32, 1024))]
    pub threads: usize,
    /// Keys of a warp's tile, where the lanes do not lie along the key
    #[parameter(PowerOfTwo(1, 32))]
    pub keys: usize,
    /// Elements of a vector access
    #[parameter(PowerOfTwo(1, 16))]
    pub vector: usize,
    /// Iterations that a thread tests at once
    #[parameter(PowerOfTwo(1, 8))]
    pub unroll: usize,
}

/// Threads of a CTA. Warps share nothing but the cached indices.
const THREADS: usize = 256;
/// Most keys of a tile: the accumulators are registers.
const MOST_KEYS: i64 = 16;
/// Iterations that a thread tests at once.
const UNROLL: usize = 4;
/// Warps that fill a GPU; beyond them a warp takes more results.
const FULL_GPU_WARPS: i64 = 4096;
/// Fewest results along the key, and fewest iterations, for which testing the indices alone pays.
const FEWEST: i64 = 32;

impl Strategy for ScatterReduction {
    type Params = Params;
    const NAME: &'static str = "scatter_reduction";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Reductions masked by an index: a warp a tile of results, which finds its iterations by votes";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "masks no reduction by an index";

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(params(r.kernel, r.plan))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        check_threads(p.threads)?;
        let [nest] = &r.plan.nests[..] else { return Err(Self::MISMATCH.into()) };
        let key = Key::of(r.kernel, nest).ok_or(Self::MISMATCH)?;
        let tile = Tile::of(r.kernel, r.plan, nest, &key, p).ok_or(Self::MISMATCH)?;
        let grid = grid(r.kernel, |e| {
            let fast = e.product(nest, &[tile.fast])?;
            let mut tiles = format!("(({fast}) ceildiv {})", WARP * p.vector);
            if tile.keys > 1 {
                let keys = e.product(nest, &[key.key])?;
                tiles = format!("{tiles} * (({keys}) ceildiv {})", tile.keys);
            }
            let outer = e.product(nest, &tile.outer)?;
            Some(format!("(({outer}) * {tiles}) ceildiv {}", p.threads / WARP))
        })?;
        Ok(Launch { grid: Some(grid), threads: p.threads, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["keys", "unroll", "threads"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        let [nest] = &e.plan.nests[..] else { return Err(Self::MISMATCH.into()) };
        emit::emit(e.c, e.scope, e.plan, nest, p)
    }
}

/// How a nest's results are divided among warps.
struct Tile {
    /// The loop whose neighbouring results neighbouring lanes take.
    fast: usize,
    /// Results along the key that a lane takes; 1 if the lanes lie along the key.
    keys: usize,
    /// The other parallel loops; among them the key's, unless it is tiled.
    outer: Vec<usize>,
}

impl Tile {
    fn of(k: &Kernel, plan: &NestPlan, nest: &Nest, key: &Key, p: &Params) -> Option<Tile> {
        let free = dims(nest, 0, false);
        let fast = fast_dim(k, plan, nest, &free)?;
        let keys = if fast == key.key { 1 } else { p.keys };
        let tiled = |d: &usize| *d == fast || (keys > 1 && *d == key.key);
        let outer = free.into_iter().filter(|d| !tiled(d)).collect();
        Some(Tile { fast, keys, outer })
    }
}

fn params(k: &Kernel, plan: &NestPlan) -> Option<Params> {
    let [nest] = &plan.nests[..] else { return None };
    let key = Key::of(k, nest)?;
    let length = |d: usize, otherwise: i64| size(nest, &[d]).unwrap_or(otherwise);
    if length(key.key, FEWEST) < FEWEST || length(key.over, FEWEST) < FEWEST {
        return None;
    }
    let free = dims(nest, 0, false);
    let fast = fast_dim(k, plan, nest, &free)?;
    let across = length(fast, assumed::ROW);
    let mut vector = narrow_width(k, plan, nest, fast, None).min(4) as i64;
    while vector > 1 && (!nest.extents[fast].multiple_of(vector) || across < vector * WARP as i64) {
        vector /= 2;
    }
    let warps = size(nest, &free).unwrap_or(i64::MAX) / (vector * (WARP as i64).min(across));
    let keys = match fast == key.key {
        true => 1,
        false => floor_power_of_two(warps / FULL_GPU_WARPS).clamp(1, MOST_KEYS),
    };
    Some(Params { threads: THREADS, keys: keys as usize, vector: vector as usize, unroll: UNROLL })
}
