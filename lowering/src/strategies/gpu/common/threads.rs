//! Thread and CTA indices, loops over a grid's tiles, and communication among the threads of a CTA.
use crate::{
    emit::{
        code::{Code, LoopBody},
        partials::CombineFn,
    },
    strategies::gpu::common::{cluster::RowCluster, ptx::Ptx},
    target::launch::WARP,
};
use kiln_dialects::ir::*;
use std::ops::Range;

/// Thread index in the CTA (`threadIdx.x`).
pub fn thread_id(c: Code) -> Result<Value> {
    gpu::thread_id(c, gpu::Dimension::X)
}
/// CTA index (`blockIdx.x`).
pub fn block_id(c: Code) -> Result<Value> {
    gpu::block_id(c, gpu::Dimension::X)
}
/// Number of CTAs (`gridDim.x`).
pub fn grid_dim(c: Code) -> Result<Value> {
    gpu::grid_dim(c, gpu::Dimension::X)
}
/// The loop of a persistent grid over `total` tiles: a CTA takes the one of its index, then every
/// `gridDim.x`-th. The trip count is uniform across the CTA, so that every thread reaches each
/// barrier.
pub fn for_each_tile(
    c: Code,
    total: Value,
    carried: &[Value],
    body: &mut LoopBody<'_>,
) -> Result<Vec<Value>> {
    c.for_dynamic_step(block_id(c)?, total, grid_dim(c)?, carried, body)
}
/// Outer positions whose tiles of rows are scheduled together where these take different times.
const BAND: i64 = 16;

/// The outer position and the tile of rows there of a linear number. `banded`: the first tiles of a
/// band of outer positions come before the second ones, else all of one position before the next.
pub fn place_of_tile(
    c: Code,
    tile: Value,
    outer: &[Value],
    tiles_per_outer: Value,
    banded: bool,
) -> Result<(Value, Value)> {
    if !banded {
        return Ok((c.div(tile, tiles_per_outer)?, c.rem(tile, tiles_per_outer)?));
    }
    let places = outer.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let band = c.index(BAND)?;
    let wide = c.mul(tiles_per_outer, band)?;
    let first = c.mul(c.div(tile, wide)?, band)?;
    let (rest, height) = (c.rem(tile, wide)?, c.min(c.sub(places, first)?, band)?);
    Ok((c.add(first, c.rem(rest, height)?)?, c.div(rest, height)?))
}
/// As [`for_each_tile`], over tiles of `count` items each: `body` gets a tile's first item.
pub fn for_each_tile_of(
    c: Code,
    count: Value,
    total: Value,
    body: &mut LoopBody<'_>,
) -> Result<Vec<Value>> {
    let start = c.mul(block_id(c)?, count)?;
    let step = c.mul(grid_dim(c)?, count)?;
    c.for_dynamic_step(start, total, step, &[], body)
}
/// A grid-stride loop over items, in CTAs of `threads` threads: a thread's first item, and the
/// stride to its next one.
pub fn grid_stride(c: Code, threads: Value) -> Result<[Value; 2]> {
    let first = c.add(c.mul(block_id(c)?, threads)?, thread_id(c)?)?;
    Ok([first, c.mul(grid_dim(c)?, threads)?])
}
/// The same over items that these CTAs share.
pub fn grid_stride_of(c: Code, threads: usize, ctas: Range<usize>) -> Result<[Value; 2]> {
    let cta = c.sub(block_id(c)?, c.index(ctas.start as i64)?)?;
    let first = c.add(c.mul(cta, c.index(threads as i64)?)?, thread_id(c)?)?;
    Ok([first, c.index((ctas.len() * threads) as i64)?])
}
/// CTA barrier: waits for all threads of the CTA and makes their writes visible.
pub fn barrier(c: Code) -> Result<()> {
    gpu::barrier(c)
}

/// `shfl.bfly`: the value of the lane whose index differs in the bits of `mask`.
fn shuffle_xor(c: Code, v: Value, mask: usize) -> Result<Value> {
    shuffle(c, gpu::ShuffleMode::Xor, v, mask, WARP).map(|[v, _]| v)
}

/// `shfl.up` in segments of `width` lanes: the value of the lane `by` below, and whether it exists;
/// the thread's own value where it does not.
pub fn shuffle_up(c: Code, v: Value, by: usize, width: usize) -> Result<[Value; 2]> {
    shuffle(c, gpu::ShuffleMode::Up, v, by, width)
}

