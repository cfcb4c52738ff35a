//! Contractions: register tiles of rows by vectors, in blocks that fit the caches.
pub(crate) mod emit;

use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Output, Poly},
    strategies::{
        Cpu, Device, Emission, Match, Nesting, Parameters, Request, Strategy,
        cpu::common::{
            cache_lines::shares_sets,
            tasks::{LoopParams, independent},
            vector::{lanes, vector_dim},
        },
    },
};
use kiln_dialects::Result;

/// A contraction or convolution on CPUs.
pub struct Contraction;

/// Tile and block sizes.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Width of a vector register in bits
    #[parameter(OneOf(&[128, 256, 512]))]
    pub bits: usize,
    /// Rows of a register tile
    #[parameter(Between(1, 64))]
    pub m: usize,
    /// Rows of a block that stays in the L2 cache
    #[parameter(Between(1, 1 << 20))]
    pub m_block: usize,
    /// Vectors of columns of a register tile
    #[parameter(Between(1, 8))]
    pub n: usize,
    /// Columns of a block that stays in the L2 cache
    #[parameter(Between(1, 1 << 20))]
    pub n_block: usize,
    /// Whether the operand that all rows read is packed first
    #[parameter(Between(0, 1))]
    pub pack: bool,
}

impl Strategy for Contraction {
    type Params = Params;
    const NAME: &'static str = "contraction";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Sums of products: register tiles in blocks for the L2 cache";
    const NESTING: Nesting = Nesting::CPU;
    const MISMATCH: &'static str = "is no contraction";

    fn matches(r: &Request<'_>) -> Match<Params> {
        let params = || {
            let m = r.cpu().ok()?;
            let roles = contraction(r.kernel, r.plan, m.bits as usize)?;
            Some(blocks(r.plan.nests.first()?, &roles, &m))
        };
        Match::first(params())
    }
    fn candidates(params: &Params) -> Vec<Params> {
        crate::strategies::doubled_and_halved(params, &["m_block", "n_block"])
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        let threads = e.threads()?;
        let (first, beside) = e.plan.nests.split_first().ok_or("does nothing")?;
        let roles = contraction(e.scope.kernel, e.plan, params.bits).ok_or(Self::MISMATCH)?;
        let tiles = emit::Tiles {
            n: params.n,
            m: params.m,
            m_block: params.m_block,
            n_block: params.n_block,
            pack: params.pack,
            in_registers: false,
        };
        emit::emit(e.c, e.scope, first, &roles, &tiles, threads)?;
        let rest = LoopParams::for_side_nests(params.bits);
        beside.iter().try_for_each(|n| independent(e.c, e.scope, e.plan, n, &rest, threads))
    }
}

/// Roles of a contraction's dimensions.
#[derive(Clone, Debug)]
pub struct TileRoles {
    /// The vectorised dimension.
    pub vector: usize,
    /// Elements of a vector.
    pub lanes: usize,
    /// The dimension of which several indices are computed together (unroll and jam), since they
    /// share an operand.
    pub rows: usize,
    /// The dimension that is blocked beside the rows: the vectorised one, or in packed layouts one
    /// outside of it.
    pub columns: usize,
    /// All other parallel dimensions.
    pub outer: Vec<usize>,
    /// The operand that all rows share, if packing it in reading order is profitable.
    pub pack: Option<usize>,
    /// Whether neighbouring rows of the other operand map to the same L1 cache set.
    pub crowded: bool,
}

/// Rows of accumulators that cover the latency of the FMA units.
const FMA_ROWS: i64 = 6;
/// Rows that share a packed panel before the next one is packed.
const PACKED_ROWS: i64 = 1024;
/// Most bytes of a packed panel of a product, and of a convolution, which all filters read.
const PANEL: i64 = 256 << 10;
const WINDOW_PANEL: i64 = 640 << 10;

