//! Rows that a group of threads keeps in registers from the first stage of a kernel to the last, so
//! that each is read once. The CTAs of a cluster share a row that is too long for one.
pub(crate) mod emit;

use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Poly, Role, matching_nests},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            check_threads,
            cluster::RowCluster,
            combine,
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
        let mut plan = matching_nests(&mut k, i64::MAX);
        keep_in_registers(&k, &mut plan);
        Some((k, plan))
    },
};

/// Rows in registers, such as a softmax or a norm of static length.
pub struct RegisterRows;

/// Tile of the rows.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// CTAs of a cluster that share a row
    #[parameter(OneOf(&[1, 2, 4, 8]))]
    pub cluster: usize,
    /// Threads of a CTA that share a row
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
        let clusters = r.gpu().is_ok_and(|g| g.hopper());
        Match::first(params(r.kernel, r.plan, clusters))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let threads = p.row_threads * p.rows_per_cta;
        check_threads(threads)?;
        let values = r.kernel.stages.iter().map(|s| s.outputs.len()).sum();
        let clustered = p.cluster > 1;
        if clustered && !(r.gpu()?.hopper() && p.rows_per_cta == 1 && known_rows(r.plan).is_some())
        {
            return Err(format!(
                "has cluster = {}, for which the chip needs clusters and the kernel a known number of rows, each of its own CTAs",
                p.cluster
            )
            .into());
        }
        let rows: Vec<usize> = (0..r.plan.rows).collect();
        let grid = grid(r.kernel, |e| {
            let ctas =
                format!("({}) ceildiv {}", e.product(largest(r.plan)?, &rows)?, p.rows_per_cta);
            Some(if clustered { format!("({ctas}) * {}", p.cluster) } else { ctas })
        })?;
        // While the warps of one CTA wait at a barrier, those of others load. The threads of a cluster
        // hold so much of a row that with several operands they spill if they share the registers.
        let held = p.unroll * p.vector * live_bytes(r.kernel, r.plan);
        let shares = held <= BYTES_PER_THREAD && operands(r.kernel, r.plan) <= 2;
        let several = p.row_threads > WARP && (p.cluster == 1 || shares);
        let resident = if several { (THREADS / threads).max(1) } else { 1 };
        let ctas_per_sm = (resident > 1).then_some(resident);
        // Dynamic shared memory is aligned to 1 KiB.
        let shared_bytes = clustered.then(|| 1024 + RowCluster::bytes(p.cluster, values));
        let cluster = p.cluster;
        Ok(Launch {
            grid: Some(grid),
            threads,
            cluster,
            shared_bytes,
            ctas_per_sm,
            ..Launch::default()
        })
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
/// Threads of a CTA of a cluster, which have 128 registers each.
const CLUSTER_THREADS: usize = 512;
/// Most CTAs of a cluster on every chip that has clusters.
const MAX_CLUSTER: usize = 8;

/// Drops the memory of all intermediates: they are SSA values in registers.
fn keep_in_registers(k: &Kernel, plan: &mut NestPlan) {
    for (passed, buffer) in plan.forwarded.iter_mut().zip(&k.buffers) {
        *passed |= buffer.role == Role::Temporary;
    }
}

/// The sizes of a row, if every nest iterates over its elements or once per row, and no nest reads
/// another element of the row than its own iteration writes.
pub fn sizes(k: &Kernel, plan: &NestPlan) -> Option<Vec<usize>> {
    let d = plan.rows;
    if !plan.dependent || plan.nests.iter().any(|n| n.split.is_some() || n.extents.len() < d) {
        return None;
    }
    let mut rows = plan.nests.iter().map(|n| &n.extents[d..]).filter(|row| !row.is_empty());
    let first = rows.next()?;
    let sizes: Vec<usize> = first
        .iter()
        .map(|e| e.known().filter(|n| *n > 0).map(|n| n as usize))
        .collect::<Option<_>>()?;
    let same = rows.all(|row| row == first);
    (same && plan.nests.iter().all(|n| combine(k, n)) && in_place(k)).then_some(sizes)
}

