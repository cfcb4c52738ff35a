//! Derivatives of attention on Hopper, after FlashAttention-3's backward pass (Shah et al., 2024)
//! without its atomic sums: one kernel gives the derivative by queries, another those by keys and
//! values. Each keeps its rows, streams the other side, and computes the weights again.
mod carried;
mod consumer;
mod emit;
mod epilogue;
mod producer;
mod row_tile;
mod weights;

use crate::{
    analysis::{AttentionGradient as Stages, Kernel, Poly},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        gpu::{
            attention::{ROWS, factors, warpgroups},
            common::grid::{grid, shared_bytes},
            wgmma_gemm::{self, DEPTH, MatrixOperand, SHARED, TMA_BYTES},
        },
    },
};
use kiln_dialects::{ir::*, value::DType};

/// Derivatives of attention of bf16 and f16.
pub struct AttentionGradient;

/// Tiles and pipelines.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Columns of a tile of scores: keys for the derivative by queries, else queries
    #[parameter(MultipleOf(16, 16, 256))]
    pub block: usize,
    /// Tiles by which products with weights and gradients follow those for scores, to overlap the
    /// next tile's
    #[parameter(Between(0, 1))]
    pub overlap: usize,
    /// Whether the tiles that stay are left operands in registers (1) or in shared memory (0)
    #[parameter(Between(0, 1))]
    pub registers: usize,
    /// Stages of the pipeline of the streamed side
    #[parameter(Between(1, 8))]
    pub stages: usize,
    /// Consumer warpgroups, with 64 rows each
    #[parameter(Between(1, 3))]
    pub warpgroups: usize,
}

impl Strategy for AttentionGradient {
    type Params = Params;
    const NAME: &'static str = "attention_gradient";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str =
        "Derivatives of attention by wgmma and TMA, weights and their gradients in registers";
    const NESTING: Nesting = Nesting::NONE;
    const MISMATCH: &'static str = "is no derivative of attention that wgmma and TMA take";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let found = || {
            r.gpu().ok().filter(|g| g.hopper() && g.tensor_cores)?;
            Some(params(r.kernel, &GradientPattern::of(r.kernel)?))
        };
        Match::first(found())
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let hopper = r.gpu()?.hopper();
        let pattern = GradientPattern::of(r.kernel).filter(|_| hopper).ok_or(Self::MISMATCH)?;
        let bytes = shared_bytes(pattern.shared(p), SHARED)?;
        let ctas = grid(r.kernel, |e| {
            let (around, rows, _) = pattern.sizes(r.kernel)?;
            let (around, rows) = (e.poly(&Poly::product(&around))?, e.poly(&rows)?);
            Some(format!("({around}) * (({rows}) ceildiv {})", p.warpgroups * ROWS))
        });
        Ok(Launch {
            grid: Some(ctas?),
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
        let all = [64, 128].iter().flat_map(|block| [0, 1].map(|overlap| (*block, overlap)));
        all.flat_map(|(block, overlap)| [2, 3].map(|warpgroups| (block, overlap, warpgroups)))
            .map(|(block, overlap, warpgroups)| Params { block, overlap, warpgroups, ..p.clone() })
            .collect()
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, p, e.arguments)
    }
}

/// Derivatives of attention of bf16 or f16 whose operands TMA can read.
pub struct GradientPattern {
    /// The stages of the pattern.
    pub at: Stages,
    /// The element type of all operands that are multiplied.
    pub element: DType,
    /// What stays: queries and cotangents, or keys and values.
    pub rows: [MatrixOperand; 2],
    /// What is streamed: the other two, in the same order.
    pub columns: [MatrixOperand; 2],
}

