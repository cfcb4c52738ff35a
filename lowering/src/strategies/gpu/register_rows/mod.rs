//! Rows that a group of threads keeps in registers from the first stage of a kernel to the last, so
//! that each is read once.
pub(crate) mod emit;

use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Role, nests},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            check_threads, combine,
            grid::{grid, largest},
            vector_width::narrow_width,
        },
    },
    target::launch::WARP,
};
use kiln_dialects::Result;
use std::collections::BTreeSet;

/// Plan with intermediates in registers.
pub const NESTING: Nesting = Nesting {
    name: "register_nests",
    build: |mut k| {
        let mut plan = nests(&mut k, i64::MAX);
        keep_in_registers(&k, &mut plan);
        Some((k, plan))
    },
};

/// Rows in registers, such as a softmax or a norm of static length.
pub struct RegisterRows;

/// Tile of the rows.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Threads that share a row
    #[parameter(PowerOfTwo(1, 1024))]
    pub row_threads: usize,
    /// Rows of a CTA
    #[parameter(PowerOfTwo(1, 1024))]
    pub rows_per_cta: usize,
    /// Vectors of a row that a thread keeps
    #[parameter(Between(1, 64))]
    pub unroll: usize,
    /// Elements of a vector access
    #[parameter(PowerOfTwo(1, 16))]
    pub vector: usize,
}

impl Strategy for RegisterRows {
    type Params = Params;
    const NAME: &'static str = "register_rows";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Stages that share rows, kept in registers and read once";
    const NESTING: Nesting = NESTING;
    const MISMATCH: &'static str = "has no rows of one known size that its stages share";

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(params(r.kernel, r.plan))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let threads = p.row_threads * p.rows_per_cta;
        check_threads(threads)?;
        let rows: Vec<usize> = (0..r.plan.rows).collect();
        let grid = grid(r.kernel, |e| {
            Some(format!("({}) ceildiv {}", e.product(largest(r.plan)?, &rows)?, p.rows_per_cta))
        })?;
        // While the warps of one CTA wait at a barrier, those of others load.
        let resident = if p.row_threads > WARP { (THREADS / threads).max(1) } else { 1 };
        let ctas_per_sm = (resident > 1).then_some(resident);
        Ok(Launch { grid: Some(grid), threads, ctas_per_sm, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["rows_per_cta"])
    }
    fn scratch_copies(p: &Params) -> i64 {
        p.rows_per_cta as i64
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, p)
    }
}

/// Most bytes of a row in the registers of a CTA: half of the register file.
const MAX_ROW_BYTES: usize = 128 << 10;
/// Bytes of a row per thread, if there are enough threads for that.
const BYTES_PER_THREAD: usize = 128;
/// Threads per CTA with small groups.
const BLOCK: usize = 128;
/// Most threads per group.
const THREADS: usize = 1024;

/// Drops the memory of all intermediates: they are SSA values in registers.
fn keep_in_registers(k: &Kernel, plan: &mut NestPlan) {
    for (passed, buffer) in plan.forwarded.iter_mut().zip(&k.buffers) {
        *passed |= buffer.role == Role::Temporary;
    }
}

/// The length of a row, if every nest iterates over its elements or once per row, and no nest reads
/// another element of the row than its own iteration writes.
pub fn length(k: &Kernel, plan: &NestPlan) -> Option<usize> {
    let d = plan.rows;
    if !plan.dependent
        || plan
            .nests
            .iter()
            .any(|n| n.split.is_some() || n.extents.len() < d || n.extents.len() > d + 1)
    {
        return None;
    }
    let mut lengths = plan.nests.iter().filter_map(|n| n.extents.get(d)).map(|e| e.known());
    let length = lengths.next()?.filter(|n| *n > 0)?;
    let same = lengths.all(|n| n == Some(length));
    (same && plan.nests.iter().all(|n| combine(k, n)) && in_place(k)).then_some(length as usize)
}

/// Whether each read of a value that the kernel itself writes is of the same iteration's element.
fn in_place(k: &Kernel) -> bool {
    let written: Vec<&Access> =
        k.stages.iter().flat_map(|s| &s.outputs).map(|o| &o.access).collect();
    k.stages.iter().all(|s| {
        let read = s.reads().all(|r| written.iter().all(|w| w.buffer != r.buffer || *w == r));
        read && s.captured.iter().all(|b| written.iter().all(|w| w.buffer != *b))
    })
}

/// Liveness: bytes per element in registers at the barrier with the highest register pressure, of
/// values defined before it and used after it.
fn live_bytes(k: &Kernel, plan: &NestPlan) -> usize {
    let whole = |a: &&Access| a.at.uses(plan.rows);
    let stages = |nests: &'_ [Nest]| {
        nests.iter().flat_map(Nest::all).filter_map(|s| k.stages.get(s)).collect::<Vec<_>>()
    };
    let at = |cut: usize| -> usize {
        let (before, after) = plan.nests.split_at(cut);
        let (before, after) = (stages(before), stages(after));
        let known: BTreeSet<&Access> = before
            .iter()
            .flat_map(|s| s.reads().chain(s.outputs.iter().map(|o| &o.access)))
            .filter(whole)
            .collect();
        let read: BTreeSet<&Access> = after.iter().flat_map(|s| s.reads()).filter(whole).collect();
        // 16-bit floats are held in their compute type.
        let bytes = |a: &&&Access| {
            k.buffers
                .get(a.buffer)
                .and_then(|b| b.element.dtype().ok())
                .map_or(8, |t| t.byte_size().max(4))
        };
        known.intersection(&read).map(|a| bytes(&a)).sum()
    };
    (1..plan.nests.len()).map(at).max().unwrap_or(4).max(4)
}

/// The largest vector width of a nest to which the start of every row is aligned.
pub fn lanes(k: &Kernel, plan: &NestPlan, length: usize) -> usize {
    let wide = plan
        .nests
        .iter()
        .filter(|n| n.extents.len() > plan.rows)
        .map(|n| narrow_width(k, plan, n, plan.rows, None));
    // For 1-byte elements such as masks, half an access (8 bytes) suffices.
    let mut lanes = wide.min().unwrap_or(1).min(8);
    while !length.is_multiple_of(lanes) {
        lanes /= 2;
    }
    lanes
}

/// The parameters, if registers can hold the rows.
pub fn params(k: &Kernel, plan: &NestPlan) -> Option<Params> {
    let (length, live_bytes) = (length(k, plan)?, live_bytes(k, plan));
    if length.checked_mul(live_bytes)? > MAX_ROW_BYTES {
        return None;
    }
    let lanes = lanes(k, plan, length);
    let vectors = length.div_ceil(lanes);
    let most = (BYTES_PER_THREAD / (lanes * live_bytes)).max(1);
    // Several short rows share a warp. A single warp takes as much as it can, since it needs no
    // barrier.
    let group = if vectors <= WARP * most {
        vectors.next_power_of_two().min(WARP)
    } else {
        vectors.div_ceil(most).next_power_of_two().min(THREADS)
    };
    Some(Params {
        row_threads: group,
        rows_per_cta: (BLOCK / group).max(1),
        unroll: vectors.div_ceil(group),
        vector: lanes,
    })
}
