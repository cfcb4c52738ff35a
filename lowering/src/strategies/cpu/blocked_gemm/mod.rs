//! Cache-blocked matrix products: roles of the dimensions, choice of instructions, and block sizes.
mod blocks;
mod emit;
mod microkernel;
mod packing;

use crate::{
    analysis::{Access, Init, Kernel, NestPlan, Output, Poly, Stage},
    strategies::{
        Bf16, Cpu, Device, Emission, Match, Nesting, Parameters, Request, Strategy,
        cpu::common::cache_lines::shares_sets,
    },
};
use kiln_dialects::{ir::*, value::DType};

/// f32 products with FMAs.
pub struct BlockedGemm;
/// bf16 products with AVX512-BF16 dot products (`vdpbf16ps`).
pub struct DotGemm;
/// bf16 products with AMX tiles.
pub struct AmxGemm;

/// Tile and block sizes.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Width of a vector register in bits
    #[parameter(OneOf(&[128, 256, 512]))]
    pub bits: usize,
    /// K of a block
    #[parameter(MultipleOf(32, 32, 1 << 20))]
    pub k_block: usize,
    /// Rows of a register tile
    #[parameter(Between(1, 64))]
    pub m: usize,
    /// Rows of a block, a multiple of m
    #[parameter(Between(1, 1 << 20))]
    pub m_block: usize,
    /// Vectors of columns of a register tile
    #[parameter(Between(1, 8))]
    pub n: usize,
    /// Columns of a block, a multiple of a vector or of a packed panel
    #[parameter(Between(1, 1 << 20))]
    pub n_block: usize,
    /// Whether the right operand is packed first
    #[parameter(Between(0, 1))]
    pub pack: bool,
}

const MISMATCH: &str = "is no matrix product of these elements";

impl Strategy for BlockedGemm {
    type Params = Params;
    const NAME: &'static str = "blocked_gemm";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Products of f32 in cache blocks, FMAs on register tiles";
    const NESTING: Nesting = Nesting::CPU;
    const MISMATCH: &'static str = MISMATCH;

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(choose(r, Unit::Fma))
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        nests(e, params, Unit::Fma)
    }
}

impl Strategy for DotGemm {
    type Params = Params;
    const NAME: &'static str = "dot_gemm";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Products of bf16 in cache blocks, AVX512-BF16 dot products";
    const NESTING: Nesting = Nesting::CPU;
    const MISMATCH: &'static str = MISMATCH;

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(choose(r, Unit::Dot))
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        nests(e, params, Unit::Dot)
    }
}

impl Strategy for AmxGemm {
    type Params = Params;
    const NAME: &'static str = "amx_gemm";
    const DEVICE: Device = Device::Cpu;
    const SUMMARY: &'static str = "Products of bf16 in cache blocks, AMX tiles";
    const NESTING: Nesting = Nesting::CPU;
    const MISMATCH: &'static str = MISMATCH;

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(choose(r, Unit::Amx))
    }
    fn emit(e: &Emission<'_, '_>, params: &Params) -> Result<()> {
        nests(e, params, Unit::Amx)
    }
}

fn choose(r: &Request<'_>, unit: Unit) -> Option<Params> {
    let p = product(r.kernel, r.plan)?;
    blocks(r.kernel, r.plan, &p, &r.cpu().ok()?).filter(|(u, _)| *u == unit).map(|(_, p)| p)
}

fn nests(e: &Emission<'_, '_>, params: &Params, unit: Unit) -> Result<()> {
    let threads = e.threads()?;
    e.plan
        .nests
        .iter()
        .try_for_each(|n| emit::emit(e.c, e.scope, e.plan, n, (unit, params), threads))
}

/// Instructions that multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// f32 FMAs.
    Fma,
    /// bf16 pair dot products (AVX512-BF16).
    Dot,
    /// bf16 tile products (AMX).
    Amx,
}

impl Unit {
    /// K per instruction: blocks are zero-padded to a multiple of it.
    pub const fn k(self) -> i64 {
        match self {
            Unit::Fma => 1,
            Unit::Dot => 2,
            Unit::Amx => 32,
        }
    }
    /// Bytes of an operand's element.
    pub const fn size(self) -> i64 {
        if matches!(self, Unit::Fma) { 4 } else { 2 }
    }
}

