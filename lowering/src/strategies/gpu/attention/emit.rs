//! Attention on Hopper's tensor cores, after FlashAttention-3 (Shah et al., 2024). A producer
//! issues TMA loads for tiles of queries and, from the last to the first, of keys and values;
//! consumer warpgroups issue wgmma.
//!
//! Scores stay in registers: the exponentials of a key tile are the register operand of the product
//! with its values, which overlaps the scores of the next tile. A greater score rescales the
//! accumulators (online softmax: Milakov and Gimelshein, 2018).
//!
//! Each stage of queries, keys and values has two mbarriers. TMA's transaction bytes complete
//! `full`; each consumer warp arrives at `empty` when it has read the stage. One elected lane per
//! warpgroup would not do, as it does for products: a step waits for `full` once more after its
//! wgmmas, and a warp that a refill overtakes before that would wait for a phase that is over.

use crate::{
    analysis::Poly,
    emit::{body::Scope, code::Code, loops::decode},
    strategies::gpu::{
        attention::{FlashPattern, Params, ROWS},
        common::{
            ptx::{Mma, Ptx, wgmma_type},
            score::{Score, ScoreCache},
            threads, warp_specialisation,
        },
        wgmma_gemm::DEPTH,
    },
};
use kiln_dialects::ir::*;
use std::f64::consts::LOG2_E;

/// Rasterisation of causal attention: outer positions whose query tiles are scheduled together, the
/// longest first, since they see different numbers of keys.
const BAND: i64 = 16;
/// Registers of a producer and of a consumer thread (setmaxnreg), by consumer warpgroups.
const REGISTERS: [Option<(usize, usize)>; 3] = [None, Some((40, 232)), Some((32, 160))];
/// Warps of a consumer warpgroup.
pub(crate) const WARPS: usize = 4;
/// Scaled scores so large that any two distinct ones differ by more than an exponential can
/// represent.
const LARGE: f64 = 1e38;
/// Bytes of a row of a slice in shared memory.
pub(crate) const ROW: usize = 2 * DEPTH;

/// What all parts of the emission share.
pub(crate) struct Flash<'a> {
    pub(crate) scope: &'a Scope<'a>,
    pub(crate) pattern: &'a FlashPattern,
    pub(crate) score: Score<'a>,
    pub(crate) maps: [Value; 3],
    pub(crate) warpgroups: usize,
    /// Keys of a tile.
    pub(crate) keys: usize,
    /// Stages of keys and values.
    pub(crate) kv_stages: usize,
    /// Stages of queries.
    pub(crate) q_stages: usize,
    /// Bytes of a stage of queries, of keys, of values.
    pub(crate) bytes: [usize; 3],
    /// The base of the pipelines in shared memory.
    pub(crate) base: Value,
    /// Sizes of the outer loops.
    outer_sizes: Vec<Value>,
    /// The numbers of queries and of keys, as 32-bit integers.
    pub(crate) queries: Value,
    pub(crate) count: Value,
    /// Query tiles of an outer position, and in total.
    tiles_per_outer: Value,
    tiles: Value,
    /// Whether queries, and keys, may end within a tile.
    pub(crate) partial_tiles: [bool; 2],
}

/// A multi-stage pipeline in shared memory.
#[derive(Clone, Copy)]
pub(crate) enum Pipeline {
    Queries,
    Keys,
    Values,
}

/// A tile of queries.
pub(crate) struct QueryTile {
    pub(crate) outer: Vec<Value>,
    /// The first query.
    pub(crate) first: Value,
    /// The end (exclusive) of the key tiles that it sees.
    end: Value,
    /// How many key tiles it sees, and how many of these, counted from the last, are partly masked.
    pub(crate) blocks: [Value; 2],
    /// With a sliding window, the first key tile, counted from the last, that may hold keys before
    /// some query's window.
    first_key_tile: Option<Value>,
    /// Valid keys here; valid queries, if not all are.
    pub(crate) count: Value,
    pub(crate) queries: Option<Value>,
}

