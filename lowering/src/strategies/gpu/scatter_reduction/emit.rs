//! Code of scatter reductions. The lanes of a warp test as many indices at once; a ballot gives the
//! iterations that contribute to the warp's tile, which all lanes then add together.
use super::{Params, Tile, keys::Key};
use crate::{
    analysis::{Nest, NestPlan},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::{FixedDims, Loops, decode},
        partials as partial,
    },
    strategies::{
        Strategy,
        gpu::{common::threads, scatter_reduction::ScatterReduction},
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

/// One nest.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    nest: &Nest,
    params: &Params,
) -> Result<()> {
    let key = Key::of(scope.kernel, nest).ok_or(ScatterReduction::MISMATCH)?;
    let tile =
        Tile::of(scope.kernel, plan, nest, &key, params).ok_or(ScatterReduction::MISMATCH)?;
    let lanes = params.vector;
    if !nest.extents[tile.fast].multiple_of(lanes as i64) {
        return Err(format!("has rows that are no multiple of {lanes}").into());
    }
    let warp = Warp { scope, nest, key, tile, params };
    warp.emit(c)
}

/// What a warp computes.
struct Warp<'a> {
    scope: &'a Scope<'a>,
    nest: &'a Nest,
    key: Key,
    tile: Tile,
    params: &'a Params,
}