/// A matrix product, possibly batched.
#[derive(Clone, Debug)]
pub struct GemmRoles {
    /// The vectorised dimension (N).
    pub vector: usize,
    /// The dimension outside it, if the right matrix is stored in panels of columns.
    pub panels: Option<usize>,
    /// M: only the left matrix and the result have it; `None` if the left matrix has one row.
    pub rows: Option<usize>,
    /// K.
    pub k: usize,
    /// The inner part of K, of size 2, if the right matrix is stored in pairs of rows (VNNI
    /// layout).
    pub k_pair: Option<usize>,
    /// All other dimensions (batch).
    pub outer: Vec<usize>,
    /// The stage's input with the rows.
    pub left: usize,
    /// The stage's input with the columns.
    pub right: usize,
    /// Whether the operands are bf16, not f32.
    pub bf16: bool,
    /// The accumulators' initial scalar.
    pub start: Value,
    /// Whether the right matrix is stored in the order in which the microkernel reads it
    /// (prepacked).
    pub is_packed: bool,
}

impl GemmRoles {
    /// Stride of K in an input, in elements.
    pub fn step(&self, a: &Access) -> Poly {
        a.at.coefficient(self.k_pair.unwrap_or(self.k))
    }
    /// Whether rows of the left matrix, of this access, are contiguous.
    pub fn m_contiguous(&self, left: &Access) -> bool {
        self.rows.is_some_and(|d| left.at.coefficient(d).known() == Some(1))
    }
}

/// Matches a kernel that is a product, with or without epilogue stages.
pub fn product(k: &Kernel, plan: &NestPlan) -> Option<GemmRoles> {
    let [nest] = plan.nests.as_slice() else { return None };
    let [stage] = nest.stages.as_slice() else { return None };
    let s = k.stages.get(*stage)?;
    let ([out], [a, b]) = (s.outputs.as_slice(), s.factors()?) else { return None };
    let bf16 = multiplies(s)?;
    let Init::Fill(start) = out.init else { return None };
    let plain = [a, b].iter().all(|x| x.at.divisions.is_empty())
        && out.access.at.divisions.is_empty()
        && s.captured.is_empty();
    let size = |d: usize| nest.extents[d].known();
    let reductions: Vec<usize> = (0..nest.extents.len()).filter(|d| nest.reduction[*d]).collect();
    let (depth, pair) = match reductions.as_slice() {
        [d] => (*d, None),
        [d, p] if size(*p) == Some(2) => (*d, Some(*p)),
        _ => return None,
    };
    let real = |o: &&Output| !plan.forwarded.get(o.access.buffer).copied().unwrap_or(false);
    let written: Vec<&Output> =
        nest.all().filter_map(|s| k.stages.get(s)).flat_map(|s| &s.outputs).filter(real).collect();
    let parallel: Vec<usize> = (0..nest.extents.len()).filter(|d| !nest.reduction[*d]).collect();
    let contiguous = |d: &usize| {
        size(*d) != Some(1)
            && written.iter().all(|o| o.access.at.coefficient(*d).known() == Some(1))
    };
    let vector = parallel.iter().copied().find(contiguous)?;
    let (left, right) = match (a.at.uses(vector), b.at.uses(vector)) {
        (false, true) => (0, 1),
        (true, false) => (1, 0),
        _ => return None,
    };
    let (l, r) = (&s.inputs[left], &s.inputs[right]);
    let rows = parallel.iter().copied().filter(|d| l.at.uses(*d) && !r.at.uses(*d));
    let rows = rows.max_by_key(|d| (size(*d).unwrap_or(1024).min(64), *d));
    let split = nest.split.as_ref().map(|(outer, inner, _)| (*outer, *inner));
    let panels =
        parallel.iter().copied().filter(|d| *d != vector && r.at.uses(*d) && !l.at.uses(*d)).max();
    // Panels of columns are contiguous in the result.
    let width = size(vector);
    let panels = panels.filter(|d| {
        let whole =
            written.iter().all(|o| o.access.at.coefficient(*d).known() == width && width.is_some());
        whole && width.is_some_and(|w| w <= 64)
    });
    if !plain || split.is_some_and(|s| Some(s) != panels.map(|p| (p, vector))) {
        return None;
    }
    // It is a matrix product if each step of K takes one element of either operand.
    let steps = |x: &Access| match pair {
        Some(p) => x.at.coefficient(depth) == x.at.coefficient(p).times(&Poly::number(2)),
        None => true,
    };
    let pairs = pair.is_some_and(|p| {
        r.at.coefficient(p).known() == Some(1) && r.at.coefficient(vector).known() == Some(2)
    });
    let near = r.at.coefficient(depth).known().is_some_and(|c| c <= 128);
    let stored =
        if bf16 { pairs && near } else { r.at.coefficient(vector).known() == Some(1) && near };
    let stored = stored && fills(k, r, nest.extents.as_slice());
    if !steps(l) || (pair.is_some() && !(bf16 && stored)) || (panels.is_some() && !stored) {
        return None;
    }
    let outer: Vec<usize> = parallel
        .into_iter()
        .filter(|d| Some(*d) != rows && *d != vector && Some(*d) != panels)
        .collect();
    // Otherwise rows would be packed once per step of a dimension that only the columns have.
    if !bf16 && outer.iter().any(|d| !l.at.uses(*d)) {
        return None;
    }
    Some(GemmRoles {
        vector,
        panels,
        rows,
        k: depth,
        k_pair: pair,
        outer,
        left,
        right,
        bf16,
        start,
        is_packed: stored,
    })
}

