//! Cumulative sums, products and extremes: an O(n) scan along an axis.
//!
//! Threads share a row or a column, of which each has some items. Warps scan by shuffles, CTAs
//! through shared memory, and the running value is carried to the next step.
pub(crate) mod columns;
pub(crate) mod emit;
pub(crate) mod rows;

use crate::{
    analysis::{
        Access, Body, Init, Kernel, LinearExpr, Nest, NestPlan, Poly, Role, Stage, drop_units,
        nests,
    },
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            assumed, check_threads,
            grid::grid,
            vector_width::{fast_dim, width},
        },
    },
    target::launch::{SHARED, WARP},
};
use kiln_dialects::ir::*;

/// A scan with its elementwise prologue and epilogue.
pub struct Scan;

/// Tile of a scan.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Threads that share a row or a column
    #[parameter(PowerOfTwo(1, 1024))]
    pub row_threads: usize,
    /// Whether the next step is loaded while this one is combined
    #[parameter(Between(0, 1))]
    pub prefetch: bool,
    /// Rows or columns of a CTA
    #[parameter(PowerOfTwo(1, 1024))]
    pub rows_per_cta: usize,
    /// Vectors of a thread in one step
    #[parameter(Between(1, 32))]
    pub items: usize,
    /// Elements of a vector access
    #[parameter(PowerOfTwo(1, 16))]
    pub vector: usize,
}

impl Strategy for Scan {
    type Params = Params;
    const NAME: &'static str = "scan";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Cumulative sums, products and extremes: one walk along an axis";
    const NESTING: Nesting = Nesting { name: "scan", build: linear_scan };
    const MISMATCH: &'static str = "is no scan";

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(params(r.kernel, r.plan))
    }
    fn refusal(kernel: &Kernel) -> Option<String> {
        refused(kernel)
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let threads = p.row_threads * p.rows_per_cta;
        check_threads(threads)?;
        let grid = grid(r.kernel, |e| {
            let n = r.plan.nests.first()?;
            let axis = scan(r.kernel, r.plan)?.axis;
            let others: Vec<usize> = (0..n.extents.len()).filter(|d| *d != axis).collect();
            let along = lanes(r.kernel, r.plan, n)?.0 == axis;
            let each = p.rows_per_cta * if along { 1 } else { p.vector };
            Some(format!("({}) ceildiv {each}", e.product(n, &others)?))
        })?;
        Ok(Launch { grid: Some(grid), threads, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        let mut all: Vec<Params> =
            [0, 1].iter().filter_map(|on| p.with(&[("prefetch", *on)])).collect();
        all.extend(doubled_and_halved(p, &["row_threads", "rows_per_cta", "items"]));
        all
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, p)
    }
}

/// The scanning stage and its axis.
#[derive(Clone, Copy, Debug)]
pub struct ScanLoop {
    /// The stage.
    pub stage: usize,
    /// Loop dimension of the axis.
    pub axis: usize,
    /// The value of the stage's body that is combined.
    pub value: Value,
    /// Whether the scan is exclusive.
    pub exclusive: bool,
}

/// Warps that keep the GPU busy, if each thread has `BYTES` in flight.
const WARPS: i64 = 4096;
/// Bytes that a thread keeps in flight.
const BYTES: i64 = 64;
/// Registers for what a thread combines down a column.
const SCAN_REGISTERS: i64 = 64;
/// Threads per CTA with small groups.
const BLOCK: i64 = 128;
/// Most threads that share a strided axis: each combines the totals of all of these.
const MAX_STRIDED_THREADS: i64 = 16;
/// Least bytes of neighbouring columns that a CTA reads.
const MIN_COLUMN_BYTES: i64 = 64;
/// Longest axis that is scanned in O(n²), each element by a reduction, without a remark.
const MAX_QUADRATIC: i64 = 1024;

