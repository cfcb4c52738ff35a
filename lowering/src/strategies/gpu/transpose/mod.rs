//! Tiled transposes: pointwise nests whose reads are contiguous along another dimension than their
//! writes. Tiles of the operands go through shared memory, so that global memory is accessed in
//! whole sectors on both sides.
//!
//! Profitable where this reduces the sectors that a warp requests by a quarter. A strided read of a
//! single element costs 32 bytes, even if the next element of its row is read soon enough to hit a
//! cache. A short dimension, and one whose neighbours the same warp reads anyway, stay in `loops`.
pub(crate) mod emit;

use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Poly, Role},
    strategies::{
        Device, Emission, Launch, Match, Nesting, Parameters, Request, Strategy,
        doubled_and_halved,
        gpu::common::{
            assumed,
            grid::grid,
            vector_width::{aligned_width, bytes},
        },
    },
    target::launch::{SHARED, WARP},
};
use kiln_dialects::Result;

/// Nests whose reads are contiguous along another dimension than their writes.
pub struct Transpose;

/// Tile sizes.
#[derive(Clone, Debug, Parameters)]
pub struct Params {
    /// Elements of a tile along the dimension that is contiguous where it is read
    #[parameter(PowerOfTwo(16, 128))]
    pub tile_rows: usize,
    /// Elements of a tile along the dimension that is contiguous where it is written
    #[parameter(PowerOfTwo(16, 128))]
    pub tile_columns: usize,
    /// Threads of a CTA
    #[parameter(PowerOfTwo(32, 1024))]
    pub threads: usize,
    /// Elements of a vector access
    #[parameter(PowerOfTwo(1, 16))]
    pub vector: usize,
}

impl Strategy for Transpose {
    type Params = Params;
    const NAME: &'static str = "transpose";
    const DEVICE: Device = Device::Gpu;
    const SUMMARY: &'static str =
        "Transposes by tiles in shared memory, elementwise work on both sides";
    const NESTING: Nesting = Nesting::GPU;
    const MISMATCH: &'static str = "has no operand in another dimension order than its result";

    fn matches(r: &Request<'_>) -> Match<Params> {
        Match::first(params(r.kernel, r.plan))
    }
    fn launch(r: &Request<'_>, p: &Params) -> Result<Launch> {
        let grid = grid(r.kernel, |e| {
            let t = transposed_nest(r.kernel, r.plan)?;
            let n = r.plan.nests.get(t.nest)?;
            let (down, over) = (e.product(n, &[t.load_dim])?, e.product(n, &[t.store_dim])?);
            Some(format!(
                "({}) * (({down}) ceildiv {}) * (({over}) ceildiv {})",
                e.product(n, &t.outer(n))?,
                p.tile_rows,
                p.tile_columns
            ))
        })?;
        Ok(Launch { grid: Some(grid), threads: p.threads, ..Launch::default() })
    }
    fn candidates(p: &Params) -> Vec<Params> {
        let square = |n: &i64| p.with(&[("tile_rows", *n), ("tile_columns", *n)]);
        let mut all: Vec<Params> = [32, 64, 128].iter().filter_map(square).collect();
        all.extend(doubled_and_halved(p, &["tile_rows", "tile_columns", "threads"]));
        all
    }
    fn emit(e: &Emission<'_, '_>, p: &Params) -> Result<()> {
        emit::emit(e.c, e.scope, e.plan, p, p.threads)
    }
}

/// A nest with transposed operands.
#[derive(Clone, Debug)]
pub struct TransposedNest {
    /// Index of the nest.
    pub nest: usize,
    /// The contiguous dimension of the results.
    pub store_dim: usize,
    /// The contiguous dimension of the transposed operands.
    pub load_dim: usize,
    /// Transposed operands, most bytes first.
    pub operands: Vec<Access>,
}

/// Bytes of a memory sector, the least that a memory access transfers.
const SECTOR: i64 = 32;
/// Least extent of both dimensions.
const MIN_EXTENT: i64 = 8;
/// Threads per CTA.
const THREADS: i64 = 256;
/// Least and greatest extent of a tile.
const SIZES: (usize, usize) = (16, 128);

