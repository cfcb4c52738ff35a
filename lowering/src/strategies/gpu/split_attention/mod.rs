//! Attention of few queries, such as a step of decoding, and of any on architectures before Hopper:
//! warps, and CTAs of a cluster, split the keys and combine their softmax statistics.
mod combine;
mod emit;
mod fragments;
mod row_tile;
mod split;
mod step;

use crate::{
    analysis::{Attention as Stages, Kernel, Poly},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::{
            attention::{self, ROWS},
            common::{assumed, grid::grid},
            skinny_gemm,
            wgmma_gemm::{SHARED, tiles::PROCESSORS},
        },
    },
    target::launch::WARP,
};
use kiln_dialects::{ir::*, value::DType};

/// Attention whose keys are split.
pub struct SplitAttention;

/// How queries and keys are divided.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Keys that a warp takes at once
    #[parameter(OneOf(&[16, 32, 48, 64]))]
    pub block_kv: usize,
    /// Rows of a tile: queries, or query heads that share keys
    #[parameter(OneOf(&[8, 16]))]
    pub block_q: usize,
    /// CTAs of a cluster that split the keys
    #[parameter(PowerOfTwo(1, 8))]
    pub split_kv: usize,
    /// Warps of a CTA that split the keys
    #[parameter(PowerOfTwo(1, 32))]
    pub warps: usize,
}

impl Strategy for SplitAttention {
    type Params = Params;
    const NAME: &'static str = "split_attention";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str = "Attention of few queries: warps and clusters split the keys";
    const NESTING: Nesting = Nesting::NONE;
    const MISMATCH: &'static str = "is no attention whose rows can be read 16 bytes at a time";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let found = || {
            let gpu = r.gpu().ok()?;
            let pattern = SplitPattern::of(r.kernel)?;
            let wgmma = || gpu.hopper() && attention::FlashPattern::of(r.kernel).is_some();
            let takes = pattern.has_few_rows(r.kernel) || (gpu.tensor_cores && !wgmma());
            takes.then(|| params(r.kernel, &pattern, gpu.hopper())).flatten()
        };
        Match::first(found())
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let clusters = r.gpu()?.hopper();
        let pattern = SplitPattern::of(r.kernel).ok_or(Self::MISMATCH)?;
        let (bytes, most) = (pattern.shared(p), if clusters { SHARED } else { MIN_SHARED });
        if bytes > most {
            return Err(format!(
                "has a schedule of {bytes} bytes of shared memory; {most} are possible"
            )
            .into());
        }
        if p.split_kv > 1 && !clusters {
            return Err(
                format!("has split_kv = {}, but the chip has no clusters", p.split_kv).into()
            );
        }
        Ok(Launch {
            grid: Some(ctas(r, &pattern, p)?),
            threads: p.warps * WARP,
            cluster: p.split_kv,
            shared_bytes: Some(bytes),
            ..Launch::default()
        })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        doubled_and_halved(p, &["split_kv", "warps"])
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, p)
    }
}

/// Elements of K that four threads load at once: 16 bytes each.
pub const DEPTH: usize = 32;
/// Columns of values that eight threads load at once: 16 bytes each.
pub const COLUMNS: usize = 64;
/// Largest cluster size that every GPU supports.
const MAX_CLUSTER: i64 = 8;
/// Cluster size where the number of clusters is dynamic.
const DEFAULT_CLUSTER: i64 = 4;
/// Head sizes of query and value, added, beyond which a thread has one row.
pub const LARGE: i64 = 384;
/// Rows up to which this beats tiles of 128 queries.
const MAX_SMALL_TILE_ROWS: i64 = 64;
/// Bytes of shared memory that a CTA can request on the architectures with the least, sm_86 and
/// sm_89.
const MIN_SHARED: usize = 99 << 10;

/// Attention of bf16 or f16 whose operands can be read in 16-byte vectors.
#[derive(Clone, Debug)]
pub struct SplitPattern {
    /// The stages of the pattern.
    pub at: Stages,
    /// The element type of queries, keys and values.
    pub element: DType,
    /// Query heads that are stacked as rows of one tile (grouped-query attention).
    pub heads: i64,
}

