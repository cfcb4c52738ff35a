//! Attention on Hopper: a producer warp loads queries, keys and values by TMA, consumer warpgroups
//! compute scores and values by wgmma with the softmax in registers between them.
mod biases;
mod body;
mod consumer;
mod emit;
mod epilogue;
mod flash;
mod masks;
mod producer;
mod query_tile;
mod softmax;

use crate::{
    analysis::{Attention as Stages, Body, Kernel, Poly, Stage},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        gpu::{
            common::grid::{grid, shared_bytes},
            wgmma_gemm::{self, MatrixOperand, SHARED, TMA_BYTES, tiles::PROCESSORS},
        },
    },
};
use biases::Bias;
use kiln_dialects::{ir::*, value::DType};

/// Attention of bf16 and f16.
pub struct Attention;

/// Tiles and pipelines.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Keys and values of a tile
    #[parameter(MultipleOf(16, 16, 256))]
    pub block_kv: usize,
    /// CTAs of a persistent kernel; 0 launches one per tile of queries
    #[parameter(Between(0, 65535))]
    pub ctas: usize,
    /// Stages of the pipeline of keys and values
    #[parameter(Between(2, 8))]
    pub kv_stages: usize,
    /// Tiles of queries in shared memory
    #[parameter(Between(1, 2))]
    pub q_stages: usize,
    /// Consumer warpgroups, with 64 queries each
    #[parameter(Between(1, 3))]
    pub warpgroups: usize,
}

impl Strategy for Attention {
    type Params = Params;
    const NAME: &'static str = "attention";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Attention by wgmma and TMA, scores and softmax in registers";
    const NESTING: Nesting = Nesting::NONE;
    const MISMATCH: &'static str = "is no attention that wgmma and TMA take";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let found = || {
            r.gpu().ok().filter(|g| g.hopper() && g.tensor_cores)?;
            Some(params(r.kernel, &FlashPattern::of(r.kernel)?))
        };
        Match::first(found())
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let hopper = r.gpu()?.hopper();
        let pattern = FlashPattern::of(r.kernel).filter(|_| hopper).ok_or(Self::MISMATCH)?;
        let bytes = shared_bytes(pattern.shared(p), SHARED)?;
        Ok(Launch {
            grid: Some(ctas(r, &pattern, p)?),
            threads: 128 * (1 + p.warpgroups),
            shared_bytes: Some(bytes),
            tensor_maps: Some(pattern.maps(r.kernel, p)?),
            ..Launch::default()
        })
    }
    fn arguments(func: Op) -> Result<Vec<Type>> {
        wgmma_gemm::emit::parameters(func)
    }
    fn candidates(p: &Params) -> Vec<Params> {
        let ctas = [0, PROCESSORS];
        let all = [2, 3].iter().flat_map(|g| ctas.map(|ctas| (*g, ctas)));
        all.map(|(warpgroups, ctas)| Params { warpgroups, ctas, ..p.clone() }).collect()
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, p, e.arguments)
    }
}

/// Queries of a warpgroup.
pub const ROWS: usize = 64;
/// The largest head size of queries and of values: accumulators of larger ones do not fit
/// registers.
const MAX_HEAD_SIZE: i64 = 256;
/// Tiles of queries per SM from which on the kernel is persistent.
const PERSISTENT_TILES: i64 = 7;

/// Attention of bf16 or f16 whose operands TMA can read.
#[derive(Clone, Debug)]
pub struct FlashPattern {
    /// The stages of the pattern.
    pub at: Stages,
    /// The element type of queries, keys and values.
    pub element: DType,
    /// Queries, K-major; dimensions are those of the score stage.
    pub query: MatrixOperand,
    /// Keys, K-major; dimensions are those of the score stage.
    pub key: MatrixOperand,
    /// Values, MN-major; dimensions are those of the product stage.
    pub value: MatrixOperand,
    /// What scores take by query and key.
    pub(crate) biases: Vec<Bias>,
}

