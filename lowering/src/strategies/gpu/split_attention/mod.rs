//! Attention by the instructions of a warp, with its keys shared out: to the warps of a block, and
//! on Hopper to the blocks of a cluster as well. That is what few queries want, of which a block of
//! the strategy `attention` would be mostly empty, and what chips before Hopper have.
//!
//! Query heads that read one key head are rows of one tile, as far as there is room: keys and
//! values are then read once for all of them.
pub(crate) mod combine;
pub(crate) mod emit;

use crate::{
    analysis::{Attention, Kernel, Poly},
    strategies::{
        cpu::choose::Schedule,
        gpu::{
            attention::{self, ROWS},
            choose::make,
            skinny_gemm,
            wgmma_gemm::{SHARED, tiles::PROCESSORS},
        },
    },
    target::launch::{CLUSTER, GRID, SHARED_BYTES, THREADS, WARP},
};
use kiln_dialects::{ir::*, value::DType};

/// Depth that four threads take at once: 16 bytes each.
pub const DEPTH: usize = 32;
/// Columns of values that eight threads take at once: 16 bytes each.
pub const COLUMNS: usize = 64;
/// Most blocks of a cluster that every card takes.
const PARTS: i64 = 8;
/// Blocks of a cluster where it is not known how many clusters there will be.
const USUAL: i64 = 4;
/// Keys that are taken for so many if it depends on the call.
const KEYS: i64 = 4096;
/// Elements of a query and a value together beyond which a thread has one row.
pub const LARGE: i64 = 384;
/// Rows for which this beats tiles of 128 queries.
const FEW: i64 = 64;
/// Bytes of shared memory that a block may ask for on the chip that has least, an sm_86 or sm_89.
const LEAST: usize = 99 << 10;

/// An attention of bf16 or f16 whose operands can be read 16 bytes at a time.
#[derive(Clone, Debug)]
pub struct Form {
    /// The stages.
    pub at: Attention,
    /// The element of queries, keys and values.
    pub element: DType,
    /// How many query heads are rows of one tile.
    pub heads: i64,
}

impl Form {
    /// What a kernel is.
    pub fn of(k: &Kernel) -> Option<Form> {
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
        wide.then_some(Form { at, element, heads })
    }
    /// Loops around tiles: those around queries without that over stacked heads.
    pub fn around(&self) -> usize {
        self.at.outer - usize::from(self.heads > 1)
    }
    /// How many rows there are for each place around, and how many such places.
    fn sizes(&self, k: &Kernel) -> Option<(Poly, Poly)> {
        let (outer, queries, _) = self.at.sizes(k)?;
        let stacked = Poly::product([queries, &Poly::number(self.heads)]);
        Some((stacked, Poly::product(outer.iter().take(self.around()))))
    }
    /// Elements of a row of sums in shared memory: rows then begin in different banks.
    pub fn line(&self) -> usize {
        (self.at.columns as usize).div_ceil(COLUMNS) * COLUMNS + 4
    }
    /// Bytes of shared memory: of each warp its sums, the greatest score and the sum of
    /// exponentials of each row, and the latter of the block.
    pub fn shared(&self, s: &Schedule) -> usize {
        let (rows, warps) = (s.get("rows"), s.get("warps"));
        1024 + 4 * (warps * rows * (self.line() + 2) + 2 * rows)
    }
    /// Whether tiles of so many queries as tensor cores of Hopper want are mostly empty.
    pub fn few(&self, k: &Kernel) -> bool {
        let queries = self.at.sizes(k).and_then(|(_, queries, _)| queries.known());
        queries.is_some_and(|n| n <= 16 && n * self.heads <= FEW)
    }
}

/// The schedule: `rows` of a tile, of whose keys `warps` of each of `parts` blocks take `keys` at a
/// time, in turn.
fn choose(k: &Kernel, form: &Form, clusters: bool) -> Option<Schedule> {
    let (rows, around) = form.sizes(k)?;
    let widest = form.at.depth.max(form.at.columns);
    // A thread has registers for two rows unless these are long.
    let tile = if rows.known().is_some_and(|n| n <= 8) || form.at.depth + form.at.columns > LARGE {
        8
    } else {
        16
    };
    let warps = if widest > 128 { 4 } else { 8 };
    let keys = if widest > 128 || (widest > 64 && tile > 8) { 16 } else { 32 };
    let tiles =
        rows.known().zip(around.known()).map(|(n, around)| around * ((n + tile - 1) / tile));
    let (_, _, count) = form.at.sizes(k)?;
    let steps = (count.known().unwrap_or(KEYS) + keys - 1) / keys;
    let mut parts = if clusters {
        tiles.map_or(USUAL, |n| (2 * PROCESSORS as i64 / n.max(1)).clamp(1, PARTS))
    } else {
        1
    };
    parts = 1 << parts.ilog2();
    // Each warp has something to do.
    while parts > 1 && parts * warps > steps {
        parts /= 2;
    }
    Some(make(
        "split_attention",
        &[("keys", keys), ("parts", parts), ("rows", tile), ("warps", warps)],
    ))
}