impl Warp<'_> {
    fn emit(&self, c: Code) -> Result<()> {
        let (nest, tile, key) = (self.nest, &self.tile, &self.key);
        let lanes = self.params.vector;
        let loops = Loops { scope: self.scope, nest, vector: Some(tile.fast), lanes, unroll: 1 };
        let size = |d: usize| self.scope.poly(c, &nest.extents[d]);
        let width = c.index((WARP * lanes) as i64)?;
        let (across, count) = (size(tile.fast)?, c.index(tile.keys as i64)?);
        let mut sizes: Vec<Value> = tile.outer.iter().map(|d| size(*d)).collect::<Result<_>>()?;
        if tile.keys > 1 {
            sizes.push(c.ceil_div(size(key.key)?, count)?);
        }
        sizes.push(c.ceil_div(across, width)?);
        let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;

        let (thread, warp) = (threads::thread_id(c)?, c.index(WARP as i64)?);
        let (lane, number) = (c.rem(thread, warp)?, c.div(thread, warp)?);
        let each = c.index((self.params.threads / WARP) as i64)?;
        let first = c.add(c.mul(threads::block_id(c)?, each)?, number)?;
        let step = c.mul(threads::grid_dim(c)?, each)?;
        c.for_dynamic_step(first, total, step, &[], &mut |c, item, _| {
            let mut at = decode(c, item, &sizes)?;
            let start = c.mul(at.pop().ok_or("has no loops")?, width)?;
            let mut fixed: FixedDims = vec![None; nest.extents.len()];
            tile.outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
            // Lanes past the end redo its last elements, and store nothing.
            let place = c.add(start, c.mul(lane, c.index(lanes as i64)?)?)?;
            let inside = c.less_than(place, across)?;
            let place = c.select(inside, place, c.sub(across, c.index(lanes as i64)?)?)?;
            let results = loops.lane(c, place, 0)?;
            let (low, range) = self.keys(c, &fixed, start, at.last().copied())?;
            let all: Vec<FixedDims> = match tile.keys {
                1 => vec![fixed],
                keys => {
                    let last = c.sub(size(key.key)?, c.index(1)?)?;
                    let one = |r: usize| {
                        let mut fixed = fixed.clone();
                        fixed[key.key] = Some(c.min(c.add(low, c.index(r as i64)?)?, last)?);
                        Ok(fixed)
                    };
                    (0..keys).map(one).collect::<Result<_>>()?
                }
            };
            let accumulators = self.accumulators(c, &loops, &all, results, (low, range), lane)?;
            for (r, (fixed, sum)) in
                all.iter().zip(accumulators.chunks(accumulators.len() / all.len())).enumerate()
            {
                let mut stored = vec![inside];
                if tile.keys > 1 {
                    let own = c.add(low, c.index(r as i64)?)?;
                    stored.push(c.less_than(own, size(key.key)?)?);
                }
                let stored = c.all_of(&stored)?.ok_or("has no results")?;
                let store = &mut |c: Code| self.store(c, &loops, fixed, results, sum);
                c.if_else(stored, store, None)?;
            }
            Ok(vec![])
        })
        .map(drop)
    }

    /// The first key of a tile, and how many it may have.
    fn keys(
        &self,
        c: Code,
        fixed: &FixedDims,
        start: Value,
        block: Option<Value>,
    ) -> Result<(Value, Value)> {
        let (tile, key) = (&self.tile, self.key.key);
        if tile.fast == key {
            return Ok((start, c.index((WARP * self.params.vector) as i64)?));
        }
        let count = c.index(tile.keys as i64)?;
        let low = match fixed[key] {
            Some(own) => own,
            None => c.mul(block.ok_or("has no block of keys")?, count)?,
        };
        Ok((low, count))
    }

    /// The tile's accumulators after all iterations that contribute to it.
    fn accumulators(
        &self,
        c: Code,
        loops: &Loops<'_>,
        all: &[FixedDims],
        results: LaneValue,
        (low, range): (Value, Value),
        lane: Value,
    ) -> Result<Vec<Value>> {
        let (scope, nest) = (self.scope, self.nest);
        let over = self.key.over;
        let lanes = Lanes { count: self.params.vector, mask: None };
        let identities = partial::identities(c, scope, nest, lanes.count)?;
        let each = identities.len();
        let running: Vec<Value> = all.iter().flat_map(|_| identities.iter().copied()).collect();
        let count = scope.poly(c, &nest.extents[over])?;
        let i32 = Type::integer(c.ctx(), 32);
        let everyone = c.integer(-1, i32)?;
        let zero = c.integer(0, i32)?;
        let vote =
            |c: Code, p: Value| nvvm::vote_sync(c, everyone, p, nvvm::VoteSyncKind::Ballot, i32);
        let (one, index) = (c.index(1)?, Type::index(c.ctx()));
        // The iterations behind `from` whose bits are set, in their order.
        let add = |c: Code, from: Value, hits: Value, running: &[Value]| -> Result<Vec<Value>> {
            let found = arith::index_castui(c, math::ctpop(c, hits)?, index)?;
            let carried = [&[hits], running].concat();
            let body = &mut |c: Code, _: Value, carried: &[Value]| {
                let (hits, running) = carried.split_first().ok_or("has no ballot")?;
                let bit = arith::index_castui(c, math::cttz(c, *hits)?, index)?;
                let at = c.add(from, bit)?;
                let mut running = running.to_vec();
                for (fixed, mine) in all.iter().zip(running.chunks_mut(each)) {
                    let mut fixed = fixed.clone();
                    fixed[over] = Some(at);
                    let dims = loops.dims(c, &fixed, Some(results))?;
                    let known = &mut ForwardedElements::new();
                    scope.iteration(c, &nest.stages, &dims, lanes, mine, known)?;
                }
                // The lowest bit is done.
                let rest = arith::subi(c, *hits, c.integer(1, i32)?)?;
                Ok([vec![arith::andi(c, *hits, rest)?], running].concat())
            };
            let mut next = c.for_dynamic_step(c.index(0)?, found, one, &carried, body)?;
            next.remove(0);
            Ok(next)
        };
        let unroll = self.params.unroll;
        let step = c.index((WARP * unroll) as i64)?;
        c.for_dynamic_step(c.index(0)?, count, step, &running, &mut |c, base, running| {
            let mut tested = vec![];
            for u in 0..unroll {
                let from = c.add(base, c.index((u * WARP) as i64)?)?;
                tested.push((from, self.contributes(c, c.add(from, lane)?, count, low, range)?));
            }
            let (first, others) = tested.split_first().ok_or("tests no iterations")?;
            if others.is_empty() {
                return add(c, first.0, vote(c, first.1)?, running);
            }
            let any = others.iter().try_fold(first.1, |a, (_, b)| arith::ori(c, a, *b))?;
            let any = c.compare(CmpIPredicate::Ne, vote(c, any)?, zero)?;
            // No iteration of the loop where nothing contributes: a branch that all lanes take.
            let parts = c.select(any, c.index(unroll as i64)?, c.index(0)?)?;
            c.for_dynamic_step(c.index(0)?, parts, one, running, &mut |c, u, running| {
                let (mut from, mut hit) = *first;
                for (n, (next, other)) in others.iter().enumerate() {
                    let this = c.compare(CmpIPredicate::Eq, u, c.index(n as i64 + 1)?)?;
                    from = c.select(this, *next, from)?;
                    hit = c.select(this, *other, hit)?;
                }
                add(c, from, vote(c, hit)?, running)
            })
        })
    }

    /// Whether iteration `i` contributes to a key of the tile; not if it is past the last.
    fn contributes(
        &self,
        c: Code,
        i: Value,
        count: Value,
        low: Value,
        range: Value,
    ) -> Result<Value> {
        let stage = self.scope.kernel.stages.get(self.key.stage).ok_or("has no such stage")?;
        let there = c.less_than(i, count)?;
        let i = c.select(there, i, c.index(0)?)?;
        let mut dims = vec![LaneValue::Uniform(c.index(0)?); self.nest.extents.len()];
        dims[self.key.over] = LaneValue::Uniform(i);
        let index = self.scope.scalar_value(c, stage, self.key.index, &dims)?;
        // Narrow indices are widened, so that a tile's range fits.
        let ty = Type::index(c.ctx());
        let index = if index.ty() == ty { index } else { arith::index_cast(c, index, ty)? };
        // As unsigned numbers those below the first key are beyond the last.
        let offset = arith::subi(c, index, low)?;
        let inside = c.less_than(offset, range)?;
        arith::andi(c, there, inside)
    }

    fn store(
        &self,
        c: Code,
        loops: &Loops<'_>,
        fixed: &FixedDims,
        results: LaneValue,
        sums: &[Value],
    ) -> Result<()> {
        let lanes = Lanes { count: self.params.vector, mask: None };
        let dims = loops.dims(c, fixed, Some(results))?;
        let known = ForwardedElements::new();
        let all =
            partial::combine_initial(c, self.scope, self.nest, &dims, lanes.count, sums, &known)?;
        loops.finish(c, &dims, lanes, &all)
    }
}
