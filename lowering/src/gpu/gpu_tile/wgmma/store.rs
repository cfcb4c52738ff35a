//! Results of a product through shared memory: a warp puts 16 rows of 128 bytes together, and the copy engine writes them while the next ones are computed.
use super::{Fragments, Tile};
use crate::{
    emit::{
        body::{Passed, Scope},
        code::{Code, Made},
        lanes::{Lanes, Val},
    },
    gpu::{
        gpu_schedule::wgmma::{DEPTH, ROW, STORED, Stored},
        gpu_tile::ptx::Ptx,
    },
};
use kiln_dialects::ir::*;

/// A scope whose stages keep these results in registers.
pub fn without<'a>(scope: &Scope<'a>, stored: &[Stored]) -> Scope<'a> {
    let mut memory = scope.memory.clone();
    for s in stored {
        if let Some(m) = memory.get_mut(s.access.buffer) {
            *m = None;
        }
    }
    Scope { memory, ..scope.clone() }
}

/// Where a warp puts its rows together.
struct Staging<'a> {
    /// The results, and the parameters that describe them.
    results: Vec<(&'a Stored, Value)>,
    /// Its two places.
    memory: Value,
    lane: Value,
    speaks: Value,
    /// Places taken so far for this tile.
    taken: usize,
    /// Whether the first place of a tile may be the last one of the tile before.
    odd: bool,
}

impl Staging<'_> {
    /// A place that no store still reads.
    fn place(&mut self, c: Code) -> Made<Value> {
        let left = usize::from(!(self.odd && self.taken == 0));
        c.when(self.speaks, &mut |c| Ptx(c).stored(left, false), None)?;
        Ptx(c).warp_barrier()?;
        let at = Ptx(c).plus(self.memory, self.taken % 2 * STORED * ROW)?;
        self.taken += 1;
        Ok(at)
    }
    /// An address in a place: 16 bytes number `chunk` of a row, in the order of the 128-byte swizzle.
    fn at(&self, p: Ptx, place: Value, row: Value, chunk: Value) -> Made<Value> {
        let swizzled = p.0.op("arith.xori", &[chunk, p.rest(row, 8)?], chunk.ty(), &[])?;
        p.add(place, p.add(p.times(row, ROW)?, p.times(swizzled, 16)?)?)
    }
    /// Writes pairs of 16-bit elements, two halves of each 8 columns.
    fn narrow(&self, p: Ptx, place: Value, pairs: &[[Value; 2]]) -> Made<()> {
        let (row, right) = (p.rest(self.lane, 16)?, p.over(self.lane, 16)?);
        for (i, two) in pairs.chunks(2).enumerate() {
            let [[a, b], [c, d]] = two else { return Err("has an odd number of columns".into()) };
            let parts = [p.packed(*a)?, p.packed(*b)?, p.packed(*c)?, p.packed(*d)?];
            p.matrices(self.at(p, place, row, p.plus(right, 2 * i)?)?, parts)?;
        }
        Ok(())
    }
    /// Writes pairs of 32-bit elements.
    fn wide(&self, p: Ptx, place: Value, pairs: &[[Value; 2]]) -> Made<()> {
        let (row, pair) = (p.over(self.lane, 4)?, p.rest(self.lane, 4)?);
        for (i, halves) in pairs.iter().enumerate() {
            for (half, v) in halves.iter().enumerate() {
                let at = self.at(p, place, p.plus(row, 8 * half)?, p.plus(p.over(pair, 2)?, 2 * i)?)?;
                p.write(p.add(at, p.times(p.rest(pair, 2)?, 8)?)?, *v, 8)?;
            }
        }
        Ok(())
    }
}

