//! Contractions and convolutions that no tensor core and no linear addressing takes: CTA tiles are
//! gathered into shared memory, each thread keeps a register tile of accumulators.
pub(crate) mod emit;

use crate::{
    analysis::{Kernel, NestPlan},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::{
            common::{
                check_threads,
                grid::grid,
                roles::{Roles, contraction},
                size,
            },
            wgmma_gemm::tiles::PROCESSORS,
        },
    },
};
use kiln_dialects::{Result, ir::walk};
use kiln_runtime::library_call::{CUBLASLT, CUDNN};

/// Any contraction: a sum of products.
pub struct NaiveContraction;

/// Tile sizes.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// K of a CTA tile
    #[parameter(PowerOfTwo(1, 64))]
    pub block_k: usize,
    /// Rows of a CTA tile
    #[parameter(PowerOfTwo(1, 256))]
    pub block_m: usize,
    /// Columns of a CTA tile
    #[parameter(PowerOfTwo(1, 256))]
    pub block_n: usize,
    /// Rows of a thread's register tile
    #[parameter(PowerOfTwo(1, 256))]
    pub thread_m: usize,
    /// Columns of a thread's register tile
    #[parameter(PowerOfTwo(1, 256))]
    pub thread_n: usize,
}

/// Tiles that autotuning tries: block_m, thread_m, block_n, thread_n, block_k. Larger ones read
/// shared memory less; smaller ones give more CTAs.
const TILES: &[[i64; 5]] = &[
    [128, 8, 128, 8, 16],
    [128, 8, 128, 8, 8],
    [128, 8, 64, 8, 16],
    [64, 8, 128, 8, 16],
    [128, 8, 64, 4, 16],
    [64, 8, 64, 8, 16],
    [64, 8, 64, 4, 16],
    [64, 4, 64, 4, 16],
    [64, 4, 64, 4, 32],
    [64, 4, 32, 4, 32],
    [32, 4, 64, 4, 32],
    [32, 4, 32, 4, 32],
];

/// From this M and N on, CTA tiles are 128 by 128.
const LARGE: i64 = 1024;
/// Rows and columns of the smallest tile that is chosen.
const TILE: i64 = 64;
/// K of a step of that tile.
const STEP: i64 = 16;
/// This many CTA tiles keep most SMs busy.
const FULL: i64 = 3 * PROCESSORS as i64 / 4;

impl Strategy for NaiveContraction {
    type Params = Params;
    const NAME: &'static str = "naive_contraction";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Any sum of products: gathered tiles in shared memory, FMAs";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "is no contraction";
    const LIBRARIES: &'static [&'static str] = &[CUBLASLT, CUDNN];

    fn matches(r: &Request<'_>) -> Match<Params> {
        let roles = contraction(r.kernel, r.plan);
        Match::first(roles.and_then(|roles| params(r.kernel, r.plan, &roles)))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        if p.thread_m > p.block_m || p.thread_n > p.block_n {
            return Err("has a register tile that is larger than the CTA tile".into());
        }
        let threads = p.block_m / p.thread_m * (p.block_n / p.thread_n);
        check_threads(threads)?;
        let grid = grid(r.kernel, |e| e.tiles(r.kernel, r.plan, p.block_m, p.block_n))?;
        Ok(Launch { grid: Some(grid), threads, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        let tile = |[m, m_each, n, n_each, k]: &[i64; 5]| {
            p.with(&[
                ("block_m", *m),
                ("thread_m", *m_each),
                ("block_n", *n),
                ("thread_n", *n_each),
                ("block_k", *k),
            ])
        };
        let mut all: Vec<Params> = TILES.iter().filter_map(tile).collect();
        all.extend(doubled_and_halved(p, &["block_m", "block_n"]));
        all
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        let threads = p.block_m / p.thread_m * (p.block_n / p.thread_n);
        emit::emit(e.c, e.scope, e.plan, p, threads)
    }
}

/// Tiles of a contraction; `None` if M or N is too small for one.
fn params(k: &Kernel, plan: &NestPlan, r: &Roles) -> Option<Params> {
    let nest = plan.nests.first()?;
    let (m, n) = (size(nest, &r.rows), size(nest, &r.columns));
    if m.is_some_and(|m| m < 8) || n.is_some_and(|n| n < 8) {
        return None;
    }
    // A batch of products that leave most of a tile empty: a thread sums a result faster by itself.
    let small = |m: i64, n: i64, depth: i64| depth <= STEP && m.saturating_mul(n) < TILE * TILE / 4;
    if let (Some(m), Some(n), Some(depth)) = (m, n, size(nest, &r.k))
        && small(m, n, depth)
    {
        return None;
    }
    let wide = k.stages.get(r.stage)?.contraction()?.accumulator.byte_size() > 4;
    let after: usize =
        nest.after.iter().filter_map(|s| k.stages.get(*s)).map(|s| walk(s.op).len()).sum();
    // Large tiles must still fill most SMs.
    let up = |n: i64| (n + 127) / 128;
    let tiles = |m: i64, n: i64| {
        up(m).saturating_mul(up(n)).saturating_mul(size(nest, &r.batch).unwrap_or(1).max(1))
    };
    let full = m.zip(n).is_some_and(|(m, n)| m >= LARGE && n >= LARGE && tiles(m, n) >= FULL);
    let large = full && !wide && after < 24;
    let (tile, each) = if large { (128, 8) } else { (TILE as usize, 4) };
    Some(Params {
        block_k: if wide { 8 } else { STEP as usize },
        block_m: tile,
        block_n: tile,
        thread_m: each,
        thread_n: each,
    })
}
