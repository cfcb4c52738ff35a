//! SIMT GEMM: f32 products by FMA at full f32 precision. cp.async loads tiles into a multi-stage
//! pipeline while threads multiply register tiles.
pub(crate) mod emit;

use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Poly, Role},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::{
            common::{
                assumed, ceil_div as up,
                grid::grid,
                roles::{Roles, contraction},
            },
            mma_gemm::SHARED,
            wgmma_gemm::tiles::PROCESSORS,
        },
    },
    target::launch::WARP,
};
use kiln_dialects::{Result, ir::walk, value::DType};
use kiln_runtime::library_call::CUBLASLT;

/// Products of f32 whose addresses are affine.
pub struct SimtGemm;

/// The CTA tile and its pipeline.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// K of a pipeline stage
    #[parameter(OneOf(&[8, 16, 32]))]
    pub block_k: usize,
    /// Rows of the CTA tile
    #[parameter(PowerOfTwo(32, 256))]
    pub block_m: usize,
    /// Columns of the CTA tile
    #[parameter(PowerOfTwo(32, 256))]
    pub block_n: usize,
    /// CTAs of an SM that registers are limited for
    #[parameter(Between(1, 16))]
    pub ctas_per_sm: usize,
    /// Stages of the shared-memory pipeline
    #[parameter(Between(2, 4))]
    pub stages: usize,
    /// Rows of a thread's register tile
    #[parameter(OneOf(&[4, 8]))]
    pub thread_m: usize,
    /// Columns of a thread's register tile
    #[parameter(OneOf(&[4, 8]))]
    pub thread_n: usize,
    /// Steps of K that are unrolled: one is loaded while another is multiplied
    #[parameter(Between(1, 32))]
    pub unroll: usize,
}

impl Strategy for SimtGemm {
    type Params = Params;
    const NAME: &'static str = "simt_gemm";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Products of f32 by FMAs, tiles by cp.async";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "is no product of f32 whose addresses are linear";
    const LIBRARIES: &'static [&'static str] = &[CUBLASLT];

    fn matches(r: &Request<'_>) -> Match<Params> {
        let found = || {
            let p = product(r.kernel, r.plan)?;
            Some(params(r.kernel, r.plan.nests.first()?, &p))
        };
        Match::first(found())
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let threads = threads(p)?;
        let grid = grid(r.kernel, |e| e.tiles(r.kernel, r.plan, p.block_m, p.block_n))?;
        Ok(Launch {
            grid: Some(grid),
            threads,
            shared_bytes: Some(shared(p)),
            ctas_per_sm: Some(p.ctas_per_sm),
            ..Launch::default()
        })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        let rings = [(8, 2), (8, 3), (16, 2), (16, 3)];
        let tiles = TILES.iter().flat_map(|t| rings.map(|ring| (t, ring)));
        let mut all: Vec<Params> = tiles
            .map(|((m, thread_m, n, thread_n), (k, stages))| Params {
                block_k: k,
                block_m: *m,
                block_n: *n,
                ctas_per_sm: p.ctas_per_sm,
                stages,
                thread_m: *thread_m,
                thread_n: *thread_n,
                unroll: k,
            })
            .collect();
        all.extend(doubled_and_halved(p, &["ctas_per_sm"]));
        all
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, p, threads(p)?)
    }
}

/// Elements of 16 bytes, the vector width of shared-memory reads.
pub const UNIT: usize = 4;
/// Threads of a warp along M and N of its tile: the shape that reads the fewest distinct addresses
/// of both operands.
pub const LANES: (usize, usize) = (4, 8);
/// Registers of an SM.
const REGISTERS: usize = 1 << 16;
/// FMAs per clock and SM.
const RATE: f64 = 128.0;
/// Warps per SM at which half of that rate is reached: fewer do not hide instruction latency.
const HALF: f64 = 3.0;
/// Clocks of a tile without FMAs.
const WAIT: f64 = 2000.0;
/// Elements per clock of a tile's epilogue.
const FINISHED: f64 = 16.0;
/// Rows, rows per thread, columns, columns per thread; the largest tile first.
pub const TILES: &[(usize, usize, usize, usize)] = &[
    (128, 8, 128, 8),
    (128, 8, 64, 8),
    (64, 8, 128, 8),
    (64, 8, 64, 8),
    (64, 4, 64, 8),
    (64, 4, 64, 4),
    (32, 4, 64, 4),
    (32, 4, 32, 4),
];