impl GradientPattern {
    /// Matches a kernel.
    pub fn of(k: &Kernel) -> Option<GradientPattern> {
        let at = k.attention_gradient.clone()?;
        let (scores, products) = (k.stages.get(at.scores)?, k.stages.get(at.products)?);
        let element = factors(scores)?;
        (factors(products)? == element).then_some(())?;
        let operand = |stage: usize, input: usize, far: usize| {
            let stage = k.stages.get(stage)?;
            let a = stage.inputs.get(input)?;
            let around = (0..at.outer).filter(|d| !a.at.coefficient(*d).is_zero());
            let dims: Vec<usize> = [at.outer + 2, far].into_iter().chain(around).collect();
            wgmma_gemm::rows(k, &stage.extents, a, (&dims, true), TMA_BYTES)
                .filter(|o| o.dims.len() <= 5)
        };
        let queries = [operand(at.scores, 0, at.outer)?, operand(at.products, 0, at.outer)?];
        let keys = [operand(at.scores, 1, at.outer + 1)?, operand(at.products, 1, at.outer + 1)?];
        let n = at.kept.len();
        let contiguous = |r: &usize| {
            let out = k.stages.get(*r)?.outputs.first()?;
            Some(out.access.at.coefficient(n + 1).known() == Some(1))
        };
        at.results.iter().all(|r| contiguous(r) == Some(true)).then_some(())?;
        let (rows, columns) = if at.by_keys() { (keys, queries) } else { (queries, keys) };
        Some(GradientPattern { at, element, rows, columns })
    }
    /// Extents: of the outer loops that tiles have, of rows, of columns.
    pub fn sizes(&self, k: &Kernel) -> Option<(Vec<Poly>, Poly, Poly)> {
        let (outer, queries, keys) = self.at.sizes(k)?;
        let around = self.at.kept.iter().map(|d| outer.get(*d).cloned());
        let (rows, columns) = if self.at.by_keys() { (keys, queries) } else { (queries, keys) };
        Some((around.collect::<Option<_>>()?, rows.clone(), columns.clone()))
    }
    /// The widths of the two operands of a side.
    pub fn widths(&self) -> [usize; 2] {
        [self.at.depth as usize, self.at.columns as usize]
    }
    /// Bytes of shared memory of a CTA: tiles, mbarriers, and padding for alignment.
    pub fn shared(&self, p: &Params) -> usize {
        let row: usize = self.widths().iter().map(|n| n.div_ceil(DEPTH) * 2 * DEPTH).sum();
        (p.warpgroups * ROWS + p.block * p.stages) * row + 16 * (1 + p.stages) + 1024
    }
    fn maps(&self, k: &Kernel, p: &Params) -> Result<Attr> {
        let c = k.func.ctx();
        let one = |o: &MatrixOperand, rows: usize| {
            let element = Type::scalar(c, self.element);
            wgmma_gemm::tensor_maps::map(k, o, element, &[DEPTH, rows], None)
        };
        let rows = self.rows.iter().map(|o| one(o, p.warpgroups * ROWS));
        let columns = self.columns.iter().map(|o| one(o, p.block));
        Ok(Attr::array(c, &rows.chain(columns).collect::<Result<Vec<_>>>()?))
    }
}

/// Chooses the parameters. Two sums of 128 columns, and two tiles of scores, take 192 registers:
/// there is no room for operands of the tile before or of what stays. Three consumer warpgroups
/// leave room for one sum of 64 columns.
fn params(k: &Kernel, pattern: &GradientPattern) -> Params {
    let narrow = pattern.at.depth.max(pattern.at.columns) <= 64;
    let (by_keys, causal) = (pattern.at.by_keys(), pattern.at.causal);
    // A left operand has columns in sixteens.
    let whole = pattern.widths().iter().all(|n| n.is_multiple_of(16));
    let made = Params {
        block: 64,
        overlap: usize::from(!by_keys || narrow && !causal),
        registers: usize::from(by_keys && narrow && whole),
        stages: 3,
        warpgroups: if narrow && !by_keys { 3 } else { 2 },
    };
    let rows = pattern.sizes(k).and_then(|(_, rows, _)| rows.known());
    match rows.filter(|n| narrow && !by_keys && *n <= SHORT) {
        // Without overlap one warpgroup leaves room for three CTAs on an SM, and few columns of
        // their tiles are masked.
        Some(_) if causal => Params { overlap: 0, warpgroups: 1, ..made },
        Some(rows) => Params { overlap: 0, warpgroups: warpgroups(rows, 3, &TILE_TIMES), ..made },
        None => made,
    }
}

/// Time of a tile of 64 queries by one warpgroup, 128 by two and 192 by three, without overlap, as
/// measured (H100, heads of 64).
const TILE_TIMES: [f64; 3] = [1.0, 1.95, 2.5];
/// Queries up to which the derivative by them does without overlap, as measured (H100).
const SHORT: i64 = 1024;