/// Whether a stage accumulates products of its inputs in f32: of f32, or of bf16 extended to f32.
fn multiplies(s: &Stage) -> Option<bool> {
    let c = s.contraction().filter(|c| c.accumulator == DType::F32)?;
    match c.element()? {
        DType::F32 => Some(false),
        DType::BF16 => Some(true),
        _ => None,
    }
}

/// Whether a buffer holds all that its loops access, even in a partial last panel.
fn fills(k: &Kernel, a: &Access, extents: &[Poly]) -> bool {
    let Some(all) = k.buffers.get(a.buffer).and_then(|b| Poly::product(&b.sizes).known()) else {
        return false;
    };
    let reach = a.at.dims.iter().try_fold(a.at.constant.known(), |sum, (d, c)| {
        let more = c.known().filter(|c| *c >= 0)? * (extents.get(*d)?.known()? - 1);
        Some(sum.map(|s| s + more))
    });
    reach.flatten().is_some_and(|r| r < all)
}

/// Bytes of a thread's packed rows on its stack, and of its accumulators.
const MAX_STACK_BYTES: i64 = 384 << 10;

/// K above which `contraction` packs no panel of columns.
const MAX_PANEL_K: i64 = 2048;
/// Least K of f32 operands that are packed although `contraction` packs columns.
const LEAST_K: i64 = 64;
/// Least rows of them.
const LEAST_ROWS: i64 = 256;
/// Least rows if the left operand is M-contiguous.
const LEAST_M_CONTIGUOUS_ROWS: i64 = 32;
/// Most columns of a block.
const MAX_COLUMNS: i64 = 1 << 20;

/// Vectors of columns of an FMA tile with 32 registers. Three by eight rows load least for each FMA;
/// vectors that are left over take tiles of one, at about two thirds of the rate.
fn wide_tile(vectors: i64) -> i64 {
    let cost = |n: i64| vectors / n * n * if n == 3 { 20 } else { 21 } + vectors % n * 30;
    if cost(3) <= cost(2) { 3 } else { 2 }
}