/// Rewrites a kernel's scan, a reduction for each element, as one with O(n) steps, with its plan.
/// `None` if there is no scan or several, or if another stage has other loops.
pub fn linear_scan(mut k: Kernel) -> Option<(Kernel, NestPlan)> {
    let mut all = (0..k.stages.len()).filter_map(|s| Some((s, *k.stages[s].scan()?)));
    let (Some((number, t)), None) = (all.next(), all.next()) else { return None };
    // Drops unit dimensions, wherever they are.
    k.stages.iter_mut().for_each(drop_units);
    let s = &mut k.stages[number];
    let (element, of) = (s.dims[t.element].as_dim()?, s.dims[t.over].as_dim()?);
    let mut extents = s.extents.clone();
    extents.remove(of);
    let now = |d: usize| if d > of { d - 1 } else { d };
    s.extents = extents.clone();
    s.reduction = vec![false; extents.len()];
    s.substitute(&extents, &|d| LinearExpr::dim(now(if d == of { element } else { d })));
    for o in &mut s.outputs {
        (o.reduces, o.init) = (false, Init::None);
    }
    let apart = |s: &Stage| s.extents != extents || s.reduction.contains(&true);
    if k.stages.iter().any(apart) || !in_place(&k) {
        return None;
    }
    let plan = nests(&mut k, SHARED);
    let whole = plan.nests.len() == 1
        && !plan.dependent
        && plan.nests[0].split.is_none()
        && plan.nests[0].after.is_empty();
    (whole && scan(&k, &plan).is_some()).then_some((k, plan))
}

/// Whether each read of a value that the kernel itself writes is of the same iteration's element.
fn in_place(k: &Kernel) -> bool {
    let written: Vec<_> = k.stages.iter().flat_map(|s| &s.outputs).map(|o| &o.access).collect();
    k.stages.iter().all(|s| {
        let read = s.reads().all(|r| written.iter().all(|w| w.buffer != r.buffer || *w == r));
        read && s.captured.iter().all(|b| written.iter().all(|w| w.buffer != *b))
    })
}

/// The scan of a kernel that [`linear_scan`] has rewritten.
pub fn scan(k: &Kernel, plan: &NestPlan) -> Option<ScanLoop> {
    let nest = plan.nests.first()?;
    nest.stages.iter().find_map(|number| {
        let s = k.stages.get(*number)?;
        let own = s.scan()?;
        let axis = s.dims.get(own.over)?.as_dim()?;
        Some(ScanLoop { stage: *number, axis, value: own.value, exclusive: own.exclusive })
    })
}

/// Why a long scan is not computed in one walk and stays O(n²).
fn refused(k: &Kernel) -> Option<String> {
    let t = k.stages.iter().find_map(|s| Some(s.extents[s.scan()?.over].clone()))?;
    let long = t.known().is_none_or(|n| n > MAX_QUADRATIC);
    long.then(|| {
        "the scan shares its kernel with other loops, so that it costs O(n^2) in the axis length"
            .into()
    })
}

/// The dimension of vector accesses of a scan, and the vector width.
pub fn lanes(k: &Kernel, plan: &NestPlan, nest: &Nest) -> Option<(usize, usize)> {
    let all: Vec<usize> = (0..nest.extents.len()).collect();
    let fast = fast_dim(k, plan, nest, &all)?;
    let mut lanes = width(k, plan, nest, fast);
    while lanes > 1 && !nest.extents[fast].multiple_of(lanes as i64) {
        lanes /= 2;
    }
    Some((fast, lanes))
}

/// Bytes of the widest element that the scan loads or stores.
fn bytes(k: &Kernel, plan: &NestPlan, nest: &Nest) -> i64 {
    let stages = || nest.stages.iter().filter_map(|s| k.stages.get(*s));
    let all = stages().flat_map(|s| s.reads().chain(s.outputs.iter().map(|o| &o.access)));
    let real = all.filter(|a| {
        !plan.forwarded.get(a.buffer).copied().unwrap_or(false)
            && k.buffers[a.buffer].role != Role::Temporary
    });
    real.map(|a| crate::strategies::gpu::common::vector_width::bytes(k, a) as i64)
        .max()
        .unwrap_or(4)
}

