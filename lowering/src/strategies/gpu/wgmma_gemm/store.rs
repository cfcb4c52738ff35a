//! The epilogue through shared memory: a warp stages 16 rows of 128 bytes, and TMA stores them
//! while the next ones are computed. Where rows are not 16-byte aligned, the warp stores them row
//! by row.
use crate::{
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::{
        common::ptx::Ptx,
        wgmma_gemm::{
            DEPTH, ROW, STORED,
            staged_results::StagedResult,
            tile::{Fragments, WgmmaTile},
        },
    },
};
use kiln_dialects::ir::*;

/// A scope in which the stages keep these results in registers.
pub(super) fn without_stores<'a>(scope: &Scope<'a>, staged_results: &[StagedResult]) -> Scope<'a> {
    let mut memory = scope.memory.clone();
    for s in staged_results {
        if let Some(m) = memory.get_mut(s.access.buffer) {
            *m = None;
        }
    }
    Scope { memory, ..scope.clone() }
}

/// A warp's staging buffers.
struct Staging<'a> {
    /// The results, with the tensor maps of those that TMA stores.
    results: Vec<(&'a StagedResult, Option<Value>)>,
    /// The base of its two buffers.
    memory: Value,
    lane: Value,
    elected: Value,
    /// Buffers used so far for this tile.
    used: usize,
    /// Whether a tile may begin with the buffer that the previous tile used last.
    odd: bool,
    /// Whether TMA stores all results, so that the two buffers alternate.
    all: bool,
}

impl Staging<'_> {
    /// A buffer that no TMA store still reads.
    fn next_buffer(&mut self, c: Code) -> Result<Value> {
        let left = usize::from(self.all && !(self.odd && self.used == 0));
        c.if_else(self.elected, &mut |c| Ptx(c).tma_store_wait(left, false), None)?;
        Ptx(c).warp_barrier()?;
        let at = Ptx(c).add_const(self.memory, self.used % 2 * STORED * ROW)?;
        self.used += 1;
        Ok(at)
    }
    /// The address of 16-byte chunk `chunk` of a row, under the 128-byte swizzle.
    fn chunk_address(&self, p: Ptx, tile_coord: Value, row: Value, chunk: Value) -> Result<Value> {
        let swizzled = arith::xori(p.0, chunk, p.rem_const(row, 8)?)?;
        p.add(tile_coord, p.add(p.mul_const(row, ROW)?, p.mul_const(swizzled, 16)?)?)
    }
    /// Stages pairs of 16-bit elements by stmatrix: for each 8 columns, the upper and the lower 8
    /// rows.
    fn stage_16_bit(&self, p: Ptx, tile_coord: Value, pairs: &[[Value; 2]]) -> Result<()> {
        let (row, right) = (p.rem_const(self.lane, 16)?, p.div_const(self.lane, 16)?);
        for (i, unpack_pair) in pairs.chunks(2).enumerate() {
            let [[a, b], [c, d]] = unpack_pair else {
                return Err("has an odd number of columns".into());
            };
            let parts = [
                p.pack_elements(*a)?,
                p.pack_elements(*b)?,
                p.pack_elements(*c)?,
                p.pack_elements(*d)?,
            ];
            p.stmatrix(self.chunk_address(p, tile_coord, row, p.add_const(right, 2 * i)?)?, parts)?;
        }
        Ok(())
    }
    /// Stages pairs of 32-bit elements.
    fn stage_32_bit(&self, p: Ptx, tile_coord: Value, pairs: &[[Value; 2]]) -> Result<()> {
        let (row, pair) = (p.div_const(self.lane, 4)?, p.rem_const(self.lane, 4)?);
        for (i, halves) in pairs.iter().enumerate() {
            for (half, v) in halves.iter().enumerate() {
                let at = self.chunk_address(
                    p,
                    tile_coord,
                    p.add_const(row, 8 * half)?,
                    p.add_const(p.div_const(pair, 2)?, 2 * i)?,
                )?;
                p.store_shared(p.add(at, p.mul_const(p.rem_const(pair, 2)?, 8)?)?, *v, 8)?;
            }
        }
        Ok(())
    }
}

