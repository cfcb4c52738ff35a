//! Attention with mma.sync and split keys, after FlashDecoding (Dao et al., 2023): a tile has 8 or
//! 16 rows that read the same keys, and the warps of all CTAs of a cluster take blocks of keys in
//! turn. Partial results combine in the order of warps and CTAs, so every run gives the same bits.
//!
//! Each lane loads 16 contiguous bytes of keys and values straight into fragments. This permutes K,
//! alike in both operands, and the columns of the values among the instructions.

use crate::{
    analysis::{Access, Poly},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::decode,
    },
    strategies::gpu::{
        common::{
            ptx::Ptx,
            score::{Score, ScoreCache},
            threads,
        },
        skinny_gemm::VECTOR,
        split_attention::{COLUMNS, DEPTH, LARGE, Params, SplitPattern},
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;
use std::f64::consts::LOG2_E;

/// The vector width of a thread's loads.
const VECTOR_LANES: Lanes = Lanes { count: VECTOR, mask: None };
/// Columns (N) of the mma.sync instruction.
pub(crate) const EIGHT: usize = 8;

/// What all parts of the emission share.
#[derive(Clone)]
pub(crate) struct Split<'a> {
    pub(crate) scope: &'a Scope<'a>,
    pub(crate) pattern: &'a SplitPattern,
    pub(crate) score: Score<'a>,
    /// Keys of a warp's step.
    keys: usize,
    /// CTAs of a cluster.
    pub(crate) splits: usize,
    /// Rows of a tile.
    pub(crate) rows: usize,
    pub(crate) warps: usize,
    /// The base of shared memory.
    pub(crate) base: Value,
    /// The thread in its CTA, and its warp.
    pub(crate) thread: Value,
    pub(crate) warp: Value,
    /// The lane's group (0 to 7), and its place in the group (0 to 3), as mma.sync numbers them.
    pub(crate) lane: [Value; 2],
    /// The CTA's rank in its cluster.
    pub(crate) rank: Value,
    /// The numbers of queries, of keys, and of rows.
    queries: Value,
    count: Value,
    pub(crate) total: Value,
    /// Whether a warp's last step may exceed the keys.
    partial_step: bool,
}

/// A tile.
pub(crate) struct RowTile {
    outer: Vec<Value>,
    /// Its first row.
    pub(crate) first: Value,
    /// The first key that a row of it sees, and the end (exclusive).
    keys: [Value; 2],
    /// Valid queries, if not all are.
    pub(crate) queries: Option<Value>,
}

/// A thread's row: the loops that its scores depend on, and its query.
struct Row {
    outer: Vec<Value>,
    query: Value,
    scores: ScoreCache,
}

/// Loop-carried from one step of keys to the next. For each row of a thread: the maximum score,
/// unscaled, and the sum of this thread's exponentials. Accumulators: by eight columns, two of each
/// row.
pub(crate) struct LoopCarried {
    pub(crate) max: Vec<Value>,
    pub(crate) row_sums: Vec<Value>,
    pub(crate) values: Vec<Value>,
}

impl LoopCarried {
    fn flat(&self) -> Vec<Value> {
        [self.max.as_slice(), &self.row_sums, &self.values].concat()
    }
    fn of(rows: usize, flat: &[Value]) -> LoopCarried {
        LoopCarried {
            max: flat[..rows].to_vec(),
            row_sums: flat[rows..2 * rows].to_vec(),
            values: flat[2 * rows..].to_vec(),
        }
    }
}

