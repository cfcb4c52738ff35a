//! Skinny GEMM: products of few rows with a large matrix, such as a layer's weights in decoding.
//! The matrix is read once, from memory to tensor-core fragments; warps split K. Where the kernel
//! also computes the few rows, such as a token's norm, each CTA does so, into shared memory.
mod bytes;
mod dequantization;
pub(crate) mod emit;
mod pipeline;
mod prologue;
mod reduction;
mod stored;
mod tile;
mod weights;

use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Poly, Role, Stage, contracts, is_constant},
    strategies::{
        CTA_SCRATCH, Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::{
            common::{
                assumed,
                grid::{grid, largest},
                roles::{Roles, contractions_by},
            },
            skinny_gemm::{
                dequantization::{Dequantization, Factors, Table, pairs},
                stored::{Stored, VECTOR_BYTES, WORDS},
            },
            wgmma_gemm::tiles::PROCESSORS,
        },
    },
    target::{
        costs::{SKINNY_K, SKINNY_ROWS},
        launch::WARP,
    },
};
use kiln_dialects::{Result, value::DType};
use kiln_runtime::library_call::CUBLASLT;

/// Products of bf16 and f16 with at most [`MAX_ROWS`] rows.
pub struct SkinnyGemm;

/// How the matrix is divided.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Rows of the matrix of a CTA
    #[parameter(PowerOfTwo(16, 64))]
    pub block_m: usize,
    /// Steps of K that a warp has in flight, without stages
    #[parameter(Between(1, 64))]
    pub unroll: usize,
    /// Warps that split K
    #[parameter(PowerOfTwo(1, 32))]
    pub warps: usize,
    /// Bytes of each row of the first CTAs' tiles that are prefetched to L2 while the kernel before
    /// it ends; 0 for none
    #[parameter(OneOf(&[0, 512, 1024, 2048, 4096]))]
    pub prefetch: usize,
    /// K steps of a warp that are loaded ahead (software pipelining), by CTAs that take several
    /// tiles; more than a tile has are of several tiles; 0 for a CTA a tile
    #[parameter(Between(0, 64))]
    pub stages: usize,
}

impl Strategy for SkinnyGemm {
    type Params = Params;
    const NAME: &'static str = "skinny_gemm";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Products of few rows: the matrix is read once, warps split K";
    const NESTING: Nesting = Nesting::CTA;
    const MISMATCH: &'static str = "is no product of few rows of bf16 or f16";
    const LIBRARIES: &'static [&'static str] = &[CUBLASLT];
    const COMPETES: bool = true;

    fn matches(r: &Request<'_>) -> Match<Params> {
        let found = || {
            let gpu = r.gpu().ok().filter(|g| g.tensor_cores)?;
            let all = products(r.kernel, r.plan)?;
            let (p, time) = params(r.plan, &all);
            let p = if gpu.hopper() { with_stages(r, &all, p) } else { p };
            Some((p, time))
        };
        Match::costed(found())
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let all = products(r.kernel, r.plan).ok_or(Self::MISMATCH)?;
        let grid = grid(r.kernel, |e| {
            let alone = matches!(all[..], [SkinnyProduct { nest: 0, .. }]);
            let tiles = all.iter().map(|few| {
                let n = if alone { largest(r.plan)? } else { r.plan.nests.get(few.nest)? };
                let (batch, many) = (e.product(n, &few.batch)?, e.product(n, &few.matrix.dims)?);
                Some(format!("({batch}) * (({many}) ceildiv {})", p.block_m))
            });
            Some(tiles.collect::<Option<Vec<_>>>()?.join(" + "))
        })?;
        let launch = Launch { grid: Some(grid), threads: p.warps * WARP, ..Launch::default() };
        if p.stages == 0 {
            return Ok(launch);
        }
        let steps = all.first().map_or(0, |few| pipeline::steps(few, p.warps));
        let whole = steps.is_multiple_of(p.stages) || p.stages.is_multiple_of(steps);
        if !shares_pipeline(r, &all) || !whole {
            return Err(format!("has {steps} K steps, not in rounds of {}", p.stages).into());
        }
        Ok(Launch { persistent: 1, ..launch })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["unroll", "block_m", "warps", "stages"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, p)
    }
}