impl FlashPattern {
    /// Matches a kernel.
    pub fn of(k: &Kernel) -> Option<FlashPattern> {
        let (at, element) = plain(k)?;
        let (scores, product) = (k.stages.get(at.scores)?, k.stages.get(at.product)?);
        let (outer, loops) = (at.outer, at.outer + 2);
        let rows = |stage: &Stage, input: usize, near: usize, far: usize| {
            let a = stage.inputs.get(input)?;
            let around = (0..outer).filter(|d| !a.at.coefficient(*d).is_zero());
            let dims: Vec<usize> = [near, far].into_iter().chain(around).collect();
            wgmma_gemm::rows(k, &stage.extents, a, (&dims, true), TMA_BYTES)
                .filter(|o| o.dims.len() <= 5)
        };
        let pattern = FlashPattern {
            element,
            query: rows(scores, 0, loops, outer)?,
            key: rows(scores, 1, loops, outer + 1)?,
            value: rows(product, 1, outer + 1, loops)?,
            biases: biases::of(k, &at),
            at,
        };
        let out = k.stages.get(pattern.at.result)?.outputs.first()?;
        (out.access.at.coefficient(outer + 1).known() == Some(1)).then_some(pattern)
    }
    /// Slices of 64 elements in a row of queries and keys, and in a row of values; the last one may
    /// be partial.
    pub fn slices(&self) -> [usize; 2] {
        [self.at.depth, self.at.columns].map(|n| (n as usize).div_ceil(wgmma_gemm::DEPTH))
    }
    /// Bytes of a stage of queries, of keys, and of values.
    pub fn bytes(&self, p: &Params) -> [usize; 3] {
        let ([deep, wide], row) = (self.slices(), 2 * wgmma_gemm::DEPTH);
        [p.warpgroups * ROWS * row * deep, p.block_kv * row * deep, p.block_kv * row * wide]
    }
    /// Bytes of shared memory of a CTA: pipeline stages, mbarriers, and padding for alignment.
    pub fn shared(&self, p: &Params) -> usize {
        self.shared_with(p, self.staged_biases(p))
    }
    fn shared_with(&self, p: &Params, biases: &[Bias]) -> usize {
        let [query, key, value] = self.bytes(p);
        let (queries, stages) = (p.q_stages, p.kv_stages);
        let biases: usize =
            biases.iter().map(|b| b.bytes(p.warpgroups * ROWS, p.block_kv) + 16).sum();
        query * queries + (key + value + biases) * stages + 16 * queries + 32 * stages + 1024
    }
    /// The biases that TMA loads: as many as fit shared memory beside all else.
    pub(super) fn staged_biases(&self, p: &Params) -> &[Bias] {
        let fit = |n: &usize| self.shared_with(p, &self.biases[..*n]) <= SHARED;
        let most = (0..=self.biases.len()).rev().find(fit).unwrap_or(0);
        &self.biases[..most]
    }
    fn maps(&self, k: &Kernel, p: &Params) -> Result<Attr> {
        let one = |o: &MatrixOperand, element: DType, rows: usize| {
            let columns = wgmma_gemm::ROW / element.byte_size();
            let element = Type::scalar(k.func.ctx(), element);
            wgmma_gemm::tensor_maps::map(k, o, element, &[columns, rows], None)
        };
        let (queries, keys, element) = (p.warpgroups * ROWS, p.block_kv, self.element);
        let own = [(&self.query, queries), (&self.key, keys), (&self.value, keys)];
        let own = own.into_iter().map(|(o, rows)| one(o, element, rows));
        let biases = self.staged_biases(p).iter().map(|b| one(&b.operand, b.element, queries));
        Ok(Attr::array(k.func.ctx(), &own.chain(biases).collect::<Result<Vec<_>>>()?))
    }
    /// Tiles of queries for each position of the outer loops, and the number of such positions.
    fn sizes(&self, k: &Kernel) -> Option<(Poly, Poly)> {
        let (outer, queries, _) = self.at.sizes(k)?;
        Some((queries.clone(), Poly::product(outer)))
    }
}

/// The attention pattern of a kernel and its element type, if it is bf16 or f16, head sizes are
/// multiples of 16 bytes and accumulators fit registers.
pub fn plain(k: &Kernel) -> Option<(Stages, DType)> {
    let at = k.attention.clone()?;
    let (scores, product) = (k.stages.get(at.scores)?, k.stages.get(at.product)?);
    let element = factors(scores)?;
    let fits = |n: i64| n % 8 == 0 && n <= MAX_HEAD_SIZE;
    let stored =
        |input: usize, s: &Stage| k.buffers.get(s.inputs.get(input)?.buffer)?.element.dtype().ok();
    let same = stored(0, scores) == Some(element)
        && stored(1, scores) == Some(element)
        && stored(1, product) == Some(element);
    (fits(at.depth) && fits(at.columns) && same).then_some((at, element))
}