/// Loads of the kernel's arguments that depend on the axis.
pub fn reads<'a>(k: &'a Kernel, nest: &Nest, axis: usize) -> Vec<&'a Access> {
    let mut all: Vec<&Access> = vec![];
    for s in nest.stages.iter().filter_map(|s| k.stages.get(*s)) {
        // An input that only gives a loop its size has no memory.
        let used = |n: usize| !matches!(s.body, Body::Block(b) if b.args().get(n).is_some_and(|v| v.uses().is_empty()));
        let own = |a: &Access| {
            a.at.uses(axis)
                && matches!(k.buffers.get(a.buffer).map(|b| b.role), Some(Role::Input(_)))
        };
        for (_, a) in s.inputs.iter().enumerate().filter(|(n, a)| used(*n) && own(a)) {
            if !all.contains(&a) {
                all.push(a);
            }
        }
    }
    all
}

/// Parameters of a scan.
fn params(k: &Kernel, plan: &NestPlan) -> Option<Params> {
    let (scan, nest) = (scan(k, plan)?, plan.nests.first()?);
    let (fast, lanes) = lanes(k, plan, nest)?;
    let lanes = lanes as i64;
    let length = nest.extents[scan.axis].known();
    let n = length.unwrap_or(assumed::SCAN).max(1);
    let others = Poly::product(
        (0..nest.extents.len()).filter(|d| *d != scan.axis).map(|d| &nest.extents[d]),
    )
    .known();
    // Each load in flight occupies registers.
    let reads = reads(k, nest, scan.axis).len().max(1) as i64;
    let below = |n: i64| 1i64 << n.max(1).ilog2();
    let above = |n: i64| (n.max(1) as u64).next_power_of_two() as i64;
    let (across, beside, items) = if fast == scan.axis {
        let most = (2 * BYTES / (reads.max(2) * lanes * bytes(k, plan, nest))).clamp(1, 8);
        let (vectors, warp) = ((n + lanes - 1) / lanes, WARP as i64);
        let wanted = WARPS * warp / others.unwrap_or(assumed::SCAN).max(1);
        let across = match vectors {
            v if v <= warp => above(v),
            // One more exchange makes the totals of all warps and pieces known to each warp.
            v => below(wanted.min(v / most)).clamp(warp, warp * warp / above(most)),
        };
        (across, (BLOCK / across).max(1), most.min((vectors + across - 1) / across))
    } else {
        let columns = others.map_or(assumed::SCAN, |n| n / lanes).max(1);
        let words = k
            .stages
            .get(scan.stage)?
            .outputs
            .first()?
            .combine
            .as_ref()?
            .op
            .result(0)
            .ty()
            .dtype()
            .ok()?
            .byte_size() as i64
            / 4;
        let most = (SCAN_REGISTERS / (reads * lanes * words.max(1))).clamp(2, 16);
        let across =
            below((WARPS * WARP as i64 / 2 / columns).min(n / 4)).clamp(1, MAX_STRIDED_THREADS);
        let side =
            (MIN_COLUMN_BYTES / (lanes * bytes(k, plan, nest))).clamp(2, MAX_STRIDED_THREADS);
        // Narrow CTAs where there are few columns.
        let beside = if across == MAX_STRIDED_THREADS {
            side
        } else {
            (BLOCK / across).min(above(columns)).max(side).max(WARP as i64 / across)
        };
        // With a thread per axis there are many threads, so each takes fewer rows.
        let most = if across == 1 { (most / 2).max(2) } else { most };
        (across, beside, most.min((n + across - 1) / across))
    };
    let step = across * items * if fast == scan.axis { lanes } else { 1 };
    Some(Params {
        row_threads: across as usize,
        prefetch: across > 1 && n > step,
        rows_per_cta: beside as usize,
        items: items as usize,
        vector: lanes as usize,
    })
}