/// M and N of the mma.sync instruction; the matrix's rows are its M.
pub const INSTRUCTION: (usize, usize) = (16, 8);
/// Warps of a CTA with a pipeline, and registers of a thread for what it loads ahead: of at most 8
/// rows, and of more. Two resident CTAs are slower, of one kernel or of two (llama 1B, H200).
const PIPELINE: [(usize, usize); 2] = [(16, 32), (8, 64)];
/// Most tiles that a CTA loads ahead.
const TILES_AHEAD: usize = 2;
/// 16-bit elements of a vector access.
pub const VECTOR: usize = VECTOR_BYTES / 2;
/// Threads that read a row's elements of a K step, a vector each.
const ROW_THREADS: usize = 4;
/// Most rows of the skinny operand.
pub const MAX_ROWS: i64 = SKINNY_ROWS;
/// Most matrices that are multiplied over the same loops.
const MATRICES: usize = 4;
/// Registers of a thread for accumulators.
const ACCUMULATOR_REGISTERS: usize = 64;
/// Registers of a thread for loads in flight.
const LOAD_REGISTERS: usize = 64;
/// K steps that a warp has in flight, if K has as many.
const UNROLL: i64 = 4;
/// Bytes of each row that are prefetched by as many CTAs as there are SMs. More are slower: CTAs
/// that do not wait load the same bytes at once (llama 1B, one token, H200: 1024 to 4096 tried).
const PREFETCH: usize = 1024;
/// Bytes per clock and SM when all SMs load: from HBM, and from L2.
const BANDWIDTH: [f64; 2] = [18.0, 54.0];
/// The same from HBM with more than 16 rows, whose accumulators leave registers for fewer loads in
/// flight.
const MANY_ROWS_BANDWIDTH: f64 = 12.0;
/// Clocks until the first bytes arrive, and from the last ones to the end.
const LATENCY: f64 = 2500.0;

/// An operand.
#[derive(Clone, Debug)]
pub struct SkinnyOperand {
    /// Its index among a stage's inputs.
    pub input: usize,
    /// Loops along its rows; empty if it has one row.
    pub dims: Vec<usize>,
}

/// A product with f32 accumulators of bf16 or f16 operands, both K-major, one with few rows.
#[derive(Clone, Debug)]
pub struct SkinnyProduct {
    /// Its nest.
    pub nest: usize,
    /// The reduction stages: one, or several whose matrices share the skinny operand.
    pub stages: Vec<usize>,
    /// Batch loops.
    pub batch: Vec<usize>,
    /// The reduction loop, and its size.
    pub k: (usize, usize),
    /// The element type that is multiplied.
    pub element: DType,
    /// How the matrix is computed from what memory holds.
    pub weights: Dequantization,
    /// How its tables are read, in their order.
    pub tables: Vec<Table>,
    /// The large matrix; each stage has its own.
    pub matrix: SkinnyOperand,
    /// The skinny operand.
    pub skinny: SkinnyOperand,
    /// Rows of the skinny operand.
    pub rows: usize,
    /// Whether no launch of the program writes the matrices.
    pub constant: bool,
}

impl SkinnyProduct {
    /// Instructions along the skinny operand's rows.
    pub fn columns(&self) -> usize {
        self.rows.div_ceil(INSTRUCTION.1)
    }
    /// Elements of a thread in a K step: 16 contiguous bytes of a row of the matrix.
    pub fn vector(&self) -> usize {
        self.weights.stored.vector()
    }
    /// K of a warp's step.
    pub fn depth(&self) -> usize {
        ROW_THREADS * self.vector()
    }
    /// Whether the sums of a K step are scaled, rather than the weights: int4 whose tables have an
    /// element for whole K steps of a row.
    pub fn scales_sums(&self) -> bool {
        let whole = |t: &Table| t.run.is_none_or(|run| run % self.depth() as i64 == 0);
        self.weights.stored == Stored::Int4 && self.tables.iter().all(whole)
    }
    /// K steps of a tile.
    pub fn steps(&self) -> usize {
        self.k.1.div_ceil(self.depth())
    }
}

/// Whether an argument of 16-bit elements can be read in 16-byte vectors along a loop.
pub fn readable(k: &Kernel, a: &Access, k_dim: usize) -> bool {
    is_input(k, a) && in_vectors(a, k_dim, VECTOR)
}

fn is_input(k: &Kernel, a: &Access) -> bool {
    matches!(k.buffers.get(a.buffer).map(|b| b.role), Some(Role::Input(_)))
}