/// The roles, if a kernel is one contraction, with or without stages on or beside the result.
pub fn contraction(k: &Kernel, plan: &NestPlan, bits: usize) -> Option<TileRoles> {
    let nest = plan.main()?;
    let [stage] = nest.stages.as_slice() else { return None };
    let s = k.stages.get(*stage)?;
    s.contraction()?;
    let [a, b] = s.factors()?;
    let free = |d: &usize| !nest.reduction[*d] && nest.extents[*d].known() != Some(1);
    // Stores are contiguous; an operand with another order is packed.
    let real = |o: &&Output| !plan.forwarded.get(o.access.buffer).copied().unwrap_or(false);
    let written: Vec<&Output> =
        nest.all().filter_map(|s| k.stages.get(s)).flat_map(|s| &s.outputs).filter(real).collect();
    let vector = (0..nest.extents.len())
        .filter(free)
        .find(|d| written.iter().all(|o| o.access.at.coefficient(*d).known() == Some(1)))?;
    // The loops outside of the vectors have whole extents.
    if nest.split.as_ref().is_some_and(|(_, inner, _)| *inner != vector) {
        return None;
    }
    let parallel: Vec<usize> =
        (0..nest.extents.len()).filter(|d| !nest.reduction[*d] && *d != vector).collect();
    // Rows share an operand that varies across lanes.
    let shared = |d: &usize| [a, b].iter().any(|x| !x.at.uses(*d) && x.at.uses(vector));
    // A dynamic extent may be 1, as a batch is: known ones that fill the FMA pipeline come first.
    let length = |d: usize| nest.extents[d].known().unwrap_or(FMA_ROWS);
    let rows = parallel.iter().copied().filter(shared).max_by_key(|d| (length(*d).min(64), *d))?;
    let other = if a.at.uses(rows) { a } else { b };
    let column = |d: &usize| *d != rows && !other.at.uses(*d);
    let packed = parallel.iter().copied().filter(column).max();
    let at = if a.at.uses(rows) { 1 } else { 0 };
    let shared = &s.inputs[at];
    let contiguous = shared.at.coefficient(vector).known() == Some(1);
    // What is not contiguous, as the pixels of a strided convolution, is packed for all rows.
    let short = nest.extents[vector].known().is_some_and(|n| n <= 64);
    let columns = packed.filter(|_| short && contiguous).unwrap_or(vector);
    let outer = parallel.into_iter().filter(|d| *d != rows && *d != columns).collect();
    let width = nest.extents[vector]
        .known()
        .map_or(usize::MAX, |n| (n.max(1) as usize).next_power_of_two());
    let count = lanes(k, nest, bits).min(width);
    let matmul = !other.at.uses(vector)
        && !shared.at.uses(rows)
        && columns == vector
        && shared.at.divisions.is_empty();
    let depth = Poly::product(
        (0..nest.extents.len()).filter(|d| nest.reduction[*d]).map(|d| &nest.extents[d]),
    )
    .known();
    let size = k.buffers.get(shared.buffer)?.element.dtype().ok()?.byte_size() as i64;
    let window = (0..nest.extents.len())
        .filter(|d| nest.reduction[*d] && nest.extents[*d].known() != Some(1))
        .count()
        > 1;
    let panel = if window { WINDOW_PANEL } else { PANEL };
    let fits = depth.is_some_and(|d| d * size * 2 * count as i64 <= panel);
    let many = nest.extents[rows].known().is_none_or(|n| n >= if contiguous { 64 } else { 16 });
    let worth = matmul && fits && many;
    if !(contiguous || worth) {
        return None;
    }
    let pack = worth.then_some(at);
    let bytes = k.buffers.get(other.buffer)?.element.dtype().ok()?.byte_size() as i64;
    let crowded = shares_sets(&other.at.coefficient(rows), bytes);
    Some(TileRoles { vector, lanes: count, rows, columns, outer, pack, crowded })
}

