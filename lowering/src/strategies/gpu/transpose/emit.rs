//! Transposes through shared memory: a CTA loads tiles along the source's contiguous dimension
//! (`load_dim`), waits, and computes along its own (`store_dim`).
//!
//! A tile has a row for each index along `load_dim`, of `store_dim` elements in units of 16 bytes,
//! so that a thread loads contiguous elements along `store_dim` in one access. Eight threads of a
//! warp read 128 bytes along `load_dim` and store element by element down eight groups of rows.
//!
//! Swizzle: unit `u` of group `g` is at `u ^ g`. This puts the eight threads' stores in eight
//! different units of banks, and the four threads beside them in the words of each. (With scalar
//! loads, two elements of 2 bytes and four of 1 byte share a bank.)
use crate::{
    analysis::{Access, Nest, NestPlan, Role},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::decode,
        partials,
    },
    strategies::gpu::{
        common::{grid_stride, shared, threads, vector_width::bytes},
        transpose::{Params, TransposedNest, transposed_nest},
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

/// Threads of a warp that read contiguous runs of 16 bytes each.
const THREADS_PER_RUN: usize = 8;
/// Most accesses that a thread keeps in flight.
const AT_ONCE: usize = 8;

/// Body over indices, each with the predicate that it exists.
type Numbered<'a> = dyn FnMut(Code, &[(Value, Option<Value>)]) -> Result<()> + 'a;

/// A tile in shared memory.
struct StagedOperand<'a> {
    access: &'a Access,
    memory: Value,
    /// Vector width of loads along `load_dim`.
    width: usize,
    /// Elements in 16 bytes.
    unit: usize,
    /// Neighbouring threads of a warp along `load_dim`.
    threads_per_run: usize,
}

/// What all parts of the emission share.
struct TransposeTile<'a> {
    scope: &'a Scope<'a>,
    nest: &'a Nest,
    transposed_nest: &'a TransposedNest,
    threads: usize,
    /// Tile extents in both dimensions.
    load_extent: usize,
    store_extent: usize,
    /// Vector width of stores.
    lanes: usize,
    thread: Value,
}

/// Origin of a tile: indices of the loops around it, and along both dimensions.
struct TileOrigin {
    outer: Vec<(usize, Value)>,
    load: Value,
    store: Value,
}

/// Emits all nests of a kernel of which one is transposed.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    params: &Params,
    threads: usize,
) -> Result<()> {
    let k = scope.kernel;
    let transposed_nest = transposed_nest(k, plan)
        .ok_or("has no operand in another dimension order than its result")?;
    let (nest, down, over) =
        (&plan.nests[transposed_nest.nest], params.tile_rows, params.tile_columns);
    let accesses = transposed_nest.tiles(k, params)?;
    let side = |access| -> Result<StagedOperand<'_>> {
        let size = bytes(k, access);
        let width = transposed_nest.read_width(k, plan, access);
        let element = k.buffers.get(access.buffer).ok_or("has no such operand")?.element;
        // Each row's run is whole sectors of 32 bytes.
        let beside = THREADS_PER_RUN.max(2 * 16 / (size * width)).min(down / width).min(WARP);
        Ok(StagedOperand {
            access,
            memory: shared(c, element, (down * over) as i64)?,
            width,
            unit: 16 / size,
            threads_per_run: beside,
        })
    };
    let sides: Vec<StagedOperand<'_>> = accesses.iter().map(side).collect::<Result<_>>()?;
    let lanes = transposed_nest.write_width(k, plan).min(params.vector);
    let tile = TransposeTile {
        scope,
        nest,
        transposed_nest: &transposed_nest,
        threads,
        load_extent: down,
        store_extent: over,
        lanes,
        thread: threads::thread_id(c)?,
    };

    let outer = transposed_nest.outer(nest);
    let mut sizes: Vec<Value> =
        outer.iter().map(|d| scope.poly(c, &nest.extents[*d])).collect::<Result<_>>()?;
    for (d, size) in [(transposed_nest.load_dim, down), (transposed_nest.store_dim, over)] {
        sizes.push(c.ceil_div(scope.poly(c, &nest.extents[d])?, c.index(size as i64)?)?);
    }
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    threads::for_each_tile(c, total, &[], &mut |c, i, _| {
        let mut indices = decode(c, i, &sizes)?;
        let begin =
            |i: Option<Value>, size: usize| c.mul(i.ok_or("has no loops")?, c.index(size as i64)?);
        let (x, y) = (begin(indices.pop(), over)?, begin(indices.pop(), down)?);
        let at =
            TileOrigin { outer: outer.iter().copied().zip(indices).collect(), load: y, store: x };
        sides.iter().try_for_each(|s| tile.stage_operand(c, s, &at))?;
        threads::barrier(c)?;
        tile.compute(c, &sides, &at)?;
        // WAR barrier: the next tile overwrites this one in shared memory.
        threads::barrier(c)?;
        Ok(vec![])
    })?;
    plan.nests
        .iter()
        .enumerate()
        .filter(|(n, _)| *n != transposed_nest.nest)
        .try_for_each(|(_, n)| grid_stride::grid(c, scope, plan, n, threads, (lanes, 1), None))
}