/// Whether the matrix's rows are contiguous along K in memory, in aligned vectors.
fn matrix_in_vectors(a: &Access, k_dim: usize, stored: Stored) -> bool {
    let Stored::Int4 = stored else { return in_vectors(a, k_dim, stored.vector()) };
    let whole = |p: &Poly| p.multiple_of(VECTOR_BYTES as i64);
    pairs(a, k_dim) && a.at.dims.values().all(whole) && whole(&a.at.constant)
}

/// Whether an access is contiguous along a loop, in aligned vectors of `count` elements.
fn in_vectors(a: &Access, k_dim: usize, count: usize) -> bool {
    let units = |p: &Poly| p.multiple_of(count as i64);
    let others = a.at.dims.iter().all(|(d, p)| *d == k_dim || units(p));
    others
        && units(&a.at.constant)
        && a.at.divisions.is_empty()
        && a.at.coefficient(k_dim).known() == Some(1)
}

/// The skinny products of a kernel, if all operands can be read in 16-byte vectors: that of its
/// main nest, or one of each nest. The nests in front of the first one compute the few rows.
pub fn products(k: &Kernel, plan: &NestPlan) -> Option<Vec<SkinnyProduct>> {
    if plan.main().is_some() {
        return Some(vec![product(k, plan, 0)?]);
    }
    let first = plan.nests.iter().position(|n| contracts(k, n))?;
    if plan.dependent != (first > 0) || first > 0 && !computes_rows(k, plan, first) {
        return None;
    }
    (first..plan.nests.len()).map(|n| product(k, plan, n)).collect()
}

/// Whether the first nests of a plan compute intermediates alone, which fit shared memory beside a
/// product's, and the others depend on nothing else of the kernel.
fn computes_rows(k: &Kernel, plan: &NestPlan, first: usize) -> bool {
    let (prologue, others) = plan.nests.split_at(first);
    let role = |b: usize| k.buffers.get(b).map(|b| b.role);
    let stages = |n: &Nest| n.all().filter_map(|s| k.stages.get(s)).collect::<Vec<_>>();
    let written = |n: &Nest| -> Vec<usize> {
        stages(n).iter().flat_map(|s| &s.outputs).map(|o| o.access.buffer).collect()
    };
    let rows: Vec<usize> = prologue.iter().flat_map(written).collect();
    let apart = |(i, n): (usize, &Nest)| {
        let elsewhere = |b: usize| {
            let mut all = others.iter().enumerate().filter(|(j, _)| *j != i);
            all.any(|(_, m)| stages(m).iter().any(|s| s.reads_buffer(b)))
        };
        written(n).iter().all(|b| !rows.contains(b) && !elsewhere(*b))
    };
    rows.iter().all(|b| role(*b) == Some(Role::Temporary))
        && others.iter().enumerate().all(apart)
        && scratch(k, plan).is_some_and(|bytes| bytes <= CTA_SCRATCH)
}

/// Bytes of a kernel's intermediates in shared memory.
fn scratch(k: &Kernel, plan: &NestPlan) -> Option<i64> {
    let kept = |b: &usize| k.buffers[*b].role == Role::Temporary && !plan.forwarded[*b];
    let bytes = |b: usize| {
        let size = k.buffers[b].element.dtype().ok()?.byte_size() as i64;
        Some((k.span(b, 0)? + 15) / 16 * 16 * size)
    };
    (0..k.buffers.len()).filter(kept).map(bytes).sum()
}