impl SplitPattern {
    /// Matches a kernel.
    pub fn of(k: &Kernel) -> Option<SplitPattern> {
        let (at, element) = attention::plain(k)?;
        let (scores, product) = (k.stages.get(at.scores)?, k.stages.get(at.product)?);
        let (query, key, value) =
            (scores.inputs.first()?, scores.inputs.get(1)?, product.inputs.get(1)?);
        let loops = at.outer + 2;
        let wide = skinny_gemm::readable(k, query, loops)
            && skinny_gemm::readable(k, key, loops)
            && skinny_gemm::readable(k, value, at.outer + 1);
        let own = [key, value].iter().all(|a| !a.at.uses(2));
        let heads = if at.outer == 3 && own { scores.extents.get(2)?.known()? } else { 1 };
        wide.then_some(SplitPattern { at, element, heads })
    }
    /// The number of loops outside of tiles: the outer loops without that over stacked heads.
    pub fn outer_loops(&self) -> usize {
        self.at.outer - usize::from(self.heads > 1)
    }
    /// Rows for each outer position, and the number of such positions.
    fn sizes(&self, k: &Kernel) -> Option<(Poly, Poly)> {
        let (outer, queries, _) = self.at.sizes(k)?;
        let stacked = Poly::product([queries, &Poly::number(self.heads)]);
        Some((stacked, Poly::product(outer.iter().take(self.outer_loops()))))
    }
    /// Elements of a row of accumulators in shared memory, padded so that rows begin in distinct
    /// banks.
    pub fn row_pitch(&self) -> usize {
        (self.at.columns as usize).div_ceil(COLUMNS) * COLUMNS + 4
    }
    /// Bytes of shared memory: each warp's accumulators, with maximum score and sum of exponentials
    /// of each row, and these two of the CTA.
    pub fn shared(&self, p: &Params) -> usize {
        let (rows, warps) = (p.block_q, p.warps);
        1024 + 4 * (warps * rows * (self.row_pitch() + 2) + 2 * rows)
    }
    /// Whether wgmma tiles of queries would be mostly empty.
    pub fn has_few_rows(&self, k: &Kernel) -> bool {
        let queries = self.at.sizes(k).and_then(|(_, queries, _)| queries.known());
        queries.is_some_and(|n| n <= 16 && n * self.heads <= MAX_SMALL_TILE_ROWS)
    }
}

/// Chooses the parameters of such an attention.
fn params(k: &Kernel, pattern: &SplitPattern, clusters: bool) -> Option<Params> {
    let (rows, around) = pattern.sizes(k)?;
    let widest = pattern.at.depth.max(pattern.at.columns);
    // Registers of a thread hold two rows, unless heads are large.
    let tile =
        if rows.known().is_some_and(|n| n <= 8) || pattern.at.depth + pattern.at.columns > LARGE {
            8
        } else {
            16
        };
    let warps = if widest > 128 { 4 } else { 8 };
    let keys = if widest > 128 || (widest > 64 && tile > 8) { 16 } else { 32 };
    let tiles =
        rows.known().zip(around.known()).map(|(n, around)| around * ((n + tile - 1) / tile));
    let (_, _, count) = pattern.at.sizes(k)?;
    let steps = (count.known().unwrap_or(assumed::KEYS) + keys - 1) / keys;
    let mut parts = if clusters {
        tiles.map_or(DEFAULT_CLUSTER, |n| (2 * PROCESSORS as i64 / n.max(1)).clamp(1, MAX_CLUSTER))
    } else {
        1
    };
    parts = 1 << parts.ilog2();
    // Each warp has at least one step.
    while parts > 1 && parts * warps > steps {
        parts /= 2;
    }
    Some(Params {
        block_kv: keys as usize,
        block_q: tile as usize,
        split_kv: parts as usize,
        warps: warps as usize,
    })
}

/// The grid: a CTA for each part of each tile. A launch of no CTAs becomes one of a single CTA,
/// which is no cluster, so dynamic sizes add one cluster.
fn ctas(r: &Request<'_>, pattern: &SplitPattern, p: &Params) -> Result<Attr> {
    let (rows, around) = pattern.sizes(r.kernel).ok_or("has no loops")?;
    let parts = p.split_kv;
    let known = rows.known().zip(around.known()).is_some_and(|(a, b)| a > 0 && b > 0);
    let more = if parts == 1 || known { 0 } else { 1 };
    grid(r.kernel, |e| {
        let tiles = e.poly(&rows).zip(e.poly(&around)).map(|(rows, around)| {
            format!("{parts} * (({around}) * (({rows}) ceildiv {}) + {more})", p.block_q)
        });
        Some(tiles.unwrap_or_else(|| (parts * ROWS).to_string()))
    })
}