/// Threads of a block, if the schedule is one that can be computed.
pub fn threads(s: &Schedule) -> Result<usize, String> {
    let (keys, parts, rows, warps) = (s.get("keys"), s.get("parts"), s.get("rows"), s.get("warps"));
    let power = |n: usize, most: usize| n.is_power_of_two() && n <= most;
    if ![16, 32, 48, 64].contains(&keys)
        || !power(parts, PARTS as usize)
        || ![8, 16].contains(&rows)
        || !power(warps, 32)
    {
        let text = "keys of 16 to 64, 1 to 8 parts, 8 or 16 rows, 1 to 32 warps are possible";
        return Err(format!(
            "has a schedule of keys = {keys}, parts = {parts}, rows = {rows}, warps = {warps}; {text}"
        ));
    }
    Ok(warps * WARP)
}

/// Schedules such a kernel, as its schedule says or, where `by_itself`, as is thought best; false
/// if it is none. `clusters`: whether the chip has them.
pub fn schedule(func: Op, k: &Kernel, by_itself: bool, clusters: bool) -> Result<bool, String> {
    let given = func
        .attr("kiln.schedule")
        .and_then(Attr::as_schedule)
        .is_some_and(|(strategy, _)| strategy == "split_attention");
    let Some(form) = Form::of(k).filter(|f| given || by_itself || f.few(k)) else {
        return if given {
            Err("has a schedule for attention, but is none whose rows can be read 16 bytes at a time".into())
        } else {
            Ok(false)
        };
    };
    if !given {
        let chosen = choose(k, &form, clusters).ok_or("has no loops")?;
        func.set_attr("kiln.schedule", chosen.attr(func.ctx()));
    }
    let s = crate::gpu::gpu_schedule::of(func)?;
    let (threads, bytes, parts) = (threads(&s)?, form.shared(&s), s.get("parts"));
    let most = if clusters { SHARED } else { LEAST };
    if bytes > most {
        return Err(format!(
            "has a schedule that takes {bytes} bytes of shared memory, more than the {most} of a block"
        ));
    }
    if parts > 1 {
        if !clusters {
            return Err(format!("has a schedule of {parts} parts, but the chip has no clusters"));
        }
        func.set_attr(CLUSTER, Attr::i64(func.ctx(), parts as i64));
    }
    let c = func.ctx();
    func.set_attr(THREADS, Attr::i64(c, threads as i64));
    func.set_attr(SHARED_BYTES, Attr::i64(c, bytes as i64));
    func.set_attr(GRID, grid(k, &form, &s)?);
    Ok(true)
}

/// A block for each part of each tile. A launch of no blocks would be one of a single block, which
/// is no cluster: where sizes depend on the call there is a cluster more.
fn grid(k: &Kernel, form: &Form, s: &Schedule) -> Result<Attr, String> {
    let block = k.func.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
    let sizes: Vec<Value> = block.args().into_iter().filter(|a| a.ty().is_index()).collect();
    let (rows, around) = form.sizes(k).ok_or("has no loops")?;
    let parts = s.get("parts");
    let known = rows.known().zip(around.known()).is_some_and(|(a, b)| a > 0 && b > 0);
    let more = if parts == 1 || known { 0 } else { 1 };
    let text = |p: &Poly| crate::strategies::gpu::common::grid::poly(p, &sizes);
    let tiles = text(&rows).zip(text(&around)).map(|(rows, around)| {
        format!("{parts} * (({around}) * (({rows}) ceildiv {}) + {more})", s.get("rows"))
    });
    crate::strategies::gpu::common::grid::map(
        k.func.ctx(),
        &[tiles.unwrap_or_else(|| (parts * ROWS).to_string())],
        sizes.len(),
    )
}