/// The skinny product of a nest.
fn product(k: &Kernel, plan: &NestPlan, n: usize) -> Option<SkinnyProduct> {
    let nest = plan.nests.get(n)?;
    let of = |s: &Stage| Factors::of(s).map(|f| (f, f.inputs));
    let (stages, roles, factors) = contractions_by(k, nest, MATRICES, &of)?;
    let Factors { element, inputs, weights } = factors;
    let stored = weights.stored;
    let plain = stored == Stored::Element(element);
    let Roles { batch, rows, columns, k: depth, .. } = roles;
    let all: Vec<&Stage> = stages.iter().filter_map(|s| k.stages.get(*s)).collect();
    let [k_dim] = depth.as_slice() else { return None };
    let whole = |n: &i64| *n >= SKINNY_K && n % stored.vector() as i64 == 0;
    let size = nest.extents[*k_dim].known().filter(whole)?;
    let known = |dims: &[usize]| Poly::product(dims.iter().map(|d| &nest.extents[*d])).known();
    let (x, y) = (known(&rows).unwrap_or(i64::MAX), known(&columns).unwrap_or(i64::MAX));
    let first = (SkinnyOperand { input: inputs[0], dims: rows }, x);
    let second = (SkinnyOperand { input: inputs[1], dims: columns }, y);
    // Quantised weights are the matrix.
    let ((few, count), (many, matrix_rows)) =
        if x <= y && plain { (first, second) } else { (second, first) };
    let shared = all.iter().all(|s| s.inputs.get(few.input) == all[0].inputs.get(few.input));
    let fits = (1..=MAX_ROWS).contains(&count) && matrix_rows >= INSTRUCTION.0 as i64;
    let computed = |a: &Access| {
        k.buffers.get(a.buffer).is_some_and(|b| b.role == Role::Temporary)
            && in_vectors(a, *k_dim, VECTOR)
    };
    let operands = |s: &&Stage| {
        let [matrix, few] = [many.input, few.input].map(|i| s.inputs.get(i));
        matrix.is_some_and(|a| is_input(k, a) && matrix_in_vectors(a, *k_dim, stored))
            && few.is_some_and(|a| readable(k, a, *k_dim) || computed(a))
    };
    let tables = |s: &&Stage| -> Option<Vec<Table>> {
        let all = weights.tables().map(|i| s.inputs.get(i));
        all.map(|a| Table::of(a.filter(|a| is_input(k, a))?, *k_dim, stored)).collect()
    };
    let found: Vec<Vec<Table>> = all.iter().map(tables).collect::<Option<_>>()?;
    let alike = found.iter().all(|t| *t == found[0]);
    let fits = fits && shared && alike && all.iter().all(operands);
    let args = k.block.args();
    let constant = |a: &Access| match k.buffers.get(a.buffer).map(|b| b.role) {
        Some(Role::Input(i)) => args.get(i).is_some_and(|v| is_constant(*v)),
        _ => false,
    };
    fits.then_some(SkinnyProduct {
        nest: n,
        constant: all.iter().all(|s| {
            let mut read = [many.input].into_iter().chain(weights.tables());
            read.all(|i| s.inputs.get(i).is_some_and(constant))
        }),
        stages,
        batch,
        k: (*k_dim, size as usize),
        element,
        weights,
        tables: found.into_iter().next().unwrap_or_default(),
        matrix: many,
        skinny: few,
        rows: count as usize,
    })
}

/// Elements of f32 of one warp's accumulators in shared memory, for a tile of `rows` rows.
pub fn warp_elements(p: &SkinnyProduct, rows: usize) -> usize {
    p.stages.len() * p.columns() * INSTRUCTION.1 * column_pitch(rows)
}

/// Warps whose accumulators fit this much shared memory at once; the others take part in earlier
/// rounds.
pub fn warps_at_once(p: &SkinnyProduct, rows: usize, warps: usize, bytes: i64) -> usize {
    let mut parts = warps;
    while parts > 1 && (4 * parts * warp_elements(p, rows)) as i64 > bytes {
        parts /= 2;
    }
    parts
}

/// Elements between adjacent columns there, padded so that a warp's fragments are in distinct
/// banks.
pub fn column_pitch(rows: usize) -> usize {
    rows + 4
}

/// The product of loops' extents.
fn size_of(plan: &NestPlan, p: &SkinnyProduct, dims: &[usize]) -> i64 {
    let of = |d: &usize| plan.nests[p.nest].extents[*d].known().unwrap_or(assumed::PRODUCT);
    dims.iter().map(of).product()
}

/// Tiles of so many rows of all products.
fn tiles(plan: &NestPlan, all: &[SkinnyProduct], rows: usize) -> i64 {
    let size = |p: &SkinnyProduct, dims: &[usize]| size_of(plan, p, dims);
    all.iter().map(|p| size(p, &p.batch) * round_up(size(p, &p.matrix.dims), rows)).sum()
}

