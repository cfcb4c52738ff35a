//! Column reductions: neighbouring threads take neighbouring columns, threads along K share each
//! column's reduction and combine partial results through shared memory.
pub(crate) mod emit;

use crate::{
    analysis::{Kernel, Nest, NestPlan},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            assumed, check_threads, combine, dims, floor_power_of_two,
            grid::{grid, largest},
            size,
            vector_width::{fast_dim, narrow_width},
        },
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
/// Most threads per CTA.
const MOST_THREADS: i64 = 256;
/// With at least this many threads along the columns, the GPU is full without splitting K.
const FULL_GPU_THREADS: i64 = 1 << 16;

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

/// A nest with contiguous results: vector accesses of all results, elements per access, K extent,
/// bytes that one access of every output takes.
type ColumnNest = (i64, i64, i64, i64);

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
    let bytes: i64 = outputs
        .map(|o| k.buffers.get(o.access.buffer)?.element.dtype().ok().map(|t| t.byte_size() as i64))
        .sum::<Option<_>>()?;
    (!depth.is_empty() && combine(k, nest) && work >= 64 && nest.split.is_none()).then_some((
        size(nest, &free)? / lanes,
        lanes,
        work,
        lanes * bytes,
    ))
}

/// Splits K among threads where the columns alone have too few threads to fill the GPU.
fn params(nests: &[ColumnNest]) -> Option<Params> {
    let (items, work) = (nests.iter().map(|n| n.0).max()?, nests.iter().map(|n| n.2).min()?);
    let (lanes, bytes) = (nests.iter().map(|n| n.1).max()?, nests.iter().map(|n| n.3).sum::<i64>());
    let columns = (items.max(1) as u64).next_power_of_two().min(WARP as u64) as i64;
    let parts = floor_power_of_two(work / UNROLL)
        .min(floor_power_of_two(MOST_THREADS / columns))
        .min(floor_power_of_two(SHARED / (bytes * columns)));
    let pays = items < FULL_GPU_THREADS && columns * parts >= WARP as i64 && parts > 1;
    pays.then_some(Params {
        columns: columns as usize,
        k_threads: parts as usize,
        unroll: UNROLL as usize,
        vector: lanes as usize,
    })
}
