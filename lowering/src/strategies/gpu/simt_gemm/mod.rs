//! Products of f32 by fused multiply-adds, whose tiles are copied to a ring in shared memory while
//! threads multiply: no tensor core, all digits of f32.
pub(crate) mod emit;

use crate::{
    analysis::{Access, Kernel, Nest, Plan, Poly, Role},
    gpu::gpu_schedule::{USUAL, up},
    strategies::{
        cpu::choose::Schedule,
        gpu::{
            choose::make,
            common::roles::{Roles, contraction},
            mma_gemm::SHARED,
            wgmma_gemm::tiles::PROCESSORS,
        },
    },
    target::launch::WARP,
};
use kiln_dialects::{ir::walk, value::DType};

/// Elements of 16 bytes: what a thread reads of shared memory at once.
pub const UNIT: usize = 4;
/// Threads of a warp down and across its part of a tile: they read the fewest different addresses
/// of both operands.
pub const LANES: (usize, usize) = (4, 8);
/// Registers of a multiprocessor.
const REGISTERS: usize = 1 << 16;
/// Products and sums that a multiprocessor does in a clock.
const RATE: f64 = 128.0;
/// Warps of a multiprocessor with which half of that is reached: fewer do not hide what an
/// instruction waits for.
const HALF: f64 = 3.0;
/// Clocks of a tile in which nothing is multiplied.
const WAIT: f64 = 2000.0;
/// Elements of a tile that its epilogue finishes in a clock.
const FINISHED: f64 = 16.0;
/// Rows, rows of a thread, columns, columns of a thread, the largest one first.
pub const TILES: &[(usize, usize, usize, usize)] = &[
    (128, 8, 128, 8),
    (128, 8, 64, 8),
    (64, 8, 128, 8),
    (64, 8, 64, 8),
    (64, 4, 64, 8),
    (64, 4, 64, 4),
    (32, 4, 64, 4),
    (32, 4, 32, 4),
];

/// An operand: rows, or columns, by depth.
#[derive(Clone, Debug)]
pub struct Side {
    /// Where it lies.
    pub access: Access,
    /// The distance of neighbouring rows, or columns, in elements.
    pub across: Poly,
    /// The distance of neighbours in depth.
    pub deep: Poly,
    /// Whether 16 bytes along the rows, or columns, can be copied at once.
    pub wide: bool,
}

impl Side {
    /// Whether neighbours in depth lie side by side.
    pub fn is_deep(&self) -> bool {
        self.deep.known() == Some(1)
    }
}

/// A sum of products of f32.
#[derive(Clone, Debug)]
pub struct Product {
    /// The nest's dimensions; rows, columns and depth are one each.
    pub roles: Roles,
    /// Rows by depth.
    pub left: Side,
    /// Columns by depth.
    pub right: Side,
}

/// The product that a kernel is, if its addresses are linear.
pub fn product(k: &Kernel, plan: &Plan) -> Option<Product> {
    let nest = plan.main()?;
    let roles = contraction(k, plan)?;
    let stage = k.stages.get(roles.stage)?;
    let ([row], [column], [depth]) =
        (roles.rows.as_slice(), roles.columns.as_slice(), roles.depth.as_slice())
    else {
        return None;
    };
    let side = |a: &Access, across: usize| {
        let buffer = k.buffers.get(a.buffer)?;
        let linear = a.at.rest.is_empty()
            && matches!(buffer.role, Role::Input(_))
            && buffer.element.dtype() == Ok(DType::F32);
        let (beside, deep) = (a.at.coefficient(across), a.at.coefficient(*depth));
        let units = |p: &Poly| p.multiple_of(UNIT as i64);
        let others = a.at.dims.iter().all(|(d, p)| *d == across || units(p));
        let wide = beside.known() == Some(1) && others && units(&a.at.constant);
        linear.then(|| Side { access: a.clone(), across: beside, deep, wide })
    };
    let f32 = stage.outputs.first()?.combine.as_ref()?.op.result(0).ty().dtype() == Ok(DType::F32);
    // Small results are worth no tile.
    let fits = |d: usize| nest.extents.get(d)?.known().is_none_or(|n| n >= 8).then_some(());
    fits(*row).and(fits(*column))?;
    let (left, right) = (side(stage.inputs.first()?, *row)?, side(stage.inputs.get(1)?, *column)?);
    f32.then_some(Product { roles, left, right })
}

/// Elements between neighbours in depth of a tile so wide, in shared memory: 16 bytes more, so that
/// copies of 8 in depth of 4 rows are all in other banks.
pub fn pitch(across: usize) -> usize {
    across + UNIT
}

/// Bytes of a slot of the ring.
pub fn slot(s: &Schedule) -> usize {
    4 * s.get("depth") * (pitch(s.get("m")) + pitch(s.get("n")))
}

/// Bytes of shared memory that a launch asks for.
pub fn shared(s: &Schedule) -> usize {
    1024 + s.get("stages") * slot(s)
}