/// `shfl.idx` in segments of `width` lanes: the value of lane `lane`.
pub fn shuffle_idx(c: Code, v: Value, lane: usize, width: usize) -> Result<Value> {
    shuffle(c, gpu::ShuffleMode::Idx, v, lane, width).map(|[v, _]| v)
}

/// `shfl.idx` with a dynamic lane.
pub fn shuffle_idx_dynamic(c: Code, v: Value, lane: Value) -> Result<Value> {
    shuffled(c, gpu::ShuffleMode::Idx, v, lane, WARP).map(|[v, _]| v)
}

fn shuffle(
    c: Code,
    mode: gpu::ShuffleMode,
    v: Value,
    by: usize,
    width: usize,
) -> Result<[Value; 2]> {
    shuffled(c, mode, v, c.integer(by as i64, Type::integer(c.ctx(), 32))?, width)
}

fn shuffled(
    c: Code,
    mode: gpu::ShuffleMode,
    v: Value,
    by: Value,
    width: usize,
) -> Result<[Value; 2]> {
    let i32 = Type::integer(c.ctx(), 32);
    let by = if by.ty() == i32 { by } else { arith::index_cast(c, by, i32)? };
    let op = gpu::shuffle(c, v, by, c.integer(width as i64, i32)?, mode)?;
    Ok([op.result(0), op.result(1)])
}

/// Transposes a 4 x 4 block held by four neighbouring lanes, of which this is the `thread`th:
/// afterwards lane i holds element i of each.
pub fn transpose_lanes(c: Code, mut all: Vec<Value>, thread: Value) -> Result<Vec<Value>> {
    for (bit, pairs) in [(1, [(0, 1), (2, 3)]), (2, [(0, 2), (1, 3)])] {
        let number = |n: usize| c.integer(n as i64, thread.ty());
        let odd =
            c.compare(CmpIPredicate::Ne, arith::andi(c, thread, number(bit)?)?, number(0)?)?;
        for (low, high) in pairs {
            let given = c.select(odd, all[low], all[high])?;
            let taken = shuffle_xor(c, given, bit)?;
            (all[low], all[high]) =
                (c.select(odd, taken, all[low])?, c.select(odd, all[high], taken)?);
        }
    }
    Ok(all)
}

/// Butterfly all-reduce over `count` neighbouring lanes of a warp. All lanes have the same bits if
/// the combination is commutative.
pub fn butterfly(
    c: Code,
    v: Value,
    count: usize,
    combine: &dyn Fn(Value, Value) -> Result<Value>,
) -> Result<Value> {
    let all = butterflies(c, &[v], count, &|a, b| Ok(vec![combine(a[0], b[0])?]))?;
    all.first().copied().ok_or_else(|| "has no value".into())
}

/// The same for a tuple of values that combine together.
pub fn butterflies(
    c: Code,
    values: &[Value],
    count: usize,
    combine: &CombineFn<'_>,
) -> Result<Vec<Value>> {
    let mut values = values.to_vec();
    let mut mask = count / 2;
    while mask > 0 {
        let others = values.iter().map(|v| shuffle_xor(c, *v, mask)).collect::<Result<Vec<_>>>()?;
        values = combine(&values, &others)?;
        mask /= 2;
    }
    Ok(values)
}

/// A group of threads of a CTA that share a row.
#[derive(Clone, Copy)]
pub struct ThreadGroup {
    /// Threads of the group; a power of two.
    pub size: usize,
    /// Thread index in the group.
    pub thread: Value,
    /// Group index in the CTA.
    pub number: Value,
    /// Predicate: whether the group has a row; `None` if all have one.
    pub active: Option<Value>,
    /// The CTAs that share its row, if there are several.
    pub cluster: Option<RowCluster>,
}

/// What a loop over rows emits for a group and its row.
pub type RowBody<'a> = dyn FnMut(Code, ThreadGroup, Value) -> Result<()> + 'a;

impl ThreadGroup {
    /// Divides a CTA into `groups` groups of `size` threads.
    pub fn of(c: Code, size: usize, groups: usize) -> Result<ThreadGroup> {
        let thread = thread_id(c)?;
        let (number, thread) = match groups {
            1 => (c.index(0)?, thread),
            _ => (c.div(thread, c.index(size as i64)?)?, c.rem(thread, c.index(size as i64)?)?),
        };
        Ok(ThreadGroup { size, thread, number, active: None, cluster: None })
    }

