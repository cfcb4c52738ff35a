//! A group of threads a row: reductions of a row, and kernels whose stages share rows.
//!
//! A stage that depends on another reads its row again; intermediates are in shared memory. Rows
//! that fit registers are `register_rows`.
pub(crate) mod emit;

use crate::{
    analysis::{Kernel, Nest, NestPlan, Poly, Role},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            assumed, check_threads, combine, dims, floor_power_of_two,
            grid::{grid, largest},
            size,
            vector_width::{fast_dim, width},
        },
    },
    target::launch::{SHARED, WARP},
};
use kiln_dialects::Result;

/// Rows that several stages share, such as a softmax.
pub struct Rows;
/// Results that each reduce a row.
pub struct RowReduction;

/// Tile of the rows.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Threads that share a row
    #[parameter(PowerOfTwo(32, 1024))]
    pub row_threads: usize,
    /// Rows of a CTA
    #[parameter(PowerOfTwo(1, 32))]
    pub rows_per_cta: usize,
    /// Accesses that a thread keeps in flight
    #[parameter(Between(1, 64))]
    pub unroll: usize,
    /// Elements of a vector access
    #[parameter(PowerOfTwo(1, 16))]
    pub vector: usize,
}

/// Accesses that a thread keeps in flight, if the row has as many.
const UNROLL: i64 = 4;
/// Most threads per row, so that an SM holds several CTAs.
const MOST_THREADS: i64 = 512;
/// Threads per CTA with short rows.
const CTA: i64 = 128;

impl Strategy for Rows {
    type Params = Params;
    const NAME: &'static str = "rows";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Stages that share rows, which a group of threads reads again";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "has no rows that its stages share";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let work = |n: &Nest| Poly::product(n.extents.iter().skip(r.plan.rows)).known();
        let work = r.plan.nests.iter().map(work).try_fold(1, |most, n| Some(most.max(n?)));
        let work = work.unwrap_or(assumed::ROW);
        Match::first(r.plan.dependent.then(|| params(r.kernel, r.plan, work)))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let rows: Vec<usize> = (0..r.plan.rows).collect();
        launch(r, p, |e| e.product(largest(r.plan)?, &rows))
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["row_threads", "rows_per_cta", "unroll"])
    }
    fn scratch_copies(p: &Params) -> i64 {
        p.rows_per_cta as i64
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, &e.plan.nests.iter().collect::<Vec<_>>(), p)
    }
}

impl Strategy for RowReduction {
    type Params = Params;
    const NAME: &'static str = "row_reduction";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "A group of threads a result: partial results, then shuffles";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str =
        "has stages that depend on each other; strategy rows computes these";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let work = |n| cooperative_extent(r.kernel, r.plan, n);
        let work = r.plan.nests.iter().map(work).try_fold(0, |most: i64, n| Some(most.max(n?)));
        Match::first(work.map(|work| params(r.kernel, r.plan, work)))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        launch(r, p, |e| e.parallel(largest(r.plan)?))
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["row_threads", "rows_per_cta", "unroll"])
    }
    fn scratch_copies(p: &Params) -> i64 {
        p.rows_per_cta as i64
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        e.plan.nests.iter().try_for_each(|n| emit::emit(e.c, e.scope, e.plan, &[n], p))
    }
}

fn launch(
    r: &Request<'_>,
    p: &Params,
    rows: impl FnOnce(&crate::strategies::gpu::common::grid::Extents) -> Option<String>,
) -> Result<Launch> {
    let threads = p.row_threads * p.rows_per_cta;
    check_threads(threads)?;
    let grid = grid(r.kernel, |e| Some(format!("({}) ceildiv {}", rows(e)?, p.rows_per_cta)))?;
    Ok(Launch { grid: Some(grid), threads, ..Launch::default() })
}

/// Threads per row for this much work, and as many rows as fill a CTA and fit shared memory.
fn params(k: &Kernel, plan: &NestPlan, work: i64) -> Params {
    let vector = |n: &Nest| {
        let free: Vec<usize> = (plan.rows..n.extents.len()).collect();
        fast_dim(k, plan, n, &free).map(|d| width(k, plan, n, d))
    };
    let vector = plan.nests.iter().filter_map(vector).max().unwrap_or(1) as i64;
    let group = floor_power_of_two(work / (UNROLL * vector)).clamp(WARP as i64, MOST_THREADS);
    let scratch: i64 = (0..k.buffers.len())
        .filter(|b| k.buffers[*b].role == Role::Temporary && !plan.forwarded[*b])
        .map(|b| {
            (k.span(b, plan.rows).unwrap_or(0) + 15) / 16
                * 16
                * k.buffers[b].element.dtype().map_or(8, |d| d.byte_size() as i64)
        })
        .sum();
    let mut groups = (CTA / group).max(1);
    while groups > 1 && groups * scratch > SHARED {
        groups /= 2;
    }
    // Narrow loads need more in flight.
    let unroll = (UNROLL * (4 / vector).max(1)).min(work / (group * vector)).max(UNROLL);
    Params {
        row_threads: group as usize,
        rows_per_cta: groups as usize,
        unroll: unroll as usize,
        vector: vector as usize,
    }
}

/// The extent that each result of a nest reduces, if a group of threads is profitable: partial
/// results combine, and what is reduced is contiguous or long.
fn cooperative_extent(k: &Kernel, plan: &NestPlan, nest: &Nest) -> Option<i64> {
    let (free, reduced) = (dims(nest, 0, false), dims(nest, 0, true));
    let work = size(nest, &reduced).unwrap_or(assumed::ROW);
    let all: Vec<usize> = (0..nest.extents.len()).collect();
    let along = fast_dim(k, plan, nest, &all).is_some_and(|d| nest.reduction[d]);
    let few = size(nest, &free).is_some_and(|n| n < 2048 && work >= 256);
    (!reduced.is_empty()
        && combine(k, nest)
        && work >= 32
        && (along || few)
        && nest.split.is_none())
    .then_some(work)
}
