//! Elementwise kernels: each thread takes a vector of contiguous results, in a grid-stride loop.
//!
//! A reduction is a sequential loop within a thread here; longer ones have strategies of their own.
use crate::{
    analysis::{Body, Kernel, Nest, NestPlan, Stage, merge::updates_many},
    emit::code::Code,
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            dims,
            grid::{grid, largest},
            grid_stride, size, threads,
            vector_width::{bytes, fast_dim, width},
        },
    },
};
use kiln_dialects::Result;
use std::ops::Range;

/// Elementwise kernels, and any other kernel with independent nests.
pub struct Elementwise;

/// How results are divided among threads.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Threads of a CTA
    #[parameter(PowerOfTwo(32, 1024))]
    pub threads: usize,
    /// Vectors whose loads are in flight at once
    #[parameter(PowerOfTwo(1, 8))]
    pub unroll: usize,
    /// Elements of a vector access
    #[parameter(PowerOfTwo(1, 16))]
    pub vector: usize,
}

/// Results from which on threads take vectors; fewer are spread over many threads.
const MIN_VECTOR_RESULTS: i64 = 1 << 16;

/// The same for results that are reductions: each thread has a loop, so that all SMs must be full.
const MIN_VECTOR_REDUCTIONS: i64 = 1 << 20;

/// Results from which on a thread has several single elements in flight: there are enough threads.
const MIN_UNROLLED_RESULTS: i64 = 1 << 22;
/// The longest body, in ops, and the most operands, of which several copies fit registers.
const MOST_UNROLLED: (usize, usize) = (32, 4);

impl Strategy for Elementwise {
    type Params = Params;
    const NAME: &'static str = "elementwise";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "A thread per vector of neighbouring results, grid-stride";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str =
        "has stages that depend on each other; strategy rows computes these";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let vector = |n: &Nest| {
            let d = fast_dim(r.kernel, r.plan, n, &dims(n, 0, false))?;
            let results = size(n, &dims(n, 0, false));
            let reduces = n.reduction.contains(&true);
            let least = if reduces { MIN_VECTOR_REDUCTIONS } else { MIN_VECTOR_RESULTS };
            let few = results.map_or(reduces, |s| s < least);
            Some(if few { 1 } else { width(r.kernel, r.plan, n, d) })
        };
        let vector = r.plan.nests.iter().filter_map(vector).max().unwrap_or(1);
        let unroll = if vector > 1 { 1 } else { unroll(r.kernel, r.plan) };
        Match::first(r.gpu().ok().map(|g| Params { threads: g.threads as usize, unroll, vector }))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let grid = grid(r.kernel, |e| {
            let each = p.threads * p.vector * p.unroll;
            match shares(r.kernel, r.plan, each) {
                Some(all) => all.last().map(|last| last.end.to_string()),
                None => Some(format!("({}) ceildiv {each}", e.parallel(largest(r.plan)?)?)),
            }
        })?;
        Ok(Launch { grid: Some(grid), threads: p.threads, ..Launch::default() })
    }
    fn candidates(params: &Params) -> Vec<Params> {
        doubled_and_halved(params, &["threads", "unroll"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        if e.plan.dependent {
            return Err(Self::MISMATCH.into());
        }
        let items = (p.vector, p.unroll);
        match shares(e.scope.kernel, e.plan, p.threads * p.vector * p.unroll) {
            Some(all) => {
                let nests: Vec<_> = e.plan.nests.iter().zip(all).collect();
                by_cta(e.c, &nests, &|c, n, ctas| {
                    grid_stride::grid(c, e.scope, e.plan, n, p.threads, items, Some(ctas))
                })
            }
            None => e.plan.nests.iter().try_for_each(|n| {
                grid_stride::grid(e.c, e.scope, e.plan, n, p.threads, items, None)
            }),
        }
    }
}

/// For each nest of a kernel that updates many tensors the CTAs that compute it, `items` results a
/// CTA; None for other kernels, and where sizes are dynamic.
fn shares(k: &Kernel, plan: &NestPlan, items: usize) -> Option<Vec<Range<usize>>> {
    let mut end = 0;
    let mut share = |n: &Nest| {
        let results = usize::try_from(size(n, &dims(n, 0, false))?).ok()?;
        let start = end;
        end += results.div_ceil(items).max(1);
        Some(start..end)
    };
    updates_many(k).then(|| plan.nests.iter().map(&mut share).collect()).flatten()
}

/// Emits a nest that these CTAs share.
type EmitNest<'a> = dyn Fn(Code, &Nest, Range<usize>) -> Result<()> + 'a;

/// Emits a nest where the CTA is one of its share. A binary search finds it, so that a CTA fetches
/// no other nest's code.
fn by_cta(c: Code, nests: &[(&Nest, Range<usize>)], emit: &EmitNest<'_>) -> Result<()> {
    match nests {
        [] => Ok(()),
        [(nest, ctas)] => emit(c, nest, ctas.clone()),
        _ => {
            let (left, right) = nests.split_at(nests.len() / 2);
            let first = c.index(right[0].1.start as i64)?;
            let before = c.less_than(threads::block_id(c)?, first)?;
            let mut otherwise = |c: Code| by_cta(c, right, emit);
            c.if_else(before, &mut |c| by_cta(c, left, emit), Some(&mut otherwise))
        }
    }
}

/// Single elements of a thread in flight, 16 bytes where there is room for them: rows that are not
/// aligned, as those of a vocabulary of 50,257, are else read at the latency of memory.
fn unroll(k: &Kernel, plan: &NestPlan) -> usize {
    let of = |n: &Nest| {
        let stages: Vec<&Stage> = n.all().filter_map(|s| k.stages.get(s)).collect();
        let ops: usize = stages
            .iter()
            .map(|s| match s.body {
                Body::Block(block) => block.ops().len(),
                _ => 0,
            })
            .sum();
        let reads: Vec<usize> =
            stages.iter().flat_map(|s| s.reads()).map(|a| bytes(k, a)).collect();
        let many = size(n, &dims(n, 0, false))? >= MIN_UNROLLED_RESULTS;
        let short = ops <= MOST_UNROLLED.0 && reads.len() <= MOST_UNROLLED.1;
        let widest = reads.iter().max()?;
        (many && short && n.split.is_none() && !n.reduction.contains(&true))
            .then_some((16 / widest).clamp(1, 8))
    };
    plan.nests.iter().filter_map(of).max().unwrap_or(1)
}