/// Instructions and block sizes of a product. `None` if another strategy is better.
fn blocks(k: &Kernel, plan: &NestPlan, p: &GemmRoles, m: &Cpu) -> Option<(Unit, Params)> {
    let nest = plan.nests.first()?;
    let known = |d: usize| nest.extents[d].known();
    let rows = p.rows.map_or(Some(1), known);
    let columns = match p.panels {
        Some(d) => {
            nest.split.as_ref().map_or_else(|| Some(known(d)? * known(p.vector)?), |s| s.2.known())
        }
        None => known(p.vector),
    };
    let depth = known(p.k).map(|d| if p.k_pair.is_some() { 2 * d } else { d });
    let zero = p
        .start
        .def()
        .and_then(|d| d.attr("value"))
        .is_some_and(|v| v.to_string().starts_with("0.0"));
    let unit = match (p.bf16, m.bf16) {
        (false, _) => Unit::Fma,
        (true, Bf16::Amx) if zero && rows.is_none_or(|r| r >= 8) => Unit::Amx,
        (true, Bf16::Dot | Bf16::Amx) => Unit::Dot,
        (true, Bf16::Widen) => return None,
    };
    let lanes = m.bits / 32;
    let few = rows.is_some_and(|r| r < 16)
        || columns.is_some_and(|c| c < lanes)
        || depth.is_some_and(|d| d < 16);
    let stage = k.stages.get(*nest.stages.first()?)?;
    let left = &stage.inputs[p.left];
    // Packing transposes an M-contiguous operand in registers; `contraction` reads it element by
    // element.
    let m_contiguous = p.m_contiguous(left);
    let least = if m_contiguous { LEAST_M_CONTIGUOUS_ROWS } else { LEAST_ROWS };
    // Row strides that are multiples of an L1 way conflict while packing.
    let crowded = p.rows.is_some_and(|d| shares_sets(&left.at.coefficient(d), unit.size()));
    let worth = depth.is_none_or(|d| {
        let many = rows.is_none_or(|r| r >= least) && d >= LEAST_K;
        d > MAX_PANEL_K || (many && (m_contiguous || !crowded))
    });
    if unit == Unit::Fma && (few || p.is_packed || !worth) {
        return None;
    }
    let (rows, columns, outer) = (
        rows.unwrap_or(1024),
        columns.unwrap_or(1024),
        Poly::product(p.outer.iter().map(|d| &nest.extents[*d])),
    );
    let (outer, whole) = (outer.known().unwrap_or(4).max(1), depth);
    let depth = depth.unwrap_or(1024).max(1);
    let up = |n: i64, to: i64| (n + to - 1) / to * to;
    // The register tile.
    let registers = if m.bits == 512 { 32 } else { 16 };
    let vectors = ((columns + lanes - 1) / lanes).max(1);
    let n = match unit {
        Unit::Dot if rows == 1 => 4,
        Unit::Fma if registers == 32 => wide_tile(vectors),
        _ => 2,
    };
    let n = n.min(vectors);
    let width = known(p.vector).filter(|_| p.panels.is_some());
    let n = width.map_or(n, |w| n.min(w / lanes)).max(1);
    let spare = match (registers, n) {
        (32, 3) => 1,
        (32, _) => 2,
        _ => 0,
    };
    let most = ((registers - 4) / n - spare).clamp(1, rows.max(1));
    let even = (most.min(8)..=most).rev().find(|t| rows % t == 0 && rows <= 256);
    let tile = match unit {
        Unit::Amx if rows <= 16 => rows,
        Unit::Amx => 32,
        _ => even.unwrap_or(most),
    };
    // As few blocks of K as stay in the cache, of about equal size.
    let near = if unit == Unit::Fma { 384 } else { 1024 };
    let parts = if depth <= near + near / 2 { 1 } else { (depth + near - 1) / near };
    let k_block = up((depth + parts - 1) / parts, 32.max(unit.k()));
    let k_block = if whole.is_none() { near } else { k_block };
    // Packing columns costs relatively most with AMX, which multiplies the fastest: more rows share
    // each.
    let copy = if unit == Unit::Amx { MAX_STACK_BYTES * 4 / 3 } else { MAX_STACK_BYTES };
    let mut m_block = (copy / (k_block * unit.size()) / tile).max(1) * tile;
    // Blocks of rows of about equal size.
    let row_blocks = (rows + m_block - 1) / m_block;
    m_block = up((rows + row_blocks - 1) / row_blocks, tile).min(m_block);
    let group = n * lanes;
    let n_step = width.unwrap_or(group);
    // Accumulators of several blocks of K are in scratch; those of one are in registers.
    let sums = match unit {
        Unit::Fma if parts == 1 && whole.is_some() => i64::MAX,
        Unit::Fma | Unit::Amx => copy / 4,
        Unit::Dot => copy / 8,
    };
    let mut n_block = (sums.min(m_block * MAX_COLUMNS) / m_block / n_step).max(1) * n_step;
    n_block = n_block.min(up(columns, n_step));
    // Enough tasks for all threads, as long as each has work. Rows are divided last, since columns
    // are packed for each block of them.
    let tasks = |m_block: i64, n_block: i64| {
        outer * ((rows + m_block - 1) / m_block) * ((columns + n_block - 1) / n_block)
    };
    while tasks(m_block, n_block) < 4 * m.threads && n_block > n_step {
        n_block = up(n_block / 2, n_step);
    }
    // Transposes in registers take as many rows as a vector has lanes.
    let smallest = if m_contiguous && unit == Unit::Fma { up(lanes, tile) } else { tile };
    while tasks(m_block, n_block) < 2 * m.threads && m_block > smallest {
        m_block = up(m_block / 2, smallest);
    }
    // Packing columns is profitable if many rows read them, or if they are not contiguous.
    let contiguous = stage.inputs[p.right].at.coefficient(p.vector).known() == Some(1);
    let pack = !p.is_packed && (unit != Unit::Fma || !contiguous || rows >= 32);
    let params = Params {
        bits: m.bits as usize,
        k_block: k_block as usize,
        m: tile as usize,
        m_block: m_block as usize,
        n: n as usize,
        n_block: n_block as usize,
        pack,
    };
    Some((unit, params))
}
