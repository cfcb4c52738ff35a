//! Column reductions: neighbouring threads take neighbouring columns, threads along K share each
//! column's reduction and combine partial results through shared memory.
pub(crate) mod emit;

use crate::{
    analysis::{Access, Kernel, Nest, NestPlan},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            assumed, ceil_div, check_threads, combine, dims, floor_power_of_two,
            grid::{grid, largest},
            size,
            vector_width::{bytes, fast_dim, narrow_width},
        },
        gpu::wgmma_gemm::tiles::PROCESSORS,
    },
    target::launch::{SHARED, WARP},
};
use kiln_dialects::Result;

/// Reductions whose results are contiguous: each result reduces one column.
pub struct ColumnReduction;

/// Tile of a column reduction.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Threads along the columns
    #[parameter(PowerOfTwo(1, 1024))]
    pub columns: usize,
    /// Threads that share a column's reduction
    #[parameter(PowerOfTwo(1, 1024))]
    pub k_threads: usize,
    /// Accesses that a thread keeps in flight
    #[parameter(Between(1, 64))]
    pub unroll: usize,
    /// Elements of a vector access
    #[parameter(PowerOfTwo(1, 16))]
    pub vector: usize,
}

/// Accesses that a thread keeps in flight, if K has as many.
const UNROLL: i64 = 4;
/// Threads per CTA, if K has as many.
const THREADS: i64 = 256;
/// Threads per CTA where fewer CTAs than SMs have all the work; 128 registers are left for each.
const LONE_THREADS: i64 = 512;
/// With at least this many threads along the columns, the GPU is full without splitting K.
const FULL_GPU_THREADS: i64 = 1 << 16;
/// CTAs for which columns are divided: two an SM keep enough loads in flight.
const FULL_GPU_CTAS: i64 = 2 * PROCESSORS as i64;
/// Least contiguous bytes that a CTA reads of a row: an access of DRAM, two sectors of L2.
const SEGMENT: i64 = 64;

impl Strategy for ColumnReduction {
    type Params = Params;
    const NAME: &'static str = "column_reduction";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str =
        "Columns: threads along K share each, partial results meet in shared memory";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "reduces no columns whose partial results combine";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let all: Option<Vec<_>> =
            r.plan.nests.iter().map(|n| column_nest(r.kernel, r.plan, n)).collect();
        Match::first(all.and_then(|all| params(&all)))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let threads = p.columns * p.k_threads;
        check_threads(threads)?;
        let grid = grid(r.kernel, |e| {
            Some(format!("({}) ceildiv {}", e.parallel(largest(r.plan)?)?, p.columns * p.vector))
        })?;
        Ok(Launch { grid: Some(grid), threads, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["k_threads", "unroll"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        e.plan.nests.iter().try_for_each(|n| emit::emit(e.c, e.scope, e.plan, n, p))
    }
}

/// A nest with contiguous results.
struct ColumnNest {
    /// Vector accesses of all results.
    items: i64,
    /// Of these, those that are contiguous in memory for one index of K.
    row: i64,
    /// Elements of a vector access.
    lanes: i64,
    /// Bytes of a vector access of the narrowest operand.
    access: i64,
    /// Extent of K.
    work: i64,
    /// Bytes that one access of every output takes.
    partial: i64,
}

fn column_nest(k: &Kernel, plan: &NestPlan, nest: &Nest) -> Option<ColumnNest> {
    let (free, depth) = (dims(nest, 0, false), dims(nest, 0, true));
    let fast = fast_dim(k, plan, nest, &free)?;
    if fast_dim(k, plan, nest, &(0..nest.extents.len()).collect::<Vec<_>>()) != Some(fast) {
        return None;
    }
    let mut lanes = narrow_width(k, plan, nest, fast, None) as i64;
    while lanes > 1 && !nest.extents[fast].multiple_of(lanes) {
        lanes /= 2;
    }
    let work = size(nest, &depth).unwrap_or(assumed::ROW);
    let outputs = nest
        .stages
        .iter()
        .filter_map(|s| k.stages.get(*s))
        .flat_map(|s| &s.outputs)
        .filter(|o| o.reduces);
    let partial: i64 = outputs
        .map(|o| k.buffers.get(o.access.buffer)?.element.dtype().ok().map(|t| t.byte_size() as i64))
        .sum::<Option<_>>()?;
    let results = size(nest, &free)?;
    let (row, narrowest) = contiguous_row(k, nest, fast).unwrap_or((results, 1));
    (!depth.is_empty() && combine(k, nest) && work >= 64 && nest.split.is_none()).then_some(
        ColumnNest {
            items: results / lanes,
            row: (row / lanes).max(1),
            lanes,
            access: lanes * narrowest,
            work,
            partial: lanes * partial,
        },
    )
}

/// Most results whose operands are contiguous in memory for one index of K, and the least bytes of
/// such an operand's element.
fn contiguous_row(k: &Kernel, nest: &Nest, fast: usize) -> Option<(i64, i64)> {
    let step = |a: &Access, d: usize| a.at.coefficient(d).known().filter(|_| !a.at.in_division(d));
    let streams = |a: &&Access| {
        let reduced = |d: usize| nest.reduction[d] && a.at.uses(d) && step(a, d) != Some(0);
        step(a, fast) == Some(1) && (0..nest.extents.len()).any(reduced)
    };
    let row = |a: &Access| {
        let (mut row, mut left) = (1, dims(nest, 0, false));
        while let Some(at) = left.iter().position(|d| step(a, *d) == Some(row)) {
            row *= nest.extents[left.swap_remove(at)].known()?;
        }
        Some((row, bytes(k, a) as i64))
    };
    let stages = nest.stages.iter().filter_map(|s| k.stages.get(*s));
    let rows = stages.flat_map(|s| s.reads()).filter(streams).filter_map(row);
    rows.reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))
}

/// Splits K among threads where the columns alone have too few threads to fill the GPU. A CTA has
/// as many columns as lie in a row of memory, so that where these are few its warps read
/// neighbouring rows; and fewer where the grid would leave SMs idle.
fn params(nests: &[ColumnNest]) -> Option<Params> {
    let (most, least) = (
        |of: fn(&ColumnNest) -> i64| nests.iter().map(of).max(),
        |of: fn(&ColumnNest) -> i64| nests.iter().map(of).min(),
    );
    let (items, lanes, row) = (most(|n| n.items)?, most(|n| n.lanes)?, most(|n| n.row)?);
    let (work, access) = (least(|n| n.work)?, least(|n| n.access)?);
    let partial: i64 = nests.iter().map(|n| n.partial).sum();
    let up_to = |n: i64| (n.max(1) as u64).next_power_of_two() as i64;
    let longest = floor_power_of_two(work / UNROLL);
    let mut columns = up_to(row).max(THREADS / longest).min(up_to(items)).min(WARP as i64);
    let (grid, threads) =
        (|columns| ceil_div(items, columns as usize), |columns| columns * longest);
    while grid(columns) < FULL_GPU_CTAS
        && columns * access > SEGMENT
        && threads(columns / 2) >= THREADS
    {
        columns /= 2;
    }
    let all = if grid(columns) < PROCESSORS as i64 { LONE_THREADS } else { THREADS };
    let parts = longest
        .min(floor_power_of_two(all / columns))
        .min(floor_power_of_two(SHARED / (partial * columns)));
    let pays = items < FULL_GPU_THREADS && columns * parts >= WARP as i64 && parts > 1;
    pays.then_some(Params {
        columns: columns as usize,
        k_threads: parts as usize,
        unroll: UNROLL as usize,
        vector: lanes as usize,
    })
}