impl Split<'_> {
    /// Rows of a thread.
    pub(crate) fn rows_per_thread(&self) -> usize {
        self.rows / EIGHT
    }
    /// The position, rows and keys of a tile.
    fn row_tile(&self, c: Code, tile: Value, down: Value, sizes: &[Value]) -> Result<RowTile> {
        let p = Ptx(c);
        let around = decode(c, c.div(tile, down)?, sizes)?;
        let first = p.mul_const(p.index_to_i32(c.rem(tile, down)?)?, self.rows)?;
        let (mut low, mut high) = (p.number(0)?, self.count);
        // Stacked heads contain every query.
        let stacked = self.pattern.heads > 1;
        if let Some(ahead) = self.score.last_key {
            let last = if stacked {
                self.queries
            } else {
                p.min(p.add_const(first, self.rows)?, self.total)?
            };
            high = p.min(high, p.max(p.add_signed(last, ahead)?, low)?)?;
        }
        if let Some(back) = self.score.window.filter(|_| !stacked) {
            low = p.min(p.max(p.add_signed(first, -back)?, low)?, high)?;
        }
        let most = |axis: usize| p.i32_to_index([self.queries, self.count][axis]);
        let [queries, keys] = self
            .scope
            .lengths(c, &self.pattern.at, &around, &most)?
            .map(|n| n.map(|n| p.index_to_i32(n)).transpose());
        let (queries, keys) = (queries?, keys?);
        if let Some(keys) = keys {
            high = p.min(high, keys)?;
            low = p.min(low, high)?;
        }
        if let Some(queries) = queries {
            let counts =
                c.compare(CmpIPredicate::Slt, if stacked { p.number(0)? } else { first }, queries)?;
            high = c.select(counts, high, low)?;
        }
        Ok(RowTile { outer: around, first, keys: [low, high], queries })
    }
    /// A row of the thread, clamped to the last row; rows out of bounds are not stored.
    fn row(&self, c: Code, row_tile: &RowTile, half: usize) -> Result<Row> {
        let p = Ptx(c);
        let row = p.add(row_tile.first, p.add_const(self.lane[0], EIGHT * half)?)?;
        let row = p.min(row, p.add_signed(self.total, -1)?)?;
        let (outer, query) = self.split(c, row_tile, row)?;
        let known = self.score.rows(c, &outer, [query, query])?;
        Ok(Row { outer, query, scores: known })
    }
    /// The outer loops of a row, and its query.
    pub(crate) fn split(
        &self,
        c: Code,
        row_tile: &RowTile,
        row: Value,
    ) -> Result<(Vec<Value>, Value)> {
        let (p, mut outer) = (Ptx(c), row_tile.outer.clone());
        if self.pattern.heads == 1 {
            return Ok((outer, row));
        }
        outer.push(p.i32_to_index(arith::divui(p, row, self.queries)?)?);
        Ok((outer, arith::remui(p, row, self.queries)?))
    }

    /// The 16 bytes at an element as four registers; zeros unless `inside`.
    fn load_vector(
        &self,
        c: Code,
        access: &Access,
        dims: &[LaneValue],
        inside: Option<Value>,
    ) -> Result<Vec<Value>> {
        let v = VECTOR_LANES.vector(
            c,
            self.scope.read(c, access, dims, VECTOR_LANES, &ForwardedElements::new())?,
        )?;
        let words = Type::vector(Ptx(c).i32(), 4);
        let mut v = vector::bitcast(c, v, words)?;
        if let Some(inside) = inside {
            v = c.select(inside, v, c.integer(0, words)?)?;
        }
        let word = |i: i64| vector::extract(c, v, &[Size::Static(i)], Ptx(c).i32());
        (0..4).map(word).collect()
    }
    /// The address of the thread's 16 bytes of a step along a row, clamped to the first ones if out
    /// of bounds, and the bounds check, if one is needed.
    fn lane_address(
        &self,
        c: Code,
        step: usize,
        wide: usize,
        lane: Value,
        size: i64,
    ) -> Result<(Value, Option<Value>)> {
        let p = Ptx(c);
        let at = p.i32_to_index(p.add_const(p.mul_const(lane, VECTOR)?, step * wide)?)?;
        if size as usize >= (step + 1) * wide {
            return Ok((at, None));
        }
        let inside = c.less_than(at, c.index(size)?)?;
        Ok((c.select(inside, at, c.index(0)?)?, Some(inside)))
    }
    /// Queries as left fragments: by 32 elements of K, four registers of each row. `here`: emit the
    /// addresses at this place, not hoisted out of a loop.
    fn read_queries(&self, c: Code, rows: &[Row], here: bool) -> Result<Vec<Vec<Vec<Value>>>> {
        let at = &self.pattern.at;
        let access = &self.scope.kernel.stages[at.scores].inputs[0];
        let step = |i: usize| -> Result<Vec<Vec<Value>>> {
            let (k_index, inside) = self.lane_address(c, i, DEPTH, self.lane[1], at.depth)?;
            let one = |r: &Row| {
                let query = if here { Ptx(c).opaque(r.query)? } else { r.query };
                let mut dims: Vec<LaneValue> =
                    r.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
                dims.extend([
                    LaneValue::Uniform(Ptx(c).i32_to_index(query)?),
                    LaneValue::Uniform(c.index(0)?),
                    LaneValue::Strided(k_index, 1),
                ]);
                self.load_vector(c, access, &dims, inside)
            };
            rows.iter().map(one).collect()
        };
        (0..(at.depth as usize).div_ceil(DEPTH)).map(step).collect()
    }
    /// The outer loops of keys.
    fn outer(&self, c: Code, row_tile: &RowTile) -> Result<Vec<LaneValue>> {
        let mut dims: Vec<LaneValue> =
            row_tile.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
        dims.resize(self.pattern.at.outer, LaneValue::Uniform(c.index(0)?));
        Ok(dims)
    }
    /// A key, clamped to the last one.
    fn key(&self, p: Ptx, row_tile: &RowTile, key: Value) -> Result<Value> {
        p.i32_to_index(if self.partial_step {
            p.min(key, p.add_signed(row_tile.keys[1], -1)?)?
        } else {
            key
        })
    }
    /// Keys as right fragments: by eight keys, by 32 elements of K.
    fn read_keys(&self, c: Code, row_tile: &RowTile, start: Value) -> Result<Vec<Vec<Vec<Value>>>> {
        let (p, at) = (Ptx(c), &self.pattern.at);
        let access = &self.scope.kernel.stages[at.scores].inputs[1];
        let eight = |j: usize| -> Result<Vec<Vec<Value>>> {
            let key =
                self.key(p, row_tile, p.add(start, p.add_const(self.lane[0], EIGHT * j)?)?)?;
            let step = |i: usize| {
                let (k_index, inside) = self.lane_address(c, i, DEPTH, self.lane[1], at.depth)?;
                let mut dims = self.outer(c, row_tile)?;
                dims.extend([
                    LaneValue::Uniform(c.index(0)?),
                    LaneValue::Uniform(key),
                    LaneValue::Strided(k_index, 1),
                ]);
                self.load_vector(c, access, &dims, inside)
            };
            (0..(at.depth as usize).div_ceil(DEPTH)).map(step).collect()
        };
        (0..self.keys / EIGHT).map(eight).collect()
    }
    /// Values: by 16 keys, by 64 columns, of the four keys whose exponentials the thread has.
    fn read_values(
        &self,
        c: Code,
        row_tile: &RowTile,
        start: Value,
    ) -> Result<Vec<Vec<Vec<Vec<Value>>>>> {
        let (p, at) = (Ptx(c), &self.pattern.at);
        let access = &self.scope.kernel.stages[at.product].inputs[1];
        let own = p.add(start, p.mul_const(self.lane[1], 2)?)?;
        let sixteen = |k: usize| -> Result<Vec<Vec<Vec<Value>>>> {
            let step = |i: usize| -> Result<Vec<Vec<Value>>> {
                let (column, _) = self.lane_address(c, i, COLUMNS, self.lane[0], at.columns)?;
                let one = |j: &usize| {
                    let key = p.add_const(own, 2 * EIGHT * k + j)?;
                    // What stands beyond the end may be no number, and 0 times that is none.
                    let inside = if self.partial_step {
                        Some(c.compare(CmpIPredicate::Slt, key, row_tile.keys[1])?)
                    } else {
                        None
                    };
                    let mut dims = self.outer(c, row_tile)?;
                    dims.extend([
                        LaneValue::Uniform(c.index(0)?),
                        LaneValue::Strided(column, 1),
                        LaneValue::Uniform(self.key(p, row_tile, key)?),
                    ]);
                    self.load_vector(c, access, &dims, inside)
                };
                [0, 1, EIGHT, EIGHT + 1].iter().map(one).collect()
            };
            (0..(at.columns as usize).div_ceil(COLUMNS)).map(step).collect()
        };
        (0..self.keys / 16).map(sixteen).collect()
    }

    /// Masked scores, unscaled: for each row of the thread, two of each eight keys.
    fn masked_scores(
        &self,
        c: Code,
        row_tile: &RowTile,
        rows: &[Row],
        scores: &[Vec<Value>],
        start: Value,
    ) -> Result<Vec<Vec<Value>>> {
        let p = Ptx(c);
        let start = p.add(start, p.mul_const(self.lane[1], 2)?)?;
        let low = c.number(f64::NEG_INFINITY, p.f32())?;
        let last = if self.partial_step { Some(p.add_signed(self.count, -1)?) } else { None };
        let one = |(half, row): (usize, &Row)| -> Result<Vec<Value>> {
            // The last visible key of the row, relative to the thread's first key.
            let ends =
                if self.partial_step { Some(p.add_signed(row_tile.keys[1], -1)?) } else { None };
            let own = if self.score.causal { Some(row.query) } else { None };
            let limit = match (ends, own) {
                (Some(a), Some(b)) => Some(p.min(a, b)?),
                (a, b) => a.or(b),
            };
            let limit = limit.map(|n| p.sub(n, start)).transpose()?;
            let mut known = self.score.tile(&row.scores, start, last, false);
            let mut all = vec![];
            for (j, four) in scores.iter().enumerate() {
                for i in 0..2 {
                    let column = EIGHT * j + i;
                    let x = self.score.element(c, &mut known, four[2 * half + i], 0, column)?;
                    all.push(match limit {
                        Some(limit) => c.select(
                            c.compare(CmpIPredicate::Sgt, p.number(column)?, limit)?,
                            low,
                            x,
                        )?,
                        None => x,
                    });
                }
            }
            Ok(all)
        };
        rows.iter().enumerate().map(one).collect()
    }
    /// 2 to the power of a score less the maximum, both unscaled; `over` is at least the lowest
    /// finite f32.
    pub(crate) fn exp2_difference(&self, c: Code, x: Value, over: Value) -> Result<Value> {
        let p = Ptx(c);
        let scale = c.number(LOG2_E * self.score.factor, p.f32())?;
        p.exp2(arith::mulf(p, arith::subf(p, x, over)?, scale)?)
    }
    /// The maximum score made finite, so that all exponentials of a fully masked row are 0.
    pub(crate) fn finite(&self, c: Code, most: Value) -> Result<Value> {
        let least = c.number(f32::MIN.into(), most.ty())?;
        arith::maxnumf(c, most, least)
    }

    /// A step of keys: scores, online softmax, product with the values.
    fn step(
        &self,
        c: Code,
        row_tile: &RowTile,
        rows: &[Row],
        queries: &[Vec<Vec<Value>>],
        start: Value,
        old: &LoopCarried,
    ) -> Result<LoopCarried> {
        let (p, element, halves) = (Ptx(c), self.pattern.element, self.rows_per_thread());
        let (keys, values) =
            (self.read_keys(c, row_tile, start)?, self.read_values(c, row_tile, start)?);
        let (nothing, none) = (c.number(0.0, p.f32())?, p.number(0)?);
        let mut scores = vec![];
        for key in &keys {
            let mut sums = vec![nothing; 4];
            for (q, k) in queries.iter().zip(key) {
                for i in [0, 2] {
                    let low = |i: usize| q.get(1).map_or(none, |q| q[i]);
                    sums = p.warp_mma(
                        element,
                        [q[0][i], low(i), q[0][i + 1], low(i + 1)],
                        [k[i], k[i + 1]],
                        &sums,
                    )?;
                }
            }
            scores.push(sums);
        }
        let seen = self.masked_scores(c, row_tile, rows, &scores, start)?;
        let (mut most, mut sums, mut factors, mut weights) = (vec![], vec![], vec![], vec![]);
        for (half, own) in seen.iter().enumerate() {
            let (first, rest) = own.split_first().ok_or("takes no keys")?;
            let max = rest.iter().try_fold(*first, |a, b| arith::maxnumf(c, a, *b))?;
            let max = threads::butterfly(c, max, 4, &|a, b| arith::maxnumf(c, a, b))?;
            let max = arith::maxnumf(c, max, old.max[half])?;
            let over = self.finite(c, max)?;
            let made = own
                .iter()
                .map(|x| self.exp2_difference(c, *x, over))
                .collect::<Result<Vec<_>>>()?;
            let factor = self.exp2_difference(c, old.max[half], over)?;
            let sum =
                made.iter().try_fold(arith::mulf(c, old.row_sums[half], factor)?, |a, b| {
                    arith::addf(c, a, *b)
                })?;
            most.push(max);
            sums.push(sum);
            factors.push(factor);
            weights.push(made);
        }
        let mut all = old
            .values
            .iter()
            .enumerate()
            .map(|(i, x)| arith::mulf(c, *x, factors[i / 2 % halves]))
            .collect::<Result<Vec<_>>>()?;
        for (k, value) in values.iter().enumerate() {
            let pair = |half: usize, eight: usize| match weights.get(half) {
                Some(w) => p.pack_pair(element, w[4 * k + 2 * eight], w[4 * k + 2 * eight + 1]),
                None => Ok(none),
            };
            let left = [pair(0, 0)?, pair(1, 0)?, pair(0, 1)?, pair(1, 1)?];
            for (i, four) in value.iter().enumerate() {
                for m in 0..EIGHT {
                    let right = [
                        p.permute_pairs(four[0][m / 2], four[1][m / 2], m % 2)?,
                        p.permute_pairs(four[2][m / 2], four[3][m / 2], m % 2)?,
                    ];
                    let at = (i * EIGHT + m) * 2 * halves;
                    let mut own = all[at..at + 2 * halves].to_vec();
                    own.resize(4, nothing);
                    let made = p.warp_mma(element, left, right, &own)?;
                    all.splice(at..at + 2 * halves, made.into_iter().take(2 * halves));
                }
            }
        }
        Ok(LoopCarried { max: most, row_sums: sums, values: all })
    }

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