/// An operand: M × K or N × K.
#[derive(Clone, Debug)]
pub struct SimtOperand {
    /// Its access in memory.
    pub access: Access,
    /// The stride along M or N, in elements.
    pub mn_stride: Poly,
    /// The stride along K, in elements.
    pub k_stride: Poly,
    /// Whether 16 bytes along M or N can be copied at once.
    pub is_vectorised: bool,
}

impl SimtOperand {
    /// Whether it is K-major: contiguous along K.
    pub fn is_k_major(&self) -> bool {
        self.k_stride.known() == Some(1)
    }
}

/// A matrix product of f32.
#[derive(Clone, Debug)]
pub struct SimtProduct {
    /// The roles of the nest's dimensions; one dimension each for rows, columns and K.
    pub roles: Roles,
    /// The left operand, M × K.
    pub left: SimtOperand,
    /// The right operand, N × K.
    pub right: SimtOperand,
}

/// The matrix product of a kernel, if its addresses are affine.
pub fn product(k: &Kernel, plan: &NestPlan) -> Option<SimtProduct> {
    let nest = plan.main()?;
    let roles = contraction(k, plan)?;
    let stage = k.stages.get(roles.stage)?;
    let ([row], [column], [depth]) =
        (roles.rows.as_slice(), roles.columns.as_slice(), roles.k.as_slice())
    else {
        return None;
    };
    let side = |a: &Access, across: usize| {
        let buffer = k.buffers.get(a.buffer)?;
        let linear = a.at.divisions.is_empty()
            && matches!(buffer.role, Role::Input(_))
            && buffer.element.dtype() == Ok(DType::F32);
        let (beside, k_dim) = (a.at.coefficient(across), a.at.coefficient(*depth));
        let units = |p: &Poly| p.multiple_of(UNIT as i64);
        let others = a.at.dims.iter().all(|(d, p)| *d == across || units(p));
        let wide = beside.known() == Some(1) && others && units(&a.at.constant);
        linear.then(|| SimtOperand {
            access: a.clone(),
            mn_stride: beside,
            k_stride: k_dim,
            is_vectorised: wide,
        })
    };
    let f32 = stage.contraction()?.accumulator == DType::F32;
    // Small results do not fill a tile.
    let fits = |d: usize| nest.extents.get(d)?.known().is_none_or(|n| n >= 8).then_some(());
    fits(*row).and(fits(*column))?;
    let (left, right) = (side(stage.inputs.first()?, *row)?, side(stage.inputs.get(1)?, *column)?);
    f32.then_some(SimtProduct { roles, left, right })
}

/// Elements between adjacent K rows of a tile in shared memory. A padding of 16 bytes puts the
/// copies of 8 in K by 4 rows in distinct banks.
pub fn pitch(across: usize) -> usize {
    across + UNIT
}

/// Bytes of a pipeline stage.
pub fn stage_bytes(p: &Params) -> usize {
    4 * p.block_k * (pitch(p.block_m) + pitch(p.block_n))
}

/// Bytes of shared memory of a launch.
pub fn shared(p: &Params) -> usize {
    1024 + p.stages * stage_bytes(p)
}

