//! Attention with mma.sync and split keys, after FlashDecoding (Dao et al., 2023): a tile has 8 or
//! 16 rows that read the same keys, and the warps of all CTAs of a cluster take blocks of keys in
//! turn. Partial results combine in the order of warps and CTAs, so every run gives the same bits.
//!
//! Each lane loads 16 contiguous bytes of keys and values straight into fragments. This permutes K,
//! alike in both operands, and the columns of the values among the instructions.

use crate::{
    analysis::Poly,
    emit::{body::Scope, code::Code},
    strategies::gpu::{
        common::{ptx::Ptx, score::Score, threads},
        split_attention::{
            COLUMNS, LARGE, Params, SplitPattern, row_tile::RowTile, split::Split,
            step::LoopCarried,
        },
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

impl Split<'_> {
    /// Computes a tile.
    fn tile(&self, c: Code, row_tile: &RowTile) -> Result<()> {
        let p = Ptx(c);
        let halves = self.rows_per_thread();
        let rows = (0..halves).map(|h| self.row(c, row_tile, h)).collect::<Result<Vec<_>>>()?;
        // Registers do not hold the queries of large heads beside the accumulators: each step
        // reloads them from the L1 cache.
        let large = self.pattern.at.depth + self.pattern.at.columns > LARGE;
        let queries = if large { vec![] } else { self.read_queries(c, &rows, false)? };
        let [low, high] = row_tile.keys;
        let steps = p.div_const(p.add_const(p.sub(high, low)?, self.keys - 1)?, self.keys)?;
        let mine = p.add(p.mul_const(self.rank, self.warps)?, self.warp)?;
        let (nothing, none) = (c.number(0.0, p.f32())?, c.number(f64::NEG_INFINITY, p.f32())?);
        let columns = (self.pattern.at.columns as usize).div_ceil(COLUMNS) * COLUMNS;
        let begin = LoopCarried {
            max: vec![none; halves],
            row_sums: vec![nothing; halves],
            values: vec![nothing; columns / 4 * halves],
        };
        let turn = c.index((self.splits * self.warps) as i64)?;
        let done = c.for_dynamic_step(
            p.i32_to_index(mine)?,
            p.i32_to_index(steps)?,
            turn,
            &begin.flat(),
            &mut |c, step, carried| {
                let p = Ptx(c);
                let start = p.add(low, p.mul_const(p.index_to_i32(step)?, self.keys)?)?;
                let again = if large { Some(self.read_queries(c, &rows, true)?) } else { None };
                let queries = again.as_ref().unwrap_or(&queries);
                Ok(self
                    .step(c, row_tile, &rows, queries, start, &LoopCarried::of(halves, carried))?
                    .flat())
            },
        )?;
        let mut done = LoopCarried::of(halves, &done);
        for sum in &mut done.row_sums {
            *sum = threads::butterfly(c, *sum, 4, &|a, b| arith::addf(c, a, b))?;
        }
        // Opaque, so that LLVM does not hoist the epilogue's addresses out of the loop over tiles
        // and keep them live through the loop over keys.
        let here = Split {
            base: p.opaque(self.base)?,
            thread: p.opaque(self.thread)?,
            rank: p.opaque(self.rank)?,
            ..self.clone()
        };
        here.store_partials(c, &done)?;
        threads::barrier(c)?;
        here.combine(c, row_tile)
    }
}

/// Emits the kernel.
pub fn emit(c: Code, scope: &Scope<'_>, params: &Params) -> Result<()> {
    let pattern = SplitPattern::of(scope.kernel)
        .ok_or("is no attention whose rows can be read 16 bytes at a time")?;
    let (outer, queries, count) = pattern.at.sizes(scope.kernel).ok_or("has no loops")?;
    let score = Score::of(scope, &pattern.at)?;
    let (keys, parts, rows, warps) =
        (params.block_kv, params.split_kv, params.block_q, params.warps);
    let even = |p: &Poly| !p.is_zero() && p.multiple_of(keys as i64);
    let ragged = !even(count)
        || pattern.at.limits.lengths[1].is_some()
        || score.last_key.is_some()
        || score.window.is_some();
    let sizes: Vec<Value> = outer
        .iter()
        .take(pattern.outer_loops())
        .map(|n| scope.poly(c, n))
        .collect::<Result<_>>()?;
    let (queries, count, p) = (scope.poly(c, queries)?, scope.poly(c, count)?, Ptx(c));
    let total = c.mul(queries, c.index(pattern.heads)?)?;
    let down = c.ceil_div(total, c.index(rows as i64)?)?;
    let tiles = sizes.iter().try_fold(down, |a, b| c.mul(a, *b))?;
    let thread = p.thread_id()?;
    let lane = p.rem_const(thread, WARP)?;
    let (block, blocks, each) =
        (threads::block_id(c)?, threads::grid_dim(c)?, c.index(parts as i64)?);
    let t = Split {
        scope,
        pattern: &pattern,
        score,
        keys,
        splits: parts,
        rows,
        warps,
        base: p.dynamic_shared(scope.kernel.func)?,
        thread,
        warp: p.warp_id(thread)?,
        lane: [p.div_const(lane, 4)?, p.rem_const(lane, 4)?],
        rank: p.index_to_i32(c.rem(block, each)?)?,
        queries: p.index_to_i32(queries)?,
        count: p.index_to_i32(count)?,
        total: p.index_to_i32(total)?,
        partial_step: ragged,
    };
    c.for_dynamic_step(c.div(block, each)?, tiles, c.div(blocks, each)?, &[], &mut |c, tile, _| {
        t.tile(c, &t.row_tile(c, tile, down, &sizes)?).map(|()| vec![])
    })
    .map(drop)
}