/// Threads of a block, if the schedule is one that can be computed.
pub fn threads(s: &Schedule) -> Result<usize, String> {
    let (m, n, depth, stages, each) = (
        s.get("m"),
        s.get("n"),
        s.get("depth"),
        s.get("stages"),
        [s.get("m_each"), s.get("n_each")],
    );
    let power = [m, n].iter().all(|x| x.is_power_of_two() && (32..=256).contains(x))
        && each.iter().all(|e| [4, 8].contains(e));
    let (down, over) = (m / each[0].max(1), n / each[1].max(1));
    let all = down * over;
    // Each thread copies as many elements as any other, 16 bytes at a time or one by one.
    let copies = [8, 16, 32].contains(&depth)
        && [m, n].iter().all(|x| (x * depth).is_multiple_of(UNIT * all) && (all / 8) <= *x);
    let unroll = s.get("unroll");
    let fits = (2..=4).contains(&stages)
        && shared(s) <= SHARED
        && unroll > 0
        && depth.is_multiple_of(unroll);
    // Beside the sums there have to be registers for what is multiplied, and for addresses.
    let room = s.get("resident").max(1) * all * (each[0] * each[1] + 48) <= REGISTERS;
    let lanes =
        down.is_multiple_of(LANES.0) && over.is_multiple_of(LANES.1) && (WARP..=512).contains(&all);
    let text = "m and n from 32 to 256 and depth from 8 to 32, powers of two, m_each and n_each of 4 or 8, threads in warps of 4 by 8 that all copy alike, 2 to 4 stages in 99 KiB, unroll that divides depth, and as many resident blocks as have registers are possible";
    if power && copies && fits && lanes && room {
        Ok(all)
    } else {
        Err(format!(
            "has a schedule of m = {m}, n = {n}, m_each = {}, n_each = {}, depth = {depth}, stages = {stages}, unroll = {unroll}, resident = {}; {text}",
            each[0],
            each[1],
            s.get("resident")
        ))
    }
}

/// The schedule: the tile with which the multiprocessor that has most of them is thought to be done
/// first.
pub fn choose(k: &Kernel, nest: &Nest, p: &Product) -> Schedule {
    let size = |dims: &[usize]| {
        Poly::product(dims.iter().map(|d| &nest.extents[*d])).known().unwrap_or(USUAL).max(1)
    };
    let (batch, rows, columns, depth) =
        (size(&p.roles.batch), size(&p.roles.rows), size(&p.roles.columns), size(&p.roles.depth));
    // Long stages behind the sums need registers that so many sums leave to nobody.
    let after: usize =
        nest.after.iter().filter_map(|s| k.stages.get(*s)).map(|s| walk(s.op).len()).sum();
    // Blocks that share a multiprocessor, so that one multiplies while another waits: 128 registers
    // for each thread, or 170. Sizes and strides that depend on the call take registers, as do
    // later stages.
    let dims = [&p.roles.batch, &p.roles.rows, &p.roles.columns, &p.roles.depth];
    let open = dims.iter().flat_map(|d| d.iter()).any(|d| nest.extents[*d].known().is_none());
    let most = if open || after > 0 { 384 } else { 512 };
    let resident = |(m, m_each, n, n_each): &(usize, usize, usize, usize)| {
        (most / (m * n / (m_each * n_each))).max(1)
    };
    let time = |tile: &(usize, usize, usize, usize)| {
        let (m, m_each, n, n_each) = tile;
        let tiles = batch.saturating_mul(up(rows, *m)).saturating_mul(up(columns, *n));
        let turns = up(tiles, PROCESSORS);
        let warps =
            ((m / m_each) * (n / n_each) / WARP) as f64 * turns.min(resident(tile) as i64) as f64;
        // Products of a thread for each 16 bytes that it reads of shared memory: at 16 reading and
        // multiplying take as long.
        let read = ((m_each * n_each) as f64 / (m_each + n_each) as f64 / 4.0).min(1.0);
        let rate = RATE * read * warps / (warps + HALF);
        turns as f64 * ((m * n) as f64 * (depth as f64 / rate + 1.0 / FINISHED) + WAIT)
    };
    let possible = TILES.iter().filter(|t| after < 24 || t.1 * t.3 < 64);
    let best = possible.map(|tile| (time(tile), *tile)).min_by(|a, b| a.0.total_cmp(&b.0));
    let tile = best.map_or(TILES[TILES.len() - 1], |(_, tile)| tile);
    let ((m, m_each, n, n_each), resident) = (tile, resident(&tile));
    let all = [
        ("depth", 16),
        ("m", m),
        ("m_each", m_each),
        ("n", n),
        ("n_each", n_each),
        ("resident", resident),
        ("stages", 2),
        ("unroll", 16),
    ];
    make("fma", &all.map(|(name, v)| (name, v as i64)))
}
