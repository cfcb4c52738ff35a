//! Products and convolutions of bf16 and f16, and products of int8, by mma.sync, which every
//! architecture from sm_80 on has; cp.async loads the operands into a multi-stage pipeline.
mod emit;
mod im2col;
mod tile;

use crate::{
    analysis::{Kernel, Nest, NestPlan, Poly},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::{
            common::{
                assumed, ceil_div as up,
                grid::{Extents, grid},
            },
            wgmma_gemm::{
                self, MatrixOperand, ROW, TMA_BYTES, TensorCoreProduct, tiles::PROCESSORS,
            },
        },
    },
    target::launch::WARP,
};
use kiln_dialects::{Result, value::DType};
use kiln_runtime::library_call::{CUBLASLT, CUDNN};

/// Products by mma.sync.
pub struct MmaGemm;

/// The CTA tile and its pipeline.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Rows of the CTA tile
    #[parameter(OneOf(&[64, 128]))]
    pub block_m: usize,
    /// Columns of the CTA tile
    #[parameter(OneOf(&[64, 128]))]
    pub block_n: usize,
    /// Stages of the shared-memory pipeline
    #[parameter(Between(2, 8))]
    pub stages: usize,
}

impl Strategy for MmaGemm {
    type Params = Params;
    const NAME: &'static str = "mma_gemm";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str =
        "Products of bf16, f16 and int8, and convolutions, by mma.sync and cp.async";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = MISMATCH;
    const LIBRARIES: &'static [&'static str] = &[CUBLASLT, CUDNN];

    fn matches(r: &Request<'_>) -> Match<Params> {
        let found = || {
            r.gpu().ok().filter(|g| g.tensor_cores)?;
            let nest = r.plan.nests.first().filter(|_| !r.plan.dependent)?;
            Some(params(nest, &product(r.kernel, r.plan)?))
        };
        Match::first(found())
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        if shared(p) > SHARED {
            return Err(format!(
                "has a pipeline of {} bytes of shared memory; {SHARED} are possible",
                shared(p)
            )
            .into());
        }
        let found = product(r.kernel, r.plan);
        let (nest, product) = r.plan.nests.first().zip(found).ok_or(Self::MISMATCH)?;
        let tiles = |e: &Extents| e.tiles_of(nest, &product.roles, p.block_m, p.block_n, 1);
        let grid = grid(r.kernel, tiles)?;
        let shared_bytes = Some(shared(p));
        Ok(Launch { grid: Some(grid), threads: THREADS, shared_bytes, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["block_m", "block_n"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, p)
    }
}

/// K of a pipeline stage, in 16-bit elements: a row of a tile is 128 bytes.
pub const DEPTH: usize = wgmma_gemm::DEPTH;
/// Warps of a CTA.
const WARPS: usize = 8;
/// Threads of a CTA.
pub const THREADS: usize = WARPS * WARP;
/// Bytes of shared memory that a CTA can request on the architectures with the least, sm_86 and
/// sm_89.
pub(crate) const SHARED: usize = 99 << 10;
/// Peak multiply-adds of 16-bit elements per clock and SM of an A100.
const RATE: f64 = 1024.0;
/// L2 bytes per clock and SM when all SMs load.
const BANDWIDTH: f64 = 40.0;
/// Shared-memory bytes that an SM reads or writes per clock.
const THROUGH: f64 = 128.0;
/// Clocks of a tile without tensor-core work, independent of its size.
const WAIT: f64 = 1500.0;
/// Elements per clock of a tile's epilogue.
const FINISHED: f64 = 30.0;
/// Rows, columns and stages of the tiles, the largest first.
const TILES: &[(usize, usize, usize)] = &[(128, 128, 3), (128, 64, 4), (64, 128, 4), (64, 64, 4)];

/// Why a kernel is not computed so.
const MISMATCH: &str = "is no product whose rows cp.async copies";
/// The narrowest cp.async.
const NARROWEST: usize = 4;
/// Rows and columns from which on rows that are not aligned to 16 bytes are worth a tile.
const MIN_TILE: i64 = 8;

/// The matrix product of a kernel, if cp.async can copy its operands. Rows of any even number of
/// elements are copied, by narrower copies where they are not aligned to 16 bytes. A convolution
/// must meet the conditions of TMA's im2col mode.
pub fn product(k: &Kernel, plan: &NestPlan) -> Option<TensorCoreProduct> {
    let one_group = |p: &TensorCoreProduct| p.window.as_ref().is_none_or(|w| w.filters.is_none());
    let wide = |p: &TensorCoreProduct| {
        let few = |d: usize| {
            let size = plan.main().and_then(|n| n.extents.get(d)?.known());
            size.is_some_and(|n| n < MIN_TILE)
        };
        let odd = |o: &MatrixOperand| o.copy_bytes(p.raw.byte_size()) < TMA_BYTES;
        let all = [p.roles.rows.first(), p.roles.columns.first()];
        !(odd(&p.left) || p.rights.iter().any(odd)) || !all.into_iter().flatten().any(|d| few(*d))
    };
    wgmma_gemm::aligned_product(k, plan, NARROWEST)
        .filter(one_group)
        .filter(wide)
        .filter(|p| p.rights.len() == 1 && is_multiplied(p.element) && p.raw != DType::F32)
}

/// Whether mma.sync of sm_80 multiplies elements of a dtype.
fn is_multiplied(element: DType) -> bool {
    matches!(element, DType::BF16 | DType::F16 | DType::I8)
}

/// Bytes of shared memory of a launch.
pub fn shared(p: &Params) -> usize {
    1024 + p.stages * (p.block_m + p.block_n) * ROW
}

/// Warps along M and N of a tile: the split with the least shared-memory traffic.
pub fn warps(m: usize, n: usize) -> (usize, usize) {
    if m > n { (WARPS / 2, 2) } else { (2, WARPS / 2) }
}

/// Chooses the tile whose busiest SM finishes first by the cost model.
fn params(nest: &Nest, p: &TensorCoreProduct) -> Params {
    let size = |dims: &[usize]| {
        Poly::product(dims.iter().map(|d| &nest.extents[*d]))
            .known()
            .unwrap_or(assumed::PRODUCT)
            .max(1)
    };
    let sizes = [size(&p.roles.batch), size(&p.roles.rows), size(&p.roles.columns), p.steps(nest)];
    let (_, (m, n, stages)) = fastest(sizes, p.prologue.as_ref().map_or(0.0, |left| left.clocks()));
    Params { block_m: m, block_n: n, stages }
}

/// Estimated clocks of a product. `sizes`: batch, rows, columns, K steps. `left`: clocks in which
/// an SM's threads compute one element of the left operand.
pub fn time(sizes: [i64; 4], left: f64) -> f64 {
    fastest(sizes, left).0
}

fn fastest([batch, rows, columns, steps]: [i64; 4], left: f64) -> (f64, (usize, usize, usize)) {
    let time = |(m, n, _): &(usize, usize, usize)| {
        let tiles = up(rows, *m).saturating_mul(up(columns, *n));
        let tiles = batch.saturating_mul(tiles);
        let (multiply, load) = ((m * n * DEPTH) as f64 / RATE, ((m + n) * ROW) as f64 / BANDWIDTH);
        // Each warp reads its rows and columns from shared memory; everything read has been written
        // once.
        let (down, over) = warps(*m, *n);
        let through = (WARPS * (m / down + n / over) * ROW + (m + n) * ROW) as f64 / THROUGH;
        // Warps along N each compute the whole left operand of their rows.
        let computed = (over * m * DEPTH) as f64 * left;
        let each = steps as f64 * (multiply + computed).max(load).max(through)
            + WAIT
            + (m * n) as f64 / FINISHED;
        up(tiles, PROCESSORS) as f64 * each
    };
    let best = TILES.iter().map(|tile| (time(tile), *tile)).min_by(|a, b| a.0.total_cmp(&b.0));
    best.unwrap_or((f64::MAX, TILES[0]))
}