/// The threads of a CTA.
///
/// # Errors
/// Threads cannot divide the tiles evenly, or the tiles exceed registers or shared memory.
fn threads(p: &Params) -> Result<usize> {
    let (down, over) = (p.block_m / p.thread_m, p.block_n / p.thread_n);
    let all = down * over;
    if !down.is_multiple_of(LANES.0)
        || !over.is_multiple_of(LANES.1)
        || !(WARP..=512).contains(&all)
    {
        return Err(format!(
            "has {down} by {over} threads; 32 to 512 in warps of {} by {} are possible",
            LANES.0, LANES.1
        )
        .into());
    }
    // Every thread copies the same number of elements, 16 bytes or one element at a time.
    let even = |x: usize| (x * p.block_k).is_multiple_of(UNIT * all) && all / 8 <= x;
    if !even(p.block_m) || !even(p.block_n) {
        return Err(format!("has tiles that {all} threads cannot copy evenly").into());
    }
    if !p.block_k.is_multiple_of(p.unroll) {
        return Err(format!("has unroll = {}, which does not divide block_k", p.unroll).into());
    }
    if shared(p) > SHARED {
        return Err(format!("has a pipeline of {} bytes; {SHARED} are possible", shared(p)).into());
    }
    // Operands and addresses need registers besides the accumulators.
    if p.ctas_per_sm * all * (p.thread_m * p.thread_n + 48) > REGISTERS {
        return Err("has more accumulators than an SM has registers".into());
    }
    Ok(all)
}

/// Chooses the tile whose busiest SM finishes first by the cost model.
fn params(k: &Kernel, nest: &Nest, p: &SimtProduct) -> Params {
    let size = |dims: &[usize]| {
        Poly::product(dims.iter().map(|d| &nest.extents[*d]))
            .known()
            .unwrap_or(assumed::PRODUCT)
            .max(1)
    };
    let (batch, rows, columns, depth) =
        (size(&p.roles.batch), size(&p.roles.rows), size(&p.roles.columns), size(&p.roles.k));
    // A long epilogue needs registers, which many accumulators do not leave.
    let after: usize =
        nest.after.iter().filter_map(|s| k.stages.get(*s)).map(|s| walk(s.op).len()).sum();
    // CTAs per SM, so that one multiplies while another waits: 128 registers per thread, or 170
    // where dynamic sizes and strides or an epilogue take registers.
    let dims = [&p.roles.batch, &p.roles.rows, &p.roles.columns, &p.roles.k];
    let open = dims.iter().flat_map(|d| d.iter()).any(|d| nest.extents[*d].known().is_none());
    let most = if open || after > 0 { 384 } else { 512 };
    let resident = |(m, m_each, n, n_each): &(usize, usize, usize, usize)| {
        (most / (m * n / (m_each * n_each))).max(1)
    };
    let time = |tile: &(usize, usize, usize, usize)| {
        let (m, m_each, n, n_each) = tile;
        let tiles = batch.saturating_mul(up(rows, *m)).saturating_mul(up(columns, *n));
        let turns = up(tiles, PROCESSORS);
        let warps =
            ((m / m_each) * (n / n_each) / WARP) as f64 * turns.min(resident(tile) as i64) as f64;
        // Multiply-adds of a thread per 16 bytes read from shared memory: at 16, reads and
        // multiply-adds take equally long.
        let read = ((m_each * n_each) as f64 / (m_each + n_each) as f64 / 4.0).min(1.0);
        let rate = RATE * read * warps / (warps + HALF);
        turns as f64 * ((m * n) as f64 * (depth as f64 / rate + 1.0 / FINISHED) + WAIT)
    };
    let possible = TILES.iter().filter(|t| after < 24 || t.1 * t.3 < 64);
    let best = possible.map(|tile| (time(tile), *tile)).min_by(|a, b| a.0.total_cmp(&b.0));
    let tile = best.map_or(TILES[TILES.len() - 1], |(_, tile)| tile);
    let ((m, m_each, n, n_each), resident) = (tile, resident(&tile));
    Params {
        block_k: 16,
        block_m: m,
        block_n: n,
        ctas_per_sm: resident,
        stages: 2,
        thread_m: m_each,
        thread_n: n_each,
        unroll: 16,
    }
}
