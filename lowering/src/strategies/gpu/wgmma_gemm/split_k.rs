//! Products whose depth the blocks of a cluster share: each sums a part of it, is sent what the
//! others have of some rows of the tile, and finishes these. That is what few tiles with a long
//! depth want, which would leave most multiprocessors idle.
use crate::{
    analysis::{Nest, Poly},
    strategies::gpu::wgmma_gemm::{
        Params, Product, ROW,
        tiles::{PROCESSORS, TILES, Tile},
    },
};
use kiln_dialects::Result;

/// Blocks of a cluster; more than 8 not every card takes.
pub const PARTS: &[usize] = &[1, 2, 4, 8];
/// Rows of a tile that a warp multiplies: the least that a block can finish.
pub const ROWS: usize = 16;
/// Bytes of the barrier at which sums arrive.
pub const BARRIER: usize = 8;
/// Most rows of a tile, of which a group of warps has one block of 64, and most columns: with more,
/// the others' sums and its own do not fit a thread's registers.
const MOST: usize = 128;
/// Bytes that a multiprocessor gets from others' shared memory in a clock when all do.
const SENT: f64 = 17.0;
/// Clocks in which a cluster's blocks wait for each other, and by which its launch is longer.
const MEET: f64 = 2500.0;

/// Clusters that surely run at once: they do not cross the groups of up to 18 multiprocessors of
/// which the chip consists, and in which not as many work on each card. Of 32 clusters of 4, and of
/// 16 of 8, some had to wait.
pub fn clusters(parts: usize) -> usize {
    match parts {
        1 | 2 => PROCESSORS / parts,
        4 => 28,
        _ => 13,
    }
}

/// Clocks that putting a tile's sums together takes.
pub fn exchange(m: usize, n: usize, parts: usize) -> f64 {
    if parts == 1 { 0.0 } else { MEET + (4 * m * n * (parts - 1) / parts) as f64 / SENT }
}

/// Whether so many blocks can share a tile of so many rows and columns.
fn shares(m: usize, n: usize, parts: usize) -> bool {
    PARTS.contains(&parts) && m.max(n) <= MOST && parts <= m / ROWS
}

/// By how many blocks each of the model's tiles may be shared: a block has a multiprocessor to
/// itself then.
pub fn shared() -> impl Iterator<Item = (&'static Tile, usize)> {
    let several = |tile: &'static Tile| {
        PARTS.iter().filter(|parts| **parts > 1).map(move |parts| (tile, *parts))
    };
    TILES
        .iter()
        .flat_map(several)
        .filter(|((m, n, _, resident), parts)| *resident == 1 && shares(*m, *n, *parts))
}

/// Whether the model takes parts for tiles of so many rows and columns, by so many blocks of a
/// multiprocessor, over so many steps.
pub fn worth([m, n]: [usize; 2], resident: usize, steps: i64, parts: usize) -> bool {
    parts == 1 || (shares(m, n, parts) && resident == 1 && steps >= 2 * parts as i64)
}

/// Whether blocks can share tiles of these sizes.
pub fn possible(s: &Params) -> Result<()> {
    let (m, n, parts) = (s.block_m, s.block_n, s.split_k);
    if parts == 1 {
        return Ok(());
    }
    // A block's own sums and those that it is sent lie where the ring was.
    let room = 8 * m * n <= s.stages * (m + n) * ROW;
    if !shares(m, n, parts) || !room || s.ctas_per_sm != 0 {
        let text = "parts of 1, 2, 4 or 8 are possible, more than 1 of at most 128 rows, 16 for each part, and 128 columns, whose sums fit half of the ring, and with resident = 0";
        return Err(format!(
            "has a schedule of parts = {parts}, m = {m}, n = {n}, resident = {}; {text}",
            s.ctas_per_sm
        )
        .into());
    }
    Ok(())
}

/// Whether the blocks of a cluster can share a product's depth: each has a step at least, and there
/// are as many blocks as are wanted, which only known sizes say.
pub fn fits(s: &Params, nest: &Nest, p: &Product) -> Result<()> {
    let parts = s.split_k;
    if parts == 1 {
        return Ok(());
    }
    if !known(nest) || p.prologue.is_some() || p.steps(nest) < parts as i64 {
        return Err(format!(
            "has a schedule of parts = {parts}, which wants known sizes, {parts} steps of the depth, and operands that lie in memory"
        ).into());
    }
    Ok(())
}

/// Whether there is something to compute, and it is known how much.
pub fn known(nest: &Nest) -> bool {
    Poly::product(nest.extents.iter()).known().is_some_and(|n| n > 0)
}
