//! Independent nests: elementwise work, and reductions that one thread computes each.

use crate::{
    analysis::{Kernel, Nest, NestPlan, Poly},
    math::expand_math::ACCURACY,
    strategies::{
        Cpu, Device, Emission, Match, Nesting, Parameters, Request, Strategy,
        cpu::common::{
            MIN_TASK_ELEMENTS,
            cache_lines::in_lines,
            tasks::{LoopParams, independent, with_nontemporal},
            unroll,
            vector::vector_dim,
        },
        doubled_and_halved,
    },
};
use kiln_dialects::{
    Result,
    ir::{Op, walk},
};

/// Elementwise nests.
pub struct Elementwise;
/// Independent nests with at least one reduction.
pub struct Reduction;

/// How iterations are divided.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Width of a vector register in bits
    #[parameter(OneOf(&[128, 256, 512]))]
    pub bits: usize,
    /// Iterations of the outer loops that are one task
    #[parameter(Between(1, 1 << 30))]
    pub block: usize,
    /// Whether results that are cache lines are written past the caches
    #[parameter(Between(0, 1))]
    pub nontemporal: bool,
    /// Bytes ahead of a read that is prefetched; 0 for none
    #[parameter(Between(0, 65536))]
    pub prefetch: usize,
    /// Outer parallel loops that are divided into tasks
    #[parameter(Between(0, 64))]
    pub tasks: usize,
    /// Elements of the vector dimension that are one task; 0 for all
    #[parameter(Between(0, 1 << 30))]
    pub tile: usize,
    /// Vectors of one step of the innermost loop
    #[parameter(Between(1, 16))]
    pub unroll: usize,
}

impl Params {
    fn loops(&self) -> LoopParams {
        let Params { bits, block, nontemporal, prefetch, tasks, tile, unroll } = *self;
        LoopParams { bits, block, nontemporal, prefetch, tasks, tile, unroll }
    }
}

const MISMATCH: &str = "has stages that depend on each other; strategy rows computes these";

impl Strategy for Elementwise {
    type Params = Params;
    const NAME: &'static str = "elementwise";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Independent nests: vectors along the contiguous dimension";
    const NESTING: Nesting = Nesting::CPU;
    const MISMATCH: &'static str = MISMATCH;

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(r.cpu().ok().map(|m| params(r.kernel, r.plan, &m)))
    }
    fn candidates(params: &Params) -> Vec<Params> {
        doubled_and_halved(params, &["block", "unroll"])
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        nests(e, params)
    }
}

impl Strategy for Reduction {
    type Params = Params;
    const NAME: &'static str = "reduction";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Independent nests with reductions, several partial results each";
    const NESTING: Nesting = Nesting::CPU;
    const MISMATCH: &'static str = MISMATCH;

    fn matches(r: &Request<'_>) -> Match<Params> {
        let reduces = r.plan.nests.iter().any(|n| n.reduction.contains(&true));
        Match::first(r.cpu().ok().filter(|_| reduces).map(|m| params(r.kernel, r.plan, &m)))
    }
    fn candidates(params: &Params) -> Vec<Params> {
        doubled_and_halved(params, &["block", "unroll"])
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        nests(e, params)
    }
}

fn nests(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
    if e.plan.dependent {
        return Err(MISMATCH.into());
    }
    let (loops, threads) = (params.loops(), e.threads()?);
    e.plan.nests.iter().try_for_each(|n| {
        with_nontemporal(e.c, e.scope, e.plan, n, &loops, &|c, scope| {
            independent(c, scope, e.plan, n, &loops, threads)
        })
    })
}

/// Prefetch distance of a stream in bytes: the best of 256 to 16384 for gelu(a b + c) sigmoid(d) of
/// 16 M f32 on a Zen 4, of which it takes an eighth of the time.
const PREFETCH: i64 = 2048;

/// Whether a nest writes more than the caches hold, in whole cache lines (non-temporal stores).
pub fn streams(k: &Kernel, plan: &NestPlan, nest: &Nest, m: &Cpu) -> bool {
    let bytes = |o: &crate::analysis::Output| {
        let b = k.buffers.get(o.access.buffer)?;
        Some(Poly::product(&b.sizes).known()? * b.element.dtype().ok()?.byte_size() as i64)
    };
    let written: i64 = nest.all().flat_map(|s| &k.stages[s].outputs).filter_map(bytes).sum();
    written > m.l2 + m.l3 && in_lines(k, plan, nest, m.bits as usize)
}

fn params(k: &Kernel, plan: &NestPlan, m: &Cpu) -> Params {
    let reduces = plan.nests.iter().any(|n| n.reduction.contains(&true));
    let past = !reduces && plan.nests.iter().any(|n| streams(k, plan, n, m));
    // With several math functions an iteration fills the out-of-order window, so that the processor
    // does not see the next iterations' loads. With fewer, software prefetches cost more than they
    // gain.
    let function = |o: &Op| ACCURACY.iter().any(|(name, ..)| o.is(name));
    let functions = |n: &Nest| {
        n.all().map(|s| walk(k.stages[s].op).into_iter().filter(function).count()).sum::<usize>()
    };
    let long = plan.nests.iter().any(|n| functions(n) > 1);
    let prefetch = if past && long { PREFETCH } else { 0 };
    // All parallel dimensions but the vectorised one make tasks; a long vectorised one is tiled.
    let (mut tasks, mut tile, mut block) = (0, 0, 1);
    for n in &plan.nests {
        let v = vector_dim(k, plan, n, 0);
        let outer: Vec<usize> =
            (0..n.extents.len()).filter(|d| !n.reduction[*d] && Some(*d) != v).collect();
        let inner = v.filter(|v| !n.reduction[*v]);
        tasks = tasks.max(outer.len());
        let total = Poly::product(&n.extents).known();
        let count = Poly::product(outer.iter().map(|d| &n.extents[*d])).known();
        let length = inner.and_then(|v| n.extents[v].known());
        if inner.is_some() {
            let reduced = Poly::product(
                (0..n.extents.len()).filter(|d| n.reduction[*d]).map(|d| &n.extents[d]),
            )
            .known()
            .unwrap_or(64);
            let wanted = (MIN_TASK_ELEMENTS / reduced.max(1)).max(64);
            tile = if length.is_some_and(|l| l <= wanted) { 0 } else { wanted / 64 * 64 };
        }
        let per_task = match (total, count) {
            (Some(t), Some(c)) => t / c.max(1),
            _ => length.unwrap_or(1024),
        };
        if tile == 0 || !outer.is_empty() {
            block = (MIN_TASK_ELEMENTS / per_task.clamp(1, MIN_TASK_ELEMENTS)).max(1);
        }
    }
    Params {
        bits: m.bits as usize,
        block: block as usize,
        nontemporal: past,
        prefetch: prefetch as usize,
        tasks,
        tile: tile as usize,
        unroll: unroll(k, plan),
    }
}