/// Which masks a key tile needs: causal or out of bounds at its end, sliding window at its start.
#[derive(Clone, Copy)]
struct Edges {
    last: bool,
    window: bool,
}

/// Emits the body of a query tile, given loop-carried values; returns the next ones.
type QueryTileBody<'a> = dyn FnMut(Code, &QueryTile, &[Value]) -> Result<Vec<Value>> + 'a;
/// Exponentials, the statistics of both rows, and the factors that rescale the accumulators, if
/// there are earlier ones.
type Exponentials = (Vec<Value>, [SoftmaxState; 2], [Option<Value>; 2]);

/// The softmax statistics of a thread's row so far.
#[derive(Clone, Copy)]
pub(crate) struct SoftmaxState {
    /// The maximum score, unscaled.
    pub(crate) max: Value,
    /// The sum of this thread's exponentials.
    pub(crate) sum: Value,
}

/// Loop-carried from one key tile to the next: packed exponentials, accumulators, row statistics,
/// stage and parity of the next keys and of the values that belong to the exponentials.
struct LoopCarried {
    weights: Vec<Value>,
    accumulators: Vec<Value>,
    rows: [SoftmaxState; 2],
    keys: [Value; 2],
    values: [Value; 2],
}

impl LoopCarried {
    fn flat(&self) -> Vec<Value> {
        let rows = self.rows.iter().flat_map(|r| [r.max, r.sum]);
        let (weights, sums) = (self.weights.iter().copied(), self.accumulators.iter().copied());
        weights.chain(sums).chain(rows).chain(self.keys).chain(self.values).collect()
    }
    fn like(&self, flat: &[Value]) -> LoopCarried {
        let (weights, rest) = flat.split_at(self.weights.len());
        let (sums, rest) = rest.split_at(self.accumulators.len());
        LoopCarried {
            weights: weights.to_vec(),
            accumulators: sums.to_vec(),
            rows: [
                SoftmaxState { max: rest[0], sum: rest[1] },
                SoftmaxState { max: rest[2], sum: rest[3] },
            ],
            keys: [rest[4], rest[5]],
            values: [rest[6], rest[7]],
        }
    }
}

/// A consumer thread at a query tile.
pub(crate) struct Thread<'a> {
    pub(crate) query_tile: &'a QueryTile,
    /// Whether it is its warp's elected lane.
    elected: Value,
    /// Its lane.
    pub(crate) lane: Value,
    /// Its first row, and its first column in a tile.
    pub(crate) row: Value,
    pub(crate) column: Value,
    scores: ScoreCache,
    /// The stage of its warpgroup's queries.
    queries: Value,
    /// The warpgroup, and the thread in it.
    pub(crate) group: [Value; 2],
}