/// The largest nest of a kernel that can be tiled as a transpose.
pub fn transposed_nest(k: &Kernel, plan: &NestPlan) -> Option<TransposedNest> {
    let size = |n: &Nest| Poly::product(&n.extents).known().unwrap_or(i64::MAX);
    let all = (0..plan.nests.len()).filter(|_| !plan.dependent).filter_map(|n| of(k, plan, n));
    all.max_by_key(|t| (size(&plan.nests[t.nest]), std::cmp::Reverse(t.nest)))
}

fn of(k: &Kernel, plan: &NestPlan, number: usize) -> Option<TransposedNest> {
    let nest = &plan.nests[number];
    if nest.reduction.contains(&true) || nest.split.is_some() || !nest.after.is_empty() {
        return None;
    }
    let stages = || nest.stages.iter().filter_map(|s| k.stages.get(*s));
    let real = |a: &&Access| !plan.forwarded.get(a.buffer).copied().unwrap_or(false);
    let beside =
        |a: &Access, d: usize| a.at.coefficient(d).known() == Some(1) && !a.at.in_division(d);
    let written: Vec<&Access> =
        stages().flat_map(|s| &s.outputs).map(|o| &o.access).filter(real).collect();
    let over = (0..nest.extents.len())
        .rev()
        .find(|d| !written.is_empty() && written.iter().all(|a| beside(a, *d)))?;
    let input =
        |a: &Access| matches!(k.buffers.get(a.buffer).map(|b| b.role), Some(Role::Input(_)));
    let mut all: Vec<(usize, Access)> = vec![];
    for a in stages().flat_map(|s| s.reads()).filter(real).filter(|a| input(a)) {
        // An operand that is constant along the contiguous results is read once for them, and a
        // reversed one (stride -1) is contiguous.
        let step = a.at.coefficient(over);
        if step.is_zero() || a.at.in_division(over) || step.known().is_some_and(|n| n.abs() == 1) {
            continue;
        }
        let Some(down) = (0..nest.extents.len()).find(|d| *d != over && beside(a, *d)) else {
            continue;
        };
        if !all.contains(&(down, a.clone())) {
            all.push((down, a.clone()));
        }
    }
    let weight = |down: usize| {
        all.iter().filter(|(d, _)| *d == down).map(|(_, a)| bytes(k, a)).sum::<usize>()
    };
    let down = all.iter().map(|(d, _)| *d).rev().max_by_key(|d| weight(*d))?;
    let mut transposed: Vec<Access> =
        all.into_iter().filter(|(d, _)| *d == down).map(|(_, a)| a).collect();
    transposed.sort_by_key(|a| std::cmp::Reverse(bytes(k, a)));
    Some(TransposedNest { nest: number, store_dim: over, load_dim: down, operands: transposed })
}