impl TransposeTile<'_> {
    /// Shares `count` indices among the CTA's threads, several at once. An index beyond them is
    /// clamped, and its predicate is false.
    fn share(&self, c: Code, count: usize, body: &mut Numbered<'_>) -> Result<()> {
        let rounds = count.div_ceil(self.threads);
        let at_once = rounds.min(AT_ONCE);
        let even = count.is_multiple_of(self.threads);
        let step = (at_once * self.threads) as i64;
        c.for_loop(
            c.index(0)?,
            c.index((rounds * self.threads) as i64)?,
            step,
            &[],
            &mut |c, first, _| {
                let mut all = vec![];
                for n in 0..at_once {
                    let i =
                        c.add(c.add(self.thread, first)?, c.index((n * self.threads) as i64)?)?;
                    all.push(if even {
                        (i, None)
                    } else {
                        let there = c.less_than(i, c.index(count as i64)?)?;
                        (c.select(there, i, c.index(0)?)?, Some(there))
                    });
                }
                body(c, &all).map(|()| vec![])
            },
        )
        .map(drop)
    }

    /// A clamped index along a dimension, and the predicate that it is in bounds; `None` if always.
    fn inside(&self, c: Code, d: usize, i: Value, tile: usize) -> Result<(Value, Option<Value>)> {
        let size = &self.nest.extents[d];
        if size.multiple_of(tile as i64) {
            return Ok((i, None));
        }
        let there = c.less_than(i, self.scope.poly(c, size)?)?;
        Ok((c.select(there, i, c.index(0)?)?, Some(there)))
    }

    /// Loop dimensions as values, of which one may be a vector's.
    fn dims(&self, at: &TileOrigin, down: LaneValue, over: LaneValue) -> Result<Vec<LaneValue>> {
        let around =
            |d: usize| at.outer.iter().find(|(e, _)| *e == d).map(|(_, i)| LaneValue::Uniform(*i));
        let of = |d: usize| match d {
            d if d == self.transposed_nest.load_dim => Ok(down),
            d if d == self.transposed_nest.store_dim => Ok(over),
            d => around(d).ok_or_else(|| "has a loop that is not there".into()),
        };
        (0..self.nest.extents.len()).map(of).collect()
    }

    /// Shared-memory address of tile element (`i`, `j`), with `i` in this group of rows.
    fn address(
        &self,
        c: Code,
        side: &StagedOperand<'_>,
        group: Value,
        i: Value,
        j: Value,
    ) -> Result<Value> {
        let unit = c.index(side.unit as i64)?;
        let mask = c.index((self.store_extent / side.unit) as i64 - 1)?;
        let key = arith::andi(c, group, mask)?;
        let block = arith::xori(c, c.div(j, unit)?, key)?;
        let column = c.add(c.mul(block, unit)?, c.rem(j, unit)?)?;
        c.add(c.mul(i, c.index(self.store_extent as i64)?)?, column)
    }

    /// Loads an operand along its own contiguous dimension and stores it to shared memory.
    /// Out-of-bounds indices are clamped.
    fn stage_operand(&self, c: Code, side: &StagedOperand<'_>, at: &TileOrigin) -> Result<()> {
        let each = Lanes { count: side.width, mask: None };
        let wide = c.index(side.width as i64)?;
        let (beside, over) =
            (c.index(side.threads_per_run as i64)?, c.index(self.store_extent as i64)?);
        self.share(c, self.load_extent / side.width * self.store_extent, &mut |c, all| {
            let mut read = vec![];
            for (n, there) in all {
                let rest = c.div(*n, beside)?;
                let group = c.add(c.mul(c.div(rest, over)?, beside)?, c.rem(*n, beside)?)?;
                let (i, j) = (c.mul(group, wide)?, c.rem(rest, over)?);
                let (x, _) = self.inside(
                    c,
                    self.transposed_nest.store_dim,
                    c.add(at.store, j)?,
                    self.store_extent,
                )?;
                let (y, _) = self.inside(
                    c,
                    self.transposed_nest.load_dim,
                    c.add(at.load, i)?,
                    self.load_extent,
                )?;
                let y =
                    if side.width == 1 { LaneValue::Uniform(y) } else { LaneValue::Strided(y, 1) };
                let v = self.scope.read(
                    c,
                    side.access,
                    &self.dims(at, y, LaneValue::Uniform(x))?,
                    each,
                    &ForwardedElements::new(),
                )?;
                read.push((group, i, j, each.vector(c, v)?, *there));
            }
            for (group, i, j, v, there) in read {
                let store = &mut |c: Code| -> Result<()> {
                    // All of them are in one swizzle group.
                    let place = self.address(c, side, group, i, j)?;
                    for n in 0..side.width {
                        let one =
                            if side.width == 1 { v } else { partials::extract_lane(c, v, n)? };
                        memref::store(
                            c,
                            one,
                            side.memory,
                            &[c.add(place, c.index((n * self.store_extent) as i64)?)?],
                        )?;
                    }
                    Ok(())
                };
                match there {
                    Some(there) => c.if_else(there, store, None)?,
                    None => store(c)?,
                }
            }
            Ok(())
        })
    }

    /// Runs the nest's stages on a tile, with the transposed operands from shared memory.
    fn compute(&self, c: Code, sides: &[StagedOperand<'_>], at: &TileOrigin) -> Result<()> {
        let each = Lanes { count: self.lanes, mask: None };
        let across = c.index((self.store_extent / self.lanes) as i64)?;
        let some = |v: Value| {
            if self.lanes == 1 { LaneValue::Uniform(v) } else { LaneValue::Strided(v, 1) }
        };
        let stages = || self.nest.stages.iter().filter_map(|s| self.scope.kernel.stages.get(*s));
        let input = |a: &Access| {
            matches!(self.scope.kernel.buffers.get(a.buffer).map(|b| b.role), Some(Role::Input(_)))
        };
        self.share(c, self.load_extent * self.store_extent / self.lanes, &mut |c, all| {
            let mut work = vec![];
            for (n, there) in all {
                let (i, j) =
                    (c.div(*n, across)?, c.mul(c.rem(*n, across)?, c.index(self.lanes as i64)?)?);
                let (x, right) = self.inside(
                    c,
                    self.transposed_nest.store_dim,
                    c.add(at.store, j)?,
                    self.store_extent,
                )?;
                let (y, above) = self.inside(
                    c,
                    self.transposed_nest.load_dim,
                    c.add(at.load, i)?,
                    self.load_extent,
                )?;
                let dims = self.dims(at, LaneValue::Uniform(y), some(x))?;
                let mut known = ForwardedElements::new();
                for side in sides {
                    let place =
                        self.address(c, side, c.div(i, c.index(side.width as i64)?)?, i, j)?;
                    known.insert(side.access.clone(), each.load(c, side.memory, some(place))?);
                }
                for a in stages().flat_map(|s| s.reads()).filter(|a| input(a)) {
                    if !known.contains_key(a) {
                        known.insert(
                            a.clone(),
                            self.scope.read(c, a, &dims, each, &ForwardedElements::new())?,
                        );
                    }
                }
                let writes =
                    c.all_of(&[*there, right, above].into_iter().flatten().collect::<Vec<_>>())?;
                work.push((dims, known, writes));
            }
            for (dims, mut known, writes) in work {
                let scope = Scope { store_predicate: writes, ..self.scope.clone() };
                scope.iteration(c, &self.nest.stages, &dims, each, &mut [], &mut known)?;
            }
            Ok(())
        })
    }
}