/// Tile and block sizes.
fn blocks(nest: &Nest, r: &TileRoles, m: &Cpu) -> Params {
    let known = |p: &Poly, or: i64| p.known().unwrap_or(or).max(1);
    let (rows, lanes) = (known(&nest.extents[r.rows], 1024), r.lanes as i64);
    let width = known(&nest.extents[r.vector], 1024);
    let k = known(
        &Poly::product(
            (0..nest.extents.len()).filter(|d| nest.reduction[*d]).map(|d| &nest.extents[d]),
        ),
        1024,
    );
    // Vector registers: 32 with 512 bits, 16 with less; accumulators take most of them.
    let registers = if m.bits == 512 { 32 } else { 16 };
    let vectors = (width / lanes).max(1);
    // A set is 8- or 12-way associative: more rows, with the columns, would evict each other.
    let places = if r.crowded { 8 } else { registers };
    let narrow = r.crowded && r.pack.is_some() && registers == 32 && vectors >= 4;
    let n = if rows == 1 || narrow { 4 } else { 2 }.min(vectors);
    let fit = (registers - 4) / n - if registers == 32 { 2 } else { 0 };
    let most = if narrow { 6 } else { fit.min(places) }.clamp(1, rows.max(1));
    // Few rows are divided evenly; with many, the remainder does not matter.
    let even = (most.min(FMA_ROWS)..=most).rev().find(|t| rows % t == 0 && rows <= 256);
    let tile = even.unwrap_or(most);
    // A block of rows stays in half of the L2 cache while the columns stream past.
    let bytes = 4 * k;
    let per_column = if r.columns == r.vector { 1 } else { width };
    let columns = known(&nest.extents[r.columns], 1024);
    let outer = known(&Poly::product(r.outer.iter().map(|d| &nest.extents[*d])), 4);
    let mut m_block = (m.l2 / 2 / bytes / tile * tile).clamp(tile, 48 * tile);
    if r.pack.is_some() {
        // Packing is profitable when many rows share a panel.
        m_block = PACKED_ROWS / tile * tile;
    }
    let mut n_block = (m.l2 / 2 / bytes / per_column).clamp(1, 1024 / per_column.min(1024));
    if r.columns == r.vector {
        n_block = (n_block / (n * lanes) * n * lanes).max(n * lanes);
    }
    let tasks = |m_block: i64, n_block: i64| {
        outer * ((rows + m_block - 1) / m_block) * ((columns + n_block - 1) / n_block)
    };
    // Enough tasks for all threads, as long as each has work.
    while r.pack.is_none()
        && tasks(m_block, n_block) < 4 * m.threads
        && m_block > tile
        && rows > tile
    {
        m_block = (m_block / 2 / tile * tile).max(tile);
    }
    while tasks(m_block, n_block) < 4 * m.threads && n_block > 1 && n_block * per_column > n * lanes
    {
        n_block = (n_block / 2).max(1);
        if per_column == 1 {
            n_block = (n_block / (n * lanes) * n * lanes).max(n * lanes);
        }
    }
    Params {
        bits: m.bits as usize,
        m: tile as usize,
        m_block: m_block as usize,
        n: n as usize,
        n_block: n_block as usize,
        pack: r.pack.is_some(),
    }
}

/// The roles of a parallel nest that stores along one dimension and loads along another. Blocks of
/// both keep cache lines of both in the caches.
pub fn transposition(k: &Kernel, plan: &NestPlan, nest: &Nest, bits: usize) -> Option<TileRoles> {
    let vector = vector_dim(k, plan, nest, 0)?;
    let reads: Vec<&Access> =
        nest.all().filter_map(|s| k.stages.get(s)).flat_map(|s| s.reads()).collect();
    let across = |d: &usize| {
        let along = |a: &&Access| {
            a.at.coefficient(*d).known() == Some(1)
                && !matches!(a.at.coefficient(vector).known(), Some(0 | 1))
        };
        *d != vector && reads.iter().any(along)
    };
    let rows =
        (0..nest.extents.len()).rev().find(across).filter(|_| !nest.reduction.contains(&true))?;
    let outer = (0..nest.extents.len()).filter(|d| *d != rows && *d != vector).collect();
    let width = nest.extents[vector]
        .known()
        .map_or(usize::MAX, |n| (n.max(1) as usize).next_power_of_two());
    Some(TileRoles {
        vector,
        lanes: lanes(k, nest, bits).min(width),
        rows,
        columns: vector,
        outer,
        pack: None,
        crowded: false,
    })
}
