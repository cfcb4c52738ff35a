//! Products and convolutions of bf16 and f16 by mma.sync, which every architecture from sm_80 on
//! has; operands by cp.async into a multi-stage pipeline.
pub(crate) mod emit;
pub(crate) mod im2col;

use crate::{
    analysis::{Kernel, Nest, Plan, Poly},
    strategies::{
        Device, Emission, Launch, Match, Parameters, Request, Strategy, View, doubled_and_halved,
        gpu::{
            common::{assumed, ceil_div as up, grid::grid},
            wgmma_gemm::{self, Product, ROW, tiles::PROCESSORS},
        },
    },
    target::launch::WARP,
};
use kiln_dialects::Result;
use kiln_dialects::value::DType;
use kiln_runtime::library_call::{CUBLASLT, CUDNN};

/// Products by a warp's tensor-core instructions.
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
        "Products and convolutions of bf16 and f16 by mma.sync and cp.async";
    const VIEW: View = View::GPU_NESTS;
    const MISMATCH: &'static str = "is no product whose rows cp.async copies 16 bytes at a time";
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
        let grid = grid(r.kernel, |e| e.tiles(r.kernel, r.plan, p.block_m, p.block_n, 1))?;
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
pub fn shared(p: &Params) -> usize {
    1024 + p.stages * (p.block_m + p.block_n) * ROW
}

/// Warps down and across a tile: those parts of it for which a warp reads least from shared memory.
pub fn warps(m: usize, n: usize) -> (usize, usize) {
    if m > n { (WARPS / 2, 2) } else { (2, WARPS / 2) }
}

/// The parameters: the tile with which the multiprocessor that has most of them is thought to be done
/// first.
fn params(nest: &Nest, p: &Product) -> Params {
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