impl WgmmaTile<'_> {
    /// Runs the epilogue on a warpgroup's accumulators and stores the staged results.
    pub(super) fn store(&self, c: Code, scope: &Scope<'_>, f: &Fragments<'_>) -> Result<()> {
        let p = Ptx(c);
        let Fragments { coord: tile_coord, warpgroup: group, thread, warp, values } = f;
        let (group, thread, warp) = (*group, *thread, *warp);
        let lane = p.rem_const(thread, 32)?;
        let own = p.add(p.mul_const(group, 4)?, p.rem_const(warp, 4)?)?;
        let slices = self.operand_columns() / DEPTH * values.len();
        let places: usize =
            self.staged_results.iter().map(|(s, _)| DEPTH / s.columns()).sum::<usize>() * slices;
        let mut staging = Staging {
            results: self.staged_results.iter().map(|(s, map)| (s, *map)).collect(),
            memory: p.add(self.staging(p)?, p.mul_const(own, 2 * STORED * ROW)?)?,
            lane,
            elected: p.eq_const(lane, 0)?,
            used: 0,
            odd: places % 2 == 1,
            all: self.staged_results.iter().all(|(_, map)| map.is_some()),
        };
        let batch: Vec<Value> =
            tile_coord.batch.iter().map(|b| p.index_to_i32(*b)).collect::<Result<_>>()?;
        let warp_row =
            p.add(self.warpgroup_row(p, group)?, p.mul_const(p.rem_const(warp, 4)?, STORED)?)?;
        let (row0, column0) = (p.add(tile_coord.row, warp_row)?, tile_coord.column);
        let (rows, columns, [whole_rows, whole_columns]) =
            (self.results.rows(c)?, self.results.columns(c)?, self.results.is_full());
        // Static column count of a result that fits one tile.
        let known = self.results.known_columns().filter(|n| *n <= self.operand_columns() as i64);
        let mine = p.add(row0, p.div_const(lane, 4)?)?;
        let over = p.add(column0, p.mul_const(p.rem_const(lane, 4)?, 2)?)?;
        let lanes = self.results.lanes();
        for (b, sums) in values.iter().enumerate() {
            for slice in 0..self.operand_columns() / DEPTH {
                // By result, by 8 columns, by upper or lower 8 rows.
                let mut found: Vec<Vec<[Value; 2]>> = vec![vec![]; staging.results.len()];
                for eight in 8 * slice..8 * slice + 8 {
                    // Columns beyond the result are not computed; TMA clips them.
                    if known.is_some_and(|n| n <= 8 * eight as i64) {
                        for ((s, _), all) in staging.results.iter().zip(&mut found) {
                            all.push([nothing(c, s)?; 2]);
                        }
                        continue;
                    }
                    let mut halves: Vec<Vec<Value>> = vec![vec![]; staging.results.len()];
                    for half in 0..2 {
                        let row = p.i32_to_index(p.add_const(mine, 64 * b + 8 * half)?)?;
                        let row = inside(c, row, rows, whole_rows, 1)?;
                        let mut passed: Vec<ForwardedElements> = vec![];
                        for e in (0..2).step_by(lanes.count) {
                            let own: Vec<&[Value]> = sums
                                .iter()
                                .map(|s| &s[4 * eight + 2 * half + e..][..lanes.count])
                                .collect();
                            let column = p.i32_to_index(p.add_const(over, 8 * eight + e)?)?;
                            let column = inside(c, column, columns, whole_columns, lanes.count)?;
                            passed.push(self.results.element(
                                c,
                                scope,
                                lanes,
                                &tile_coord.batch,
                                [row, column],
                                &own,
                            )?);
                        }
                        for (i, (s, _)) in staging.results.iter().enumerate() {
                            let all = passed.iter().map(|p| {
                                p.get(&s.access)
                                    .copied()
                                    .ok_or("has a result that no stage computes")
                            });
                            halves[i].push(pair(
                                c,
                                lanes,
                                &all.collect::<Result<Vec<LaneValue>, _>>()?,
                            )?);
                        }
                    }
                    for (all, unpack_pair) in found.iter_mut().zip(halves) {
                        all.push(
                            <[Value; 2]>::try_from(unpack_pair).map_err(|_| "has no two halves")?,
                        );
                    }
                }
                for ((s, map), found) in staging.results.clone().into_iter().zip(found) {
                    let eights = s.columns() / 8;
                    for (part, pairs) in found.chunks(eights).enumerate() {
                        let memory = staging.next_buffer(c)?;
                        if s.element.byte_size() == 2 {
                            staging.stage_16_bit(p, memory, pairs)?
                        } else {
                            staging.stage_32_bit(p, memory, pairs)?
                        }
                        let column = p.add_const(column0, slice * DEPTH + part * s.columns())?;
                        let row = p.add_const(row0, 64 * b)?;
                        let Some(map) = map else {
                            p.warp_barrier()?;
                            self.lines(c, s, &staging, memory, &tile_coord.batch, [row, column])?;
                            continue;
                        };
                        p.fence_proxy_async()?;
                        p.warp_barrier()?;
                        let at = [&[column, row], batch.as_slice()].concat();
                        c.if_else(
                            staging.elected,
                            &mut |c| Ptx(c).tma_store(map, memory, &at),
                            None,
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl WgmmaTile<'_> {
    /// Stores the rows of a staging buffer. A warp stores a row of 32-bit elements as it is, one of
    /// 16-bit elements as 32 pairs aligned to 4 bytes, plus the unaligned elements at either end.
    fn lines(
        &self,
        c: Code,
        s: &StagedResult,
        staging: &Staging<'_>,
        tile_coord: Value,
        batch: &[Value],
        [row, column]: [Value; 2],
    ) -> Result<()> {
        let (t, width) = (&self.results, s.columns() as i64);
        let (rows, columns, memory) = (t.rows(c)?, t.columns(c)?, t.scope.buffer(s.access.buffer)?);
        let element = memory.ty().element().ok_or("writes to what is no buffer")?;
        let (row, column, lane) = (
            Ptx(c).i32_to_index(row)?,
            Ptx(c).i32_to_index(column)?,
            Ptx(c).i32_to_index(staging.lane)?,
        );
        let single = Lanes { count: 1, mask: None };
        c.for_dynamic_step(
            c.index(0)?,
            c.index(STORED as i64)?,
            c.index(1)?,
            &[],
            &mut |c, r, _| {
                let at = c.add(row, r)?;
                let mut line = |c: Code| -> Result<()> {
                    let dims = t.dims(c, batch, at, LaneValue::Uniform(column))?;
                    let LaneValue::Uniform(begin) =
                        t.scope.address(c, &s.access.at, &dims, single)?
                    else {
                        return Err("has a row of addresses".into());
                    };
                    let (size, each) = (s.element.byte_size(), 16 / s.element.byte_size());
                    let read = |c: Code, e: Value| -> Result<Value> {
                        let (p, e) = (Ptx(c), Ptx(c).index_to_i32(e)?);
                        let at = p.add(
                            staging.chunk_address(
                                p,
                                tile_coord,
                                p.index_to_i32(r)?,
                                p.div_const(e, each)?,
                            )?,
                            p.mul_const(p.rem_const(e, each)?, size)?,
                        )?;
                        p.load_shared(at, element)
                    };
                    let there = |c: Code, e: Value| -> Result<Value> {
                        let (inside, left) = (
                            c.less_than(e, c.index(width)?)?,
                            c.less_than(c.add(column, e)?, columns)?,
                        );
                        c.all_of(&[inside, left])?.ok_or_else(|| "has no bounds".to_string().into())
                    };
                    let one = |c: Code, e: Value| -> Result<()> {
                        let store = &mut |c: Code| {
                            single.store(
                                c,
                                memory,
                                LaneValue::Uniform(c.add(begin, e)?),
                                LaneValue::Uniform(read(c, e)?),
                                false,
                            )
                        };
                        c.if_else(there(c, e)?, store, None)
                    };
                    if size == 4 {
                        return one(c, lane);
                    }
                    let odd = c.rem(begin, c.index(2)?)?;
                    let first = c.add(c.mul(lane, c.index(2)?)?, odd)?;
                    let second = c.add(first, c.index(1)?)?;
                    let mut unpack_pair = |c: Code| -> Result<()> {
                        let all = [read(c, first)?, read(c, second)?];
                        let both = vector::from_elements(c, &all, Type::vector(element, 2))?;
                        Lanes { count: 2, mask: None }.store(
                            c,
                            memory,
                            LaneValue::Strided(c.add(begin, first)?, 1),
                            LaneValue::Vector(both),
                            false,
                        )
                    };
                    c.if_else(there(c, second)?, &mut unpack_pair, Some(&mut |c| one(c, first)))?;
                    let front = c
                        .all_of(&[
                            c.compare(CmpIPredicate::Eq, odd, c.index(1)?)?,
                            staging.elected,
                        ])?
                        .ok_or("has no bounds")?;
                    c.if_else(front, &mut |c| one(c, c.index(0)?), None)
                };
                c.if_else(c.less_than(at, rows)?, &mut line, None).map(|()| vec![])
            },
        )?;
        // Reconverge: wgmma needs whole warps.
        Ptx(c).warp_barrier()
    }
}

/// Clamps an index so that `count` elements from it are in bounds. What is computed out of bounds
/// is not stored.
fn inside(c: Code, i: Value, size: Value, whole: bool, count: usize) -> Result<Value> {
    if whole { Ok(i) } else { c.min(i, c.sub(size, c.index(count as i64)?)?) }
}

/// A placeholder for two adjacent elements that are not stored.
fn nothing(c: Code, s: &StagedResult) -> Result<Value> {
    c.number(0.0, Type::vector(Type::scalar(c.ctx(), s.element), 2))
}

/// Two adjacent elements as a vector.
fn pair(c: Code, lanes: Lanes, all: &[LaneValue]) -> Result<Value> {
    match all {
        [one] => lanes.vector(c, *one),
        _ => {
            let single = Lanes { count: 1, mask: None };
            let values: Vec<Value> =
                all.iter().map(|v| single.vector(c, *v)).collect::<Result<_>>()?;
            let ty = values.first().ok_or("has no values")?.ty();
            vector::from_elements(c, &values, Type::vector(ty, values.len()))
        }
    }
}