/// Whether an access depends on the place in the row.
fn within_row(plan: &NestPlan, a: &Access) -> bool {
    let last = plan.nests.iter().map(|n| n.extents.len()).max().unwrap_or(plan.rows);
    (plan.rows..last).any(|d| a.at.uses(d))
}

/// The number of inputs that are read at each place in a row.
fn operands(k: &Kernel, plan: &NestPlan) -> usize {
    let input = |a: &&Access| {
        let role = k.buffers.get(a.buffer).map(|b| b.role);
        matches!(role, Some(Role::Input(_))) && within_row(plan, a)
    };
    let read = k.stages.iter().flat_map(|s| s.reads()).filter(input);
    read.map(|a| a.buffer).collect::<BTreeSet<_>>().len()
}

/// Whether whole rows are stored. Others, such as a variance, are computed in one pass anyway.
fn stores_rows(k: &Kernel, plan: &NestPlan) -> bool {
    let memory = |b: usize| k.buffers.get(b).is_some_and(|b| b.role != Role::Temporary);
    let stored = |a: &Access| memory(a.buffer) && within_row(plan, a);
    k.stages.iter().flat_map(|s| &s.outputs).any(|o| stored(&o.access))
}

/// The number of rows, if it is known.
fn known_rows(plan: &NestPlan) -> Option<i64> {
    Poly::product(plan.nests.first()?.extents.iter().take(plan.rows)).known()
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
    let whole = |a: &&Access| within_row(plan, a);
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

/// The largest vector width of a nest to which every row of the last dimension is aligned.
pub fn lanes(k: &Kernel, plan: &NestPlan, sizes: &[usize]) -> usize {
    let last = plan.rows + sizes.len() - 1;
    let wide = plan
        .nests
        .iter()
        .filter(|n| n.extents.len() > last)
        .map(|n| narrow_width(k, plan, n, last, None));
    // For 1-byte elements such as masks, half an access (8 bytes) suffices.
    let mut lanes = wide.min().unwrap_or(1).min(8);
    while !sizes.last().is_some_and(|n| n.is_multiple_of(lanes)) {
        lanes /= 2;
    }
    lanes
}

/// The parameters, if registers can hold the rows. `clusters`: whether the chip has them.
pub fn params(k: &Kernel, plan: &NestPlan, clusters: bool) -> Option<Params> {
    let (sizes, live_bytes) = (sizes(k, plan)?, live_bytes(k, plan));
    let length = sizes.iter().try_fold(1usize, |n, s| n.checked_mul(*s))?;
    let lanes = lanes(k, plan, &sizes);
    let vectors = length.div_ceil(lanes);
    let most = (BYTES_PER_THREAD / (lanes * live_bytes)).max(1);
    // Several short rows share a warp. A single warp takes as much as it can, since it needs no
    // barrier.
    let group = if vectors <= WARP * most {
        vectors.next_power_of_two().min(WARP)
    } else {
        vectors.div_ceil(most).next_power_of_two()
    };
    let bytes = length.checked_mul(live_bytes)?;
    let several = bytes > MAX_ROW_BYTES && clusters && stores_rows(k, plan);
    let several = several && known_rows(plan).is_some_and(|n| n > 0);
    let cluster = if several { (group / CLUSTER_THREADS).clamp(2, MAX_CLUSTER) } else { 1 };
    if bytes.div_ceil(cluster) > MAX_ROW_BYTES {
        return None;
    }
    let threads = if cluster > 1 { CLUSTER_THREADS } else { THREADS };
    let group = (group / cluster).min(threads);
    Some(Params {
        cluster,
        row_threads: group,
        rows_per_cta: (BLOCK / group).max(1),
        unroll: vectors.div_ceil(group * cluster),
        vector: lanes,
    })
}