    /// Grid-stride loop over rows 0 to `total`, one for each of the CTA's `groups` at a time. The
    /// trip count is uniform across the CTA, so that every thread reaches each barrier. A group
    /// without a row redoes another group's.
    pub fn for_each_row(
        &self,
        c: Code,
        groups: usize,
        total: Value,
        body: &mut RowBody<'_>,
    ) -> Result<()> {
        let count = c.index(groups as i64)?;
        for_each_tile_of(c, count, total, &mut |c, base, _| {
            self.row(c, groups, total, base, body).map(|()| vec![])
        })
        .map(drop)
    }

    /// The same where each CTA has all rows.
    pub fn for_each_row_of_cta(
        &self,
        c: Code,
        groups: usize,
        total: Value,
        body: &mut RowBody<'_>,
    ) -> Result<()> {
        c.for_loop(c.index(0)?, total, groups as i64, &[], &mut |c, base, _| {
            self.row(c, groups, total, base, body).map(|()| vec![])
        })
        .map(drop)
    }

    /// The row of a group, of those from `base` on.
    fn row(
        &self,
        c: Code,
        groups: usize,
        total: Value,
        base: Value,
        body: &mut RowBody<'_>,
    ) -> Result<()> {
        let row = c.add(base, self.number)?;
        let (row, active) = match groups {
            1 => (row, None),
            _ => {
                let active = c.less_than(row, total)?;
                (c.select(active, row, base)?, Some(active))
            }
        };
        body(c, ThreadGroup { active, ..*self }, row)
    }

    /// Predicate: whether a thread is the first of a group that has a row (elected thread).
    pub fn elected(&self, c: Code) -> Result<Option<Value>> {
        let first = if self.size == 1 {
            None
        } else {
            Some(c.compare(CmpIPredicate::Eq, self.thread, c.index(0)?)?)
        };
        let lead = self.cluster.map(|all| Ptx(c).eq_const(all.rank, 0)).transpose()?;
        c.all_of(&[first, self.active, lead].into_iter().flatten().collect::<Vec<_>>())
    }

    /// All-reduce over the threads of a row. `exchange`: for each value one shared-memory slot per
    /// warp of the CTA.
    pub fn all_reduce(
        &self,
        c: Code,
        values: &[Value],
        exchange: &[Option<Value>],
        combine: &CombineFn<'_>,
    ) -> Result<Vec<Value>> {
        let values = self.reduce_in_cta(c, values, exchange, combine)?;
        match &self.cluster {
            Some(all) if !values.is_empty() => all.all_reduce(c, self.thread, &values, combine),
            _ => Ok(values),
        }
    }

    fn reduce_in_cta(
        &self,
        c: Code,
        values: &[Value],
        exchange: &[Option<Value>],
        combine: &CombineFn<'_>,
    ) -> Result<Vec<Value>> {
        let values = butterflies(c, values, WARP.min(self.size), combine)?;
        if self.size <= WARP || values.is_empty() {
            return Ok(values);
        }
        let memory: Vec<Value> = exchange
            .iter()
            .copied()
            .collect::<Option<_>>()
            .ok_or("has no memory in which warps exchange results")?;
        let (warps, width) = (self.size / WARP, c.index(WARP as i64)?);
        let (lane, warp) = (c.rem(self.thread, width)?, c.div(self.thread, width)?);
        let base = c.mul(self.number, c.index(warps as i64)?)?;
        let first = c.compare(CmpIPredicate::Eq, lane, c.index(0)?)?;
        let mut give = |c: Code| -> Result<()> {
            let at = c.add(base, warp)?;
            values.iter().zip(&memory).try_for_each(|(v, m)| memref::store(c, *v, *m, &[at]))
        };
        c.if_else(first, &mut give, None)?;
        barrier(c)?;
        // Every warp reduces the warps' partial results by itself.
        let mine = c.add(base, c.rem(lane, c.index(warps as i64)?)?)?;
        let taken = values
            .iter()
            .zip(&memory)
            .map(|(_, m)| memref::load(c, *m, &[mine]))
            .collect::<Result<Vec<_>>>()?;
        butterflies(c, &taken, warps, combine)
    }
}