impl TransposedNest {
    /// The operands whose tiles fit shared memory under these parameters; the rest is read from
    /// global memory directly.
    pub fn tiles(&self, k: &Kernel, p: &Params) -> Result<Vec<Access>> {
        let mut left = SHARED as usize;
        let mut tiles = vec![];
        for a in &self.operands {
            let size = p.tile_rows * p.tile_columns * bytes(k, a);
            if size <= left {
                left -= size;
                tiles.push(a.clone());
            }
        }
        if tiles.is_empty() {
            Err(format!("has a schedule whose tiles do not fit in {SHARED} bytes of shared memory")
                .into())
        } else {
            Ok(tiles)
        }
    }
    /// Vector width of a transposed operand's loads along `load_dim`.
    pub fn read_width(&self, k: &Kernel, plan: &NestPlan, a: &Access) -> usize {
        let size = &plan.nests[self.nest].extents[self.load_dim];
        let mut w = if k.pads.contains_key(&a.buffer) {
            1
        } else {
            aligned_width(k, self.load_dim, &[a], &[])
        };
        while w > 1 && !size.multiple_of(w as i64) {
            w /= 2;
        }
        w
    }
    /// Vector width along `store_dim`, of stores and of the operands that are not transposed.
    pub fn write_width(&self, k: &Kernel, plan: &NestPlan) -> usize {
        let nest = &plan.nests[self.nest];
        let stages = || nest.stages.iter().filter_map(|s| k.stages.get(*s));
        let real = |a: &&Access| !plan.forwarded.get(a.buffer).copied().unwrap_or(false);
        let reads = stages().flat_map(|s| s.reads());
        let all: Vec<&Access> = reads
            .chain(stages().flat_map(|s| &s.outputs).map(|o| &o.access))
            .filter(real)
            .collect();
        if stages().any(|s| !s.captured.is_empty())
            || all.iter().any(|a| k.pads.contains_key(&a.buffer))
        {
            return 1;
        }
        let (tiles, straight): (Vec<&Access>, Vec<&Access>) =
            all.into_iter().partition(|a| self.operands.contains(a));
        let mut w = aligned_width(k, self.store_dim, &straight, &tiles);
        while w > 1 && !nest.extents[self.store_dim].multiple_of(w as i64) {
            w /= 2;
        }
        w
    }
    /// The loops around a tile.
    pub fn outer(&self, nest: &Nest) -> Vec<usize> {
        (0..nest.extents.len()).filter(|d| ![self.store_dim, self.load_dim].contains(d)).collect()
    }
}

/// Sectors per 1024 elements for contiguous runs of `run` elements.
fn sectors(run: i64, bytes: i64) -> i64 {
    let run = run.max(1);
    ((run * bytes + SECTOR - 1) / SECTOR) * 1024 / run
}

/// The parameters, if the cost model finds tiling profitable.
fn params(k: &Kernel, plan: &NestPlan) -> Option<Params> {
    let t = transposed_nest(k, plan)?;
    let nest = &plan.nests[t.nest];
    let size = |d: usize| nest.extents[d].known().unwrap_or(assumed::TRANSPOSE);
    let (over, down) = (size(t.store_dim), size(t.load_dim));
    let written = || {
        nest.stages
            .iter()
            .filter_map(|s| k.stages.get(*s))
            .flat_map(|s| &s.outputs)
            .map(|o| &o.access)
    };
    let written = || written().filter(|a| !plan.forwarded.get(a.buffer).copied().unwrap_or(false));
    let least = t.operands.iter().chain(written()).map(|a| bytes(k, a)).min()?;
    let all: usize = t.operands.iter().map(|a| bytes(k, a)).sum();
    let side = if least > 2 || all * 64 * 64 > SHARED as usize { 32 } else { 64 };
    let fit =
        |n: i64| (n.max(1) as u64).next_power_of_two().clamp(SIZES.0 as u64, side as u64) as i64;
    // If one extent is short, the other tile dimension grows.
    let (mut tall, mut wide) = (fit(down), fit(over));
    while tall * wide < side * side && wide < (SIZES.1 as i64).min(over) {
        wide *= 2;
    }
    while tall * wide < side * side && tall < (SIZES.1 as i64).min(down) {
        tall *= 2;
    }
    // In `loops`, neighbouring threads of a warp step along `store_dim`, then along the loop
    // outside it.
    let rows = if t.outer(nest).last().is_some_and(|d| *d > t.load_dim) {
        1
    } else {
        (WARP as i64 / over.max(1)).min(down)
    };
    let reads = |run: i64| t.operands.iter().map(|a| sectors(run, bytes(k, a) as i64)).sum::<i64>();
    let writes = |run: i64| written().map(|a| sectors(run, bytes(k, a) as i64)).sum::<i64>();
    let (with, without) =
        (reads(down.min(tall)) + writes(over.min(wide)), reads(rows) + writes(over));
    let vector = t.write_width(k, plan) as i64;
    let params = Params {
        tile_rows: tall as usize,
        tile_columns: wide as usize,
        threads: (tall * wide / vector).clamp(32, THREADS) as usize,
        vector: vector as usize,
    };
    let pays = over >= MIN_EXTENT && down >= MIN_EXTENT && 4 * without >= 5 * with;
    (pays && t.tiles(k, &params).is_ok()).then_some(params)
}