/// The type of both factors of an f32 sum of products, if they are its first two inputs, extended.
pub(super) fn factors(s: &Stage) -> Option<DType> {
    let c = s.contraction().filter(|c| c.product == DType::F32)?;
    c.element().filter(|d| [DType::BF16, DType::F16].contains(d))
}

/// Chooses the parameters of an attention.
fn params(k: &Kernel, pattern: &FlashPattern) -> Params {
    let widest = pattern.at.depth.max(pattern.at.columns);
    let sizes =
        pattern.sizes(k).and_then(|(queries, around)| Some((queries.known()?, around.known()?)));
    let simple = simple(k, pattern);
    // Three consumer warpgroups leave registers for few accumulators and simple scores. They leave
    // the producer few registers too, not enough to compute with dynamic sizes.
    let most = if widest <= 64 && simple { 3 } else { 2 };
    let groups = sizes.map_or(2, |(queries, _)| warpgroups(queries, most, &TILE_TIMES));
    let most_keys = if widest > 128 { 64 } else { 128 };
    let sized = |block_kv: usize, q_stages: usize, ctas: usize| Params {
        block_kv,
        ctas,
        kv_stages: 2,
        q_stages,
        warpgroups: groups,
    };
    // All biases go through shared memory if they fit.
    let fits = |(keys, queries): &(usize, usize)| {
        pattern.shared_with(&sized(*keys, *queries, 0), &pattern.biases) <= SHARED
    };
    let all = [(most_keys, 2), (most_keys, 1), (64, 1)];
    let (keys, queries) = all.into_iter().find(fits).unwrap_or((most_keys, 1));
    let make = |q_stages: usize, ctas: usize| sized(keys, q_stages, ctas);
    let rows = (groups * ROWS) as i64;
    let tiles = sizes.and_then(|(queries, around)| around.checked_mul((queries + rows - 1) / rows));
    // The hardware balances causal tiles, which differ in length, but does not overlap the end of
    // one with the loads of the next: that matters where tiles are short.
    let length = pattern.at.sizes(k).and_then(|(.., keys)| keys.known());
    let long = pattern.at.limits.causal && length.is_some_and(|n| n >= LONG);
    let least = match () {
        () if simple && long || groups == 1 => i64::MAX,
        () if simple => SIMPLE_PERSISTENT_TILES * PROCESSORS as i64,
        () => PERSISTENT_TILES * PROCESSORS as i64,
    };
    make(queries, if tiles.is_some_and(|n| n >= least) { PROCESSORS } else { 0 })
}

/// Time of a tile of 64 queries by one warpgroup, 128 by two and 192 by three, as measured (H100,
/// heads of 64).
const TILE_TIMES: [f64; 3] = [1.0, 1.29, 1.78];
/// Tiles of simple scores per SM from which on the kernel is persistent.
const SIMPLE_PERSISTENT_TILES: i64 = 2;
/// Keys from which on causal tiles are long.
const LONG: i64 = 512;

/// The warpgroups, at most `most`, whose tiles take least time, given that of a tile of each
/// number.
pub fn warpgroups(rows: i64, most: usize, times: &[f64]) -> usize {
    let time = |groups: usize| {
        let tiles = (rows as usize).div_ceil(groups * ROWS);
        tiles as f64 * times.get(groups - 1).copied().unwrap_or(f64::INFINITY)
    };
    (1..=most).rev().min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap_or(1)
}

/// Whether scores are only scaled and causally masked.
fn simple(k: &Kernel, pattern: &FlashPattern) -> bool {
    let Some(seen) = k.stages.get(pattern.at.seen) else { return false };
    let Body::Block(block) = seen.body else { return false };
    let extra = if pattern.at.limits.causal { 5 } else { 0 };
    seen.inputs.len() == 1 && seen.captured.is_empty() && block.ops().len() <= 3 + extra
}

fn ctas(r: &Request<'_>, pattern: &FlashPattern, p: &Params) -> Result<Attr> {
    grid(r.kernel, |e| {
        if p.ctas > 0 {
            return Some(p.ctas.to_string());
        }
        let (queries, around) = pattern.sizes(r.kernel)?;
        let (queries, around) = (e.poly(&queries)?, e.poly(&around)?);
        Some(format!("({around}) * (({queries}) ceildiv {})", p.warpgroups * ROWS))
    })
}