impl Flash<'_> {
    /// The query tile of a linear number.
    fn query_tile(&self, c: Code, tile: Value) -> Result<QueryTile> {
        let p = Ptx(c);
        let places = self.outer_sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
        let (outer_index, down) = if self.score.last_key.is_some() {
            let band = c.index(BAND)?;
            let wide = c.mul(self.tiles_per_outer, band)?;
            let first = c.mul(c.div(tile, wide)?, band)?;
            let (rest, height) = (c.rem(tile, wide)?, c.min(c.sub(places, first)?, band)?);
            let last = c.sub(self.tiles_per_outer, c.index(1)?)?;
            (c.add(first, c.rem(rest, height)?)?, c.sub(last, c.div(rest, height)?)?)
        } else {
            (c.div(tile, self.tiles_per_outer)?, c.rem(tile, self.tiles_per_outer)?)
        };
        let high = self.warpgroups * ROWS;
        let (zero, one) = (p.number(0)?, p.number(1)?);
        let first = p.mul_const(p.index_to_i32(down)?, high)?;
        let around = decode(c, outer_index, &self.outer_sizes)?;
        let most = |axis: usize| p.i32_to_index([self.queries, self.count][axis]);
        let [queries, keys] = self
            .scope
            .lengths(c, &self.pattern.at, &around, &most)?
            .map(|n| n.map(|n| p.index_to_i32(n)));
        let (queries, count) = (queries.transpose()?, keys.unwrap_or(Ok(self.count))?);
        // At least one tile, out of bounds if there are no keys. The trip count is opaque: LLVM
        // would unroll a constant one, which exceeds registers.
        let mut end =
            p.opaque(p.max(p.div_const(p.add_const(count, self.keys - 1)?, self.keys)?, one)?)?;
        if let Some(ahead) = self.score.last_key {
            let last = p.max(p.add_signed(first, high as i64 - 1 + ahead)?, zero)?;
            end = p.min(end, p.add_const(p.div_const(last, self.keys)?, 1)?)?;
        }
        let (mut blocks, mut far) = (end, None);
        if let Some(back) = self.score.window {
            let start = p.div_const(p.max(p.add_signed(first, -back)?, zero)?, self.keys)?;
            blocks = p.max(p.sub(end, start)?, one)?;
            let near = p.max(p.add_signed(first, high as i64 - 1 - back)?, zero)?;
            far = Some(p.sub(end, p.div_const(p.add_const(near, self.keys - 1)?, self.keys)?)?);
        }
        if let Some(queries) = queries {
            // A tile of invalid queries sees one key tile, and its results are dropped: slt
            blocks = c.select(c.compare(CmpIPredicate::Slt, first, queries)?, blocks, one)?;
        }
        let mut partly = one;
        if self.masks_earlier_tiles() {
            let whole = p.div_const(p.add_const(first, 1)?, self.keys)?;
            partly = p.min(p.max(p.sub(end, whole)?, one)?, blocks)?;
        }
        let far = far.map(|far| p.min(p.max(far, partly)?, blocks)).transpose()?;
        Ok(QueryTile {
            outer: around,
            first,
            end,
            blocks: [blocks, partly],
            first_key_tile: far,
            count,
            queries,
        })
    }
    /// Whether more key tiles than the last may be partly masked.
    fn masks_earlier_tiles(&self) -> bool {
        self.score.causal && self.warpgroups * ROWS != self.keys
    }
    /// The first key of a tile, counted from the last visible tile.
    pub(crate) fn first_key(&self, p: Ptx, query_tile: &QueryTile, back: Value) -> Result<Value> {
        p.mul_const(p.sub(p.add_signed(query_tile.end, -1)?, back)?, self.keys)
    }
    /// Loops over the query tiles of this CTA, with loop-carried values.
    pub(crate) fn for_each_tile(
        &self,
        c: Code,
        carried: &[Value],
        body: &mut QueryTileBody<'_>,
    ) -> Result<()> {
        c.for_dynamic_step(
            threads::block_id(c)?,
            self.tiles,
            threads::grid_dim(c)?,
            carried,
            &mut |c, tile, carried| body(c, &self.query_tile(c, tile)?, carried),
        )?;
        Ok(())
    }

    /// Issues the wgmmas of queries and keys.
    fn scores(&self, p: Ptx, queries: Value, stage: Value) -> Result<Value> {
        let mma = Mma {
            columns: self.keys,
            element: wgmma_type(self.pattern.element),
            a_k_major: true,
            b_k_major: true,
        };
        let (left, right) = (
            p.wgmma_descriptor(queries, true)?,
            p.wgmma_descriptor(self.stage_address(p, Pipeline::Keys, stage)?, true)?,
        );
        let mut sums = p.undef_accumulators(self.keys)?;
        p.wgmma_fence()?;
        for k in 0..(self.pattern.at.depth as usize).div_ceil(16) {
            let at = |rows: usize| k / 4 * rows * ROW + k % 4 * 32;
            let (left, right) = (
                p.advance_descriptor(left, at(self.warpgroups * ROWS))?,
                p.advance_descriptor(right, at(self.keys))?,
            );
            sums = p.wgmma(&mma, left, right, sums, k == 0)?;
        }
        p.wgmma_commit_group()?;
        Ok(sums)
    }
    /// Issues the wgmmas of exponentials and values.
    fn multiply_values(
        &self,
        p: Ptx,
        weights: &[Value],
        sums: &[Value],
        stage: Value,
    ) -> Result<Vec<Value>> {
        let right = p.wgmma_descriptor_strided(
            self.stage_address(p, Pipeline::Values, stage)?,
            self.keys * ROW,
        )?;
        let mut sums = sums.to_vec();
        p.wgmma_fence()?;
        for (k, left) in weights.chunks(4).enumerate() {
            sums = p.wgmma_register_operand(
                self.pattern.element,
                left,
                p.advance_descriptor(right, k * 16 * ROW)?,
                false,
                &sums,
            )?;
        }
        p.wgmma_commit_group()?;
        Ok(sums)
    }

    /// Masked scores, unscaled. Of 8 columns a thread has 2 adjacent ones, in a row and in the
    /// eighth row below.
    fn masked_scores(
        &self,
        c: Code,
        t: &Thread<'_>,
        scores: &[Value],
        back: Value,
        edges: Edges,
    ) -> Result<Vec<Value>> {
        let p = Ptx(c);
        let start = p.add(self.first_key(p, t.query_tile, back)?, t.column)?;
        let beyond = edges.last && self.partial_tiles[1];
        // The last visible column of each of the thread's rows, relative to the thread's first
        // column.
        let mut limits = vec![];
        for row in 0..2 {
            let ends = if beyond {
                Some(p.add_signed(p.sub(t.query_tile.count, start)?, -1)?)
            } else {
                None
            };
            let hidden = edges.last && self.score.causal;
            let own = if hidden { Some(p.sub(p.add_const(t.row, 8 * row)?, start)?) } else { None };
            limits.push(match (ends, own) {
                (Some(a), Some(b)) => Some(p.min(a, b)?),
                (a, b) => a.or(b),
            });
        }
        let last =
            if beyond { Some(p.max(p.add_signed(self.count, -1)?, p.number(0)?)?) } else { None };
        let mut known = self.score.tile(&t.scores, start, last, !edges.window);
        let low = c.number(f64::NEG_INFINITY, p.f32())?;
        let mut all = vec![];
        for (i, x) in scores.iter().enumerate() {
            let (row, column) = (i / 2 % 2, i / 4 * 8 + i % 2);
            let x = self.score.element(c, &mut known, *x, row, column)?;
            all.push(match limits[row] {
                Some(limit) => {
                    c.select(c.compare(CmpIPredicate::Sgt, p.number(column)?, limit)?, low, x)?
                }
                None => x,
            });
        }
        Ok(all)
    }
    /// Exponentials of the scores less the running maximum, and the factors that rescale earlier
    /// sums.
    fn exponentials(
        &self,
        c: Code,
        seen: &[Value],
        old: Option<&[SoftmaxState; 2]>,
    ) -> Result<Exponentials> {
        let p = Ptx(c);
        type BinaryBuilder = fn(Code, Value, Value) -> Result<Value>;
        let tree = |two: BinaryBuilder, mut all: Vec<Value>| -> Result<Value> {
            while all.len() > 1 {
                all = all
                    .chunks(2)
                    .map(|x| if let [a, b] = x { two(c, *a, *b) } else { Ok(x[0]) })
                    .collect::<Result<_>>()?;
            }
            all.first().copied().ok_or_else(|| "has no keys".to_string().into())
        };
        let number = |x: f64| c.number(x, p.f32());
        let scale = number(LOG2_E * self.score.factor)?;
        let (mut made, mut rows, mut factors) = (seen.to_vec(), vec![], [None; 2]);
        for row in 0..2 {
            let own: Vec<usize> = (0..seen.len()).filter(|i| i / 2 % 2 == row).collect();
            let most = tree(arith::maxnumf, own.iter().map(|i| seen[*i]).collect())?;
            let mut max = threads::butterfly(c, most, 4, &|a, b| arith::maxnumf(c, a, b))?;
            if let Some(old) = old {
                max = arith::maxnumf(c, max, old[row].max)?;
            }
            // A fully masked row has the maximum -inf: all of its exponentials are 0.
            let least = number(f64::from(f32::MIN))?;
            let (mut over, mut by, mut finite) = (arith::mulf(c, max, scale)?, scale, None);
            if self.score.is_scaled_only() {
                over = arith::maxnumf(c, over, least)?;
            } else {
                // A scaled score may overflow. Scores below the maximum then are so far from it
                // that any scale makes their exponential 0.
                let most = arith::maxnumf(c, max, least)?;
                let size = math::absf(c, over)?;
                let large = arith::cmpf(c, CmpFPredicate::Ogt, size, number(LARGE)?)?;
                by = c.select(large, number(0.5)?, scale)?;
                over = arith::mulf(c, most, by)?;
                finite = Some(most);
            }
            let over = arith::negf(c, over)?;
            for i in &own {
                made[*i] = p.exp2(math::fma(c, seen[*i], by, over)?)?;
            }
            let mut sum = tree(arith::addf, own.iter().map(|i| made[*i]).collect())?;
            if let Some(old) = old {
                let before = old[row].max;
                let power = match finite {
                    Some(most) => arith::mulf(c, arith::subf(c, before, most)?, scale)?,
                    None => math::fma(c, before, by, over)?,
                };
                let factor = p.exp2(power)?;
                sum = math::fma(c, old[row].sum, factor, sum)?;
                factors[row] = Some(factor);
            }
            rows.push(SoftmaxState { max, sum });
        }
        Ok((made, [rows[0], rows[1]], factors))
    }
    /// Packs exponentials as left fragments: of each 16 columns, both rows of the first 8, then
    /// both rows of the second 8.
    fn pack_fragments(&self, p: Ptx, made: &[Value]) -> Result<Vec<Value>> {
        made.chunks(2).map(|x| p.pack_pair(self.pattern.element, x[0], x[1])).collect()
    }

    fn release(&self, c: Code, t: &Thread<'_>, pipeline: Pipeline, stage: Value) -> Result<()> {
        c.if_else(
            t.elected,
            &mut |c| Ptx(c).mbarrier_arrive(self.empty_barrier(Ptx(c), pipeline, stage)?),
            None,
        )
    }
    /// The first key tile, whose scores nothing overlaps.
    fn first_tile(&self, c: Code, t: &Thread<'_>, keys: [Value; 2]) -> Result<LoopCarried> {
        let p = Ptx(c);
        p.mbarrier_wait(self.full_barrier(p, Pipeline::Keys, keys[0])?, keys[1])?;
        let scores = self.scores(p, t.queries, keys[0])?;
        let scores = p.wgmma_wait_group(0, &p.extract_accumulators(scores, self.keys / 2)?, &[])?;
        self.release(c, t, Pipeline::Keys, keys[0])?;
        let seen =
            self.masked_scores(c, t, &scores, p.number(0)?, Edges { last: true, window: true })?;
        let (made, rows, _) = self.exponentials(c, &seen, None)?;
        if self.pattern.at.limits.lengths[1].is_some() {
            self.zero_masked_values(c, t, keys)?;
        }
        let nothing = c.number(0.0, p.f32())?;
        let sums = vec![nothing; self.pattern.at.columns as usize / 2];
        Ok(LoopCarried {
            weights: self.pack_fragments(p, &made)?,
            accumulators: sums,
            rows,
            keys: self.next_stage(p, Pipeline::Keys, keys)?,
            values: keys,
        })
    }
    /// A key tile: its scores overlap the product with the previous tile's values.
    fn next_tile(
        &self,
        c: Code,
        t: &Thread<'_>,
        s: &LoopCarried,
        back: Value,
        edges: Edges,
    ) -> Result<LoopCarried> {
        let p = Ptx(c);
        p.mbarrier_wait(self.full_barrier(p, Pipeline::Keys, s.keys[0])?, s.keys[1])?;
        let scores = self.scores(p, t.queries, s.keys[0])?;
        let full = self.full_barrier(p, Pipeline::Values, s.values[0])?;
        p.mbarrier_wait(full, s.values[1])?;
        let sums = self.multiply_values(p, &s.weights, &s.accumulators, s.values[0])?;
        let scores = p.wgmma_wait_group(1, &p.extract_accumulators(scores, self.keys / 2)?, &[])?;
        self.release(c, t, Pipeline::Keys, s.keys[0])?;
        let seen = self.masked_scores(c, t, &scores, back, edges)?;
        let (made, rows, factors) = self.exponentials(c, &seen, Some(&s.rows))?;
        // Ends a basic block: otherwise ptxas sinks the exponentials below the wgmma wait.
        p.mbarrier_wait(full, s.values[1])?;
        // For the same reason the exponentials pass through that wait and are packed only after it:
        // otherwise ptxas serialises wgmma.
        let mut done = p.wgmma_wait_group(0, &[sums.as_slice(), &made].concat(), &s.weights)?;
        let made = done.split_off(sums.len());
        self.release(c, t, Pipeline::Values, s.values[0])?;
        let by = |i: usize| factors[i / 2 % 2].ok_or("has no earlier sums");
        let scaled = done.iter().enumerate().map(|(i, x)| arith::mulf(c, *x, by(i)?));
        let sums = scaled.collect::<Result<Vec<Value>>>()?;
        Ok(LoopCarried {
            weights: self.pack_fragments(p, &made)?,
            accumulators: sums,
            rows,
            keys: self.next_stage(p, Pipeline::Keys, s.keys)?,
            values: s.keys,
        })
    }
    /// A consumer warpgroup. `thread`: its thread, 0 to 127.
    fn consume(&self, c: Code, group: Value, thread: Value, warp: Value) -> Result<()> {
        let (zero, p) = (Ptx(c).number(0)?, Ptx(c));
        let lane = p.rem_const(thread, 32)?;
        let high = p.add(p.mul_const(p.rem_const(warp, 4)?, 16)?, p.div_const(lane, 4)?)?;
        let (row, column) =
            (p.add(p.mul_const(group, ROWS)?, high)?, p.mul_const(p.rem_const(lane, 4)?, 2)?);
        let elected = p.eq_const(lane, 0)?;
        self.for_each_tile(c, &[zero; 4], &mut |c, query_tile, carried| {
            let (p, query) = (Ptx(c), [carried[0], carried[1]]);
            let row = p.add(query_tile.first, row)?;
            // Rows out of bounds read what the last row reads, and are not stored.
            let last = p.add_signed(self.queries, -1)?;
            let there = |row: Value| if self.partial_tiles[0] { p.min(row, last) } else { Ok(row) };
            let known = self.score.rows(
                c,
                &query_tile.outer,
                [there(row)?, there(p.add_const(row, 8)?)?],
            )?;
            let queries = p.add(
                self.stage_address(p, Pipeline::Queries, query[0])?,
                p.mul_const(group, ROWS * ROW)?,
            )?;
            let t = Thread {
                query_tile,
                elected,
                lane,
                row,
                column,
                scores: known,
                queries,
                group: [group, thread],
            };
            p.mbarrier_wait(self.full_barrier(p, Pipeline::Queries, query[0])?, query[1])?;
            let first = self.first_tile(c, &t, [carried[2], carried[3]])?;
            let (mut state, mut from) = (first.flat(), p.i32_to_index(p.number(1)?)?);
            let one = c.index(1)?;
            let mut some = |to: Value, last: bool, far: bool| -> Result<()> {
                let to = p.i32_to_index(to)?;
                state = c.for_dynamic_step(from, to, one, &state, &mut |c, back, state| {
                    Ok(self
                        .next_tile(
                            c,
                            &t,
                            &first.like(state),
                            Ptx(c).index_to_i32(back)?,
                            Edges { last, window: far },
                        )?
                        .flat())
                })?;
                from = to;
                Ok(())
            };
            if self.masks_earlier_tiles() {
                some(query_tile.blocks[1], true, true)?;
            }
            if let Some(far) = query_tile.first_key_tile {
                some(far, false, false)?;
            }
            some(query_tile.blocks[0], false, true)?;
            let state = first.like(&state);
            self.release(c, &t, Pipeline::Queries, query[0])?;
            p.mbarrier_wait(
                self.full_barrier(p, Pipeline::Values, state.values[0])?,
                state.values[1],
            )?;
            let sums =
                self.multiply_values(p, &state.weights, &state.accumulators, state.values[0])?;
            let sums = p.wgmma_wait_group(0, &sums, &state.weights)?;
            self.release(c, &t, Pipeline::Values, state.values[0])?;
            self.finish(c, &t, &sums, &state.rows)?;
            Ok([self.next_stage(p, Pipeline::Queries, query)?, state.keys].concat())
        })
    }
}