/// Chooses the parameters of such products; returns them with the estimated clocks.
fn params(plan: &NestPlan, all: &[SkinnyProduct]) -> (Params, f64) {
    let size = |p: &SkinnyProduct, dims: &[usize]| size_of(plan, p, dims);
    let one = |p: &SkinnyProduct| {
        let sizes = [size(p, &p.batch), size(p, &p.matrix.dims), p.rows as i64, p.k.1 as i64];
        fastest(sizes, p.stages.len(), p.weights.stored.bits())
    };
    let (mut rows, mut time) = (INSTRUCTION.0 * 4, LATENCY);
    for p in all {
        let (r, t) = one(p);
        (rows, time) = (rows.min(r), time + t - LATENCY);
    }
    let blocks = tiles(plan, all, rows);
    let least = |of: &dyn Fn(&SkinnyProduct) -> i64| all.iter().map(of).min().unwrap_or(1);
    let steps = least(&|p| p.steps() as i64);
    // Many CTAs share an SM, so that each needs fewer warps.
    let mut warps: usize = if 8 * PROCESSORS as i64 <= blocks { 4 } else { 16 };
    while warps > 1 && steps / (warps as i64) < UNROLL {
        warps /= 2;
    }
    let read = |p: &SkinnyProduct| {
        let few = p.columns() * p.vector() / VECTOR;
        pipeline::fragment_words(p) * pipeline::fragments(p, rows) + WORDS * few
    };
    let most = least(&|p| (LOAD_REGISTERS / read(p)) as i64);
    let most = UNROLL.min(steps / warps as i64).min(most).max(1);
    let pieces = 1i64 << most.ilog2();
    (Params { unroll: pieces as usize, block_m: rows, warps, prefetch: 0, stages: 0 }, time)
}

/// The parameters with a pipeline, if the products can share one.
fn with_stages(r: &Request<'_>, all: &[SkinnyProduct], p: Params) -> Params {
    let p = Params { prefetch: PREFETCH, ..p };
    let Some(few) = all.first().filter(|_| shares_pipeline(r, all)) else { return p };
    let (most_warps, registers) = PIPELINE[usize::from(few.rows > INSTRUCTION.1)];
    let warps = most_warps.min(1 << few.steps().ilog2());
    let steps = pipeline::steps(few, warps);
    let most = registers / (WORDS * pipeline::fragments(few, p.block_m));
    // Whole tiles ahead hide latency where CTAs take several.
    let several = tiles(r.plan, all, p.block_m) > PROCESSORS as i64;
    let fits = |n: &usize| {
        steps.is_multiple_of(*n) || several && n.is_multiple_of(steps) && *n <= TILES_AHEAD * steps
    };
    match [8, 4, 2, 1].into_iter().find(|n| *n <= most && fits(n)) {
        Some(stages) => Params { warps, stages, ..p },
        None => p,
    }
}

/// Whether the products of a kernel can share a pipeline.
fn shares_pipeline(r: &Request<'_>, all: &[SkinnyProduct]) -> bool {
    let few =
        |p: &SkinnyProduct| r.kernel.stages.get(*p.stages.first()?)?.inputs.get(p.skinny.input);
    let few: Option<Vec<&Access>> = all.iter().map(few).collect();
    few.is_some_and(|few| !all.is_empty() && pipeline::is_uniform(all, &few))
}

fn round_up(a: i64, b: usize) -> i64 {
    (a + b as i64 - 1) / b as i64
}

/// Rows of a CTA's tile, and the estimated clocks. `sizes`: batch, rows of a matrix, few rows, K;
/// `bits`: of an element of a matrix.
pub fn fastest([batch, many, few, depth]: [i64; 4], matrices: usize, bits: usize) -> (usize, f64) {
    let blocks = |rows: usize| batch * round_up(many, rows);
    // Every CTA rereads the skinny operand. Larger tiles mean fewer CTAs, as long as each SM has
    // one.
    let sums =
        |rows: usize| 4 * matrices * (rows / INSTRUCTION.0) * round_up(few, INSTRUCTION.1) as usize;
    let fits = |rows: &usize| {
        sums(*rows) <= ACCUMULATOR_REGISTERS
            && few > INSTRUCTION.1 as i64
            && blocks(*rows) * 8 >= PROCESSORS as i64 * 7
    };
    // The reduction over warps takes as long as half of a small tile's bytes.
    let least = if bits <= 8 && blocks(32) >= PROCESSORS as i64 { 32 } else { INSTRUCTION.0 };
    let rows = [64, 32].into_iter().find(fits).unwrap_or(least);
    let read = |rows: i64, bits: i64| (bits * rows * depth / 8) as f64 / PROCESSORS as f64;
    let again = read(few * blocks(rows), 16);
    let read = read(batch * many * matrices as i64, bits as i64);
    let memory = if few > 2 * INSTRUCTION.1 as i64 { MANY_ROWS_BANDWIDTH } else { BANDWIDTH[0] };
    (rows, LATENCY + (read / memory).max((read + again) / BANDWIDTH[1]))
}