impl Tile<'_> {
    /// Later stages on the sums of a group, and results that the copy engine writes.
    pub fn store(&self, c: Code, scope: &Scope<'_>, f: &Fragments<'_>) -> Made<()> {
        let p = Ptx(c);
        let Fragments { place, group, thread, warp, values } = f;
        let (group, thread, warp) = (*group, *thread, *warp);
        let lane = p.rest(thread, 32)?;
        let own = p.add(p.times(group, 4)?, p.rest(warp, 4)?)?;
        let slabs = self.across() / DEPTH * values.len();
        let places: usize = self.stored.iter().map(|(s, _)| DEPTH / s.columns()).sum::<usize>() * slabs;
        let mut staging = Staging {
            results: self.stored.iter().map(|(s, map)| (s, *map)).collect(),
            memory: p.add(self.staging(p)?, p.times(own, 2 * STORED * ROW)?)?,
            lane,
            speaks: p.is(lane, 0)?,
            taken: 0,
            odd: places % 2 == 1,
        };
        let batch: Vec<Value> = place.batch.iter().map(|b| p.of(*b)).collect::<Made<_>>()?;
        let warp_row = p.add(self.own_row(p, group)?, p.times(p.rest(warp, 4)?, STORED)?)?;
        let (row0, column0) = (p.add(place.row, warp_row)?, place.column);
        let (rows, columns, [whole_rows, whole_columns]) = (self.results.rows(c)?, self.results.columns(c)?, self.results.whole());
        let mine = p.add(row0, p.over(lane, 4)?)?;
        let over = p.add(column0, p.times(p.rest(lane, 4)?, 2)?)?;
        let lanes = self.results.lanes();
        for (b, sums) in values.iter().enumerate() {
            for slab in 0..self.across() / DEPTH {
                // By result, by 8 columns, by half.
                let mut found: Vec<Vec<[Value; 2]>> = vec![vec![]; staging.results.len()];
                for eight in 8 * slab..8 * slab + 8 {
                    let mut halves: Vec<Vec<Value>> = vec![vec![]; staging.results.len()];
                    for half in 0..2 {
                        let row = p.index(p.plus(mine, 64 * b + 8 * half)?)?;
                        let row = inside(c, row, rows, whole_rows, 1)?;
                        let mut passed: Vec<Passed> = vec![];
                        for e in (0..2).step_by(lanes.count) {
                            let own: Vec<&[Value]> = sums.iter().map(|s| &s[4 * eight + 2 * half + e..][..lanes.count]).collect();
                            let column = p.index(p.plus(over, 8 * eight + e)?)?;
                            let column = inside(c, column, columns, whole_columns, lanes.count)?;
                            passed.push(self.results.element(c, scope, lanes, &place.batch, [row, column], &own)?);
                        }
                        for (i, (s, _)) in staging.results.iter().enumerate() {
                            let all = passed.iter().map(|p| p.get(&s.access).copied().ok_or("has a result that no stage computes"));
                            halves[i].push(pair(c, lanes, &all.collect::<Result<Vec<Val>, _>>()?)?);
                        }
                    }
                    for (all, two) in found.iter_mut().zip(halves) {
                        all.push(<[Value; 2]>::try_from(two).map_err(|_| "has no two halves")?);
                    }
                }
                for ((s, map), found) in staging.results.clone().into_iter().zip(found) {
                    let eights = s.columns() / 8;
                    for (part, pairs) in found.chunks(eights).enumerate() {
                        let memory = staging.place(c)?;
                        if s.element.byte_size() == 2 {
                            staging.narrow(p, memory, pairs)?
                        } else {
                            staging.wide(p, memory, pairs)?
                        }
                        p.release()?;
                        p.warp_barrier()?;
                        let column = p.plus(column0, slab * DEPTH + part * s.columns())?;
                        let at = [&[column, p.plus(row0, 64 * b)?], batch.as_slice()].concat();
                        c.when(staging.speaks, &mut |c| Ptx(c).store(map, memory, &at), None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// An index, or the last one from which `count` are there: what is computed beyond the tensor is not stored.
fn inside(c: Code, i: Value, size: Value, whole: bool, count: usize) -> Made<Value> {
    if whole { Ok(i) } else { c.min(i, c.sub(size, c.index(count as i64)?)?) }
}

/// Two neighbours as a vector.
fn pair(c: Code, lanes: Lanes, all: &[Val]) -> Made<Value> {
    match all {
        [one] => lanes.many(c, *one),
        _ => {
            let single = Lanes { count: 1, mask: None };
            let values: Vec<Value> = all.iter().map(|v| single.many(c, *v)).collect::<Made<_>>()?;
            let ty = values.first().ok_or("has no values")?.ty();
            c.op("vector.from_elements", &values, Type::vector(ty, values.len()), &[])
        }
    }
}