/// Emits the kernel. `maps`: the tensor maps of queries, keys and values.
pub fn emit(c: Code, scope: &Scope<'_>, params: &Params, maps: &[Value]) -> Result<()> {
    let missing = "is no attention that wgmma and TMA take";
    let pattern = FlashPattern::of(scope.kernel).ok_or(missing)?;
    let maps =
        <[Value; 3]>::try_from(maps).map_err(|_| "has no parameters for three tensor maps")?;
    let (outer, queries, count) = pattern.at.sizes(scope.kernel).ok_or("has no loops")?;
    let (groups, keys) = (params.warpgroups, params.block_kv);
    let even = |p: &Poly, by: usize| !p.is_zero() && p.multiple_of(by as i64);
    let ragged = [
        !even(queries, groups * ROWS),
        !even(count, keys) || pattern.at.limits.lengths[1].is_some(),
    ];
    let around: Vec<Value> = outer.iter().map(|n| scope.poly(c, n)).collect::<Result<_>>()?;
    let (queries, count, p) = (scope.poly(c, queries)?, scope.poly(c, count)?, Ptx(c));
    let down = c.ceil_div(queries, c.index((groups * ROWS) as i64)?)?;
    let total = around.iter().try_fold(down, |a, b| c.mul(a, *b))?;
    let f = Flash {
        scope,
        pattern: &pattern,
        score: Score::of(scope, &pattern.at)?,
        maps,
        warpgroups: groups,
        keys,
        kv_stages: params.kv_stages,
        q_stages: params.q_stages,
        bytes: pattern.bytes(params),
        base: p.dynamic_shared(scope.kernel.func)?,
        outer_sizes: around,
        queries: p.index_to_i32(queries)?,
        count: p.index_to_i32(count)?,
        tiles_per_outer: down,
        tiles: total,
        partial_tiles: ragged,
    };
    let mut barriers = |c: Code| {
        let p = Ptx(c);
        for pipeline in [Pipeline::Queries, Pipeline::Keys, Pipeline::Values] {
            for i in 0..f.stage_layout(pipeline).2 {
                p.mbarrier_init(f.full_barrier(p, pipeline, p.number(i)?)?, 1)?;
                p.mbarrier_init(f.empty_barrier(p, pipeline, p.number(i)?)?, groups * WARPS)?;
            }
        }
        Ok(())
    };
    let roles = warp_specialisation::WarpRoles {
        registers: *REGISTERS.get(groups - 1).ok_or(missing)?,
        barriers: &mut barriers,
        copied: None,
        copies: &mut |c| f.produce(c),
        multiplies: &mut |c, group, thread, warp| f.consume(c, group, thread, warp),
    };
    warp_specialisation::emit(c, roles)
}
