//! Code of gradients of depthwise convolutions by their weights. A thread has a row of the window for
//! a vector of channels, and a sum for each column of it. It holds the gradient of a tile of the
//! result in registers, and loads each input pixel under the tile's windows once.
use super::{Params, pattern::GradientWindow, shared_elements, tiles::RowTiles};
use crate::{
    analysis::NestPlan,
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::Loops,
        partials,
    },
    strategies::gpu::common::{exchange, grid_stride, shared, threads},
};
use kiln_dialects::ir::*;

/// What a thread computes.
struct Gradient<'a> {
    scope: &'a Scope<'a>,
    plan: &'a NestPlan,
    w: &'a GradientWindow,
    p: &'a Params,
    lanes: Lanes,
    /// The part of the images.
    split: Value,
    /// The first channel.
    channel: Value,
    /// The row of the window.
    row: Value,
}

/// An image row that a thread is at.
struct ImageRow {
    /// Image of the part, and row of the result.
    image: Value,
    line: Value,
    /// Index of the row's first element.
    start: Value,
}

/// The first pixel of a tile: a number where its windows may leave the image.
#[derive(Clone, Copy)]
enum Start {
    At(i64),
    Inside(Value),
}

/// Emits the nest of the gradient, and those beside it.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    w: &GradientWindow,
    p: &Params,
    threads: usize,
) -> Result<()> {
    let rows = w.spatial[0].size;
    let vectors = w.channels / p.vector as i64;
    let blocks = super::blocks(w, p);
    let thread = threads::thread_id(c)?;
    let columns = c.index(p.columns as i64)?;
    let (column, rest) = (c.rem(thread, columns)?, c.div(thread, columns)?);
    let (row, part) = (c.rem(rest, c.index(rows)?)?, c.div(rest, c.index(rows)?)?);
    let total = c.index(w.splits * blocks)?;
    let sums = Type::scalar(c.ctx(), kiln_dialects::value::DType::F32);
    let memory = match p.parts {
        1 => None,
        _ => Some(shared(c, sums, shared_elements(w, p) as i64)?),
    };
    threads::for_each_tile(c, total, &[], &mut |c, tile, _| {
        let (split, block) = (c.div(tile, c.index(blocks)?)?, c.rem(tile, c.index(blocks)?)?);
        let vector = c.add(c.mul(block, columns)?, column)?;
        let inside = c.less_than(vector, c.index(vectors)?)?;
        let channel = c.select(inside, vector, c.index(0)?)?;
        let g = Gradient {
            scope,
            plan,
            w,
            p,
            lanes: Lanes { count: p.vector, mask: None },
            split,
            channel: c.mul(channel, c.index(p.vector as i64)?)?,
            row,
        };
        let mut sums = g.sums(c, part)?;
        if let Some(memory) = memory {
            g.combine(c, memory, [column, part], &mut sums)?;
        }
        // A whole number of warps may have more threads than parts have.
        let first = c.compare(CmpIPredicate::Eq, part, c.index(0)?)?;
        let stores = c.all_of(&[inside, first])?.ok_or("has no thread")?;
        c.if_else(stores, &mut |c| g.store(c, &sums), None)?;
        if memory.is_some() {
            // WAR barrier: the next tile's sums overwrite this shared memory.
            threads::barrier(c)?;
        }
        Ok(vec![])
    })?;
    grid_stride::other_nests(c, scope, plan, 1, threads)
}

impl Gradient<'_> {
    fn nest(&self) -> &crate::analysis::Nest {
        &self.plan.nests[0]
    }
    fn loops(&self) -> Loops<'_> {
        let vector = Some(self.w.channel);
        Loops { scope: self.scope, nest: self.nest(), vector, lanes: self.p.vector, unroll: 1 }
    }
    fn value(&self, v: Value) -> LaneValue {
        if self.lanes.count == 1 { LaneValue::Uniform(v) } else { LaneValue::Vector(v) }
    }

    /// The nest's loops, of those that are given; the others are at 0.
    fn dims(&self, c: Code, some: &[(Option<usize>, Value)]) -> Result<Vec<LaneValue>> {
        let mut all = vec![LaneValue::Uniform(c.index(0)?); self.nest().extents.len()];
        all[self.w.channel] = self.loops().lane(c, self.channel, 0)?;
        for (d, v) in some.iter().chain(&[(self.w.split, self.split)]) {
            d.iter().for_each(|d| all[*d] = LaneValue::Uniform(*v));
        }
        Ok(all)
    }

    /// The sums of a part's rows of the result, one for each column of the window.
    fn sums(&self, c: Code, part: Value) -> Result<Vec<Value>> {
        let [high, wide] = &self.w.spatial;
        let tiles = RowTiles::of(wide, self.p.pixels as i64);
        let zeros = partials::identities(c, self.scope, self.nest(), self.p.vector)?;
        let [zero] = zeros.as_slice() else { return Err("has several sums".into()) };
        let zeros = vec![*zero; wide.size as usize];
        let (lines, images) = (c.index(high.out)?, c.index(self.w.images)?);
        let total = c.mul(images, lines)?;
        // Threads that fill up the last warp have no part.
        let parts = c.index(self.p.parts as i64)?;
        let part = c.select(c.less_than(part, parts)?, part, total)?;
        c.for_dynamic_step(part, total, parts, &zeros, &mut |c, i, sums| {
            let (image, line) = (c.div(i, lines)?, c.rem(i, lines)?);
            let down = c.mul(self.row, c.index(high.dilation)?)?;
            let y = c.add(c.mul(line, c.index(high.stride)?)?, down)?;
            let y = c.sub(y, c.index(high.low)?)?;
            let whole = c.add(c.mul(self.split, images)?, image)?;
            let start = c.add(c.mul(whole, c.index(high.image)?)?, y)?;
            let start = c.mul(start, c.index(wide.image * self.w.channels)?)?;
            let at = ImageRow { image, line, start: c.add(start, self.channel)? };
            let row = |c: Code| -> Result<Vec<Value>> {
                let mut sums = sums.to_vec();
                for tile in tiles.first.clone() {
                    let (start, count) = tiles.tile(wide, tile);
                    sums = self.tile(c, &at, Start::At(start), count, &sums)?;
                }
                if !tiles.alike.is_empty() {
                    let [from, to] = [tiles.alike.start, tiles.alike.end].map(|t| t * tiles.pixels);
                    let [from, to] = [c.index(from)?, c.index(to)?];
                    sums = c.for_loop(from, to, tiles.pixels, &sums, &mut |c, start, sums| {
                        self.tile(c, &at, Start::Inside(start), tiles.pixels, sums)
                    })?;
                }
                for tile in tiles.last.clone() {
                    let (start, count) = tiles.tile(wide, tile);
                    sums = self.tile(c, &at, Start::At(start), count, &sums)?;
                }
                Ok(sums)
            };
            if !high.padded {
                return row(c);
            }
            // Also of rows above the image, whose number wraps around.
            let inside = c.less_than(y, c.index(high.image)?)?;
            let types: Vec<Type> = sums.iter().map(|v| v.ty()).collect();
            c.if_values(inside, &types, &mut |c| row(c), &mut |_| Ok(sums.to_vec()))
        })
    }

    /// Adds the products of a tile of the result, `count` pixels, to the sums.
    fn tile(
        &self,
        c: Code,
        at: &ImageRow,
        start: Start,
        count: i64,
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let (w, wide) = (self.w, &self.w.spatial[1]);
        let stage = &self.scope.kernel.stages[w.stage];
        let memory = self.scope.buffer(w.image)?;
        let place = |c: Code, pixel: i64| match start {
            Start::At(first) => c.index(first + pixel),
            Start::Inside(first) => c.add(first, c.index(pixel)?),
        };
        let gradients = (0..count)
            .map(|pixel| {
                let across = place(c, pixel)?;
                let [down, right] = w.pixels;
                let dims = [(w.within, at.image), (down, at.line), (right, across)];
                let dims = self.dims(c, &dims)?;
                let none = ForwardedElements::new();
                self.scope.read(c, &stage.inputs[0], &dims, self.lanes, &none)
            })
            .collect::<Result<Vec<_>>>()?;
        let begin = match start {
            Start::At(first) => c.index(first * wide.stride - wide.low)?,
            Start::Inside(first) => {
                c.sub(c.mul(first, c.index(wide.stride)?)?, c.index(wide.low)?)?
            }
        };
        let begin = c.add(at.start, c.mul(begin, c.index(w.channels)?)?)?;
        let mut sums = sums.to_vec();
        for x in 0..=(count - 1) * wide.stride + (wide.size - 1) * wide.dilation {
            let beyond =
                |first: i64| !(0..wide.image).contains(&(first * wide.stride - wide.low + x));
            if matches!(start, Start::At(first) if beyond(first)) {
                continue;
            }
            // The pixels of the result whose windows read this one, and at which column.
            let under = |pixel: i64| {
                let place = x - pixel * wide.stride;
                (place >= 0 && place % wide.dilation == 0 && place / wide.dilation < wide.size)
                    .then_some((pixel as usize, (place / wide.dilation) as usize))
            };
            let pairs: Vec<(usize, usize)> = (0..count).filter_map(under).collect();
            if pairs.is_empty() {
                continue;
            }
            let element = c.add(begin, c.index(x * w.channels)?)?;
            let lane = match self.lanes.count {
                1 => LaneValue::Uniform(element),
                _ => LaneValue::Strided(element, 1),
            };
            let read = self.lanes.load(c, memory, lane)?;
            for (pixel, column) in pairs {
                let mut operands = vec![None; stage.inputs.len() + 1];
                operands[..2].copy_from_slice(&[Some(gradients[pixel]), Some(read)]);
                operands[stage.inputs.len()] = Some(self.value(sums[column]));
                let made = self.scope.stage(c, stage, operands, &[], self.lanes)?;
                sums[column] = self.lanes.vector(c, *made.first().ok_or("has no sum")?)?;
            }
        }
        Ok(sums)
    }

    /// Adds up the sums of all parts: afterwards those of part 0 are the totals. A tree over parts,
    /// whose upper half stores what the lower half adds.
    fn combine(
        &self,
        c: Code,
        memory: Value,
        [column, part]: [Value; 2],
        sums: &mut [Value],
    ) -> Result<()> {
        let [rows, wide] = [0, 1].map(|i| self.w.spatial[i].size);
        let (columns, vector) = (self.p.columns as i64, self.p.vector as i64);
        let thread = c.add(c.mul(self.row, c.index(columns)?)?, column)?;
        let mut left = self.p.parts as i64;
        while left > 1 {
            left /= 2;
            let own = c.mul(c.rem(part, c.index(left)?)?, c.index(rows * columns)?)?;
            let own = c.mul(c.add(own, thread)?, c.index(vector)?)?;
            // Neighbouring threads store neighbouring vectors.
            let step = left * rows * columns * vector;
            let place = |c: Code, n: usize| c.add(own, c.index(n as i64 * step)?);
            let upper = c
                .all_of(&[
                    c.compare(CmpIPredicate::Uge, part, c.index(left)?)?,
                    c.less_than(part, c.index(2 * left)?)?,
                ])?
                .ok_or("has no threads")?;
            let store = &mut |c: Code| {
                (0..wide as usize).try_for_each(|n| {
                    let at = place(c, n)?;
                    exchange(c, memory, at, Some(sums[n]), sums[n].ty()).map(drop)
                })
            };
            c.if_else(upper, store, None)?;
            threads::barrier(c)?;
            for (n, sum) in sums.iter_mut().enumerate() {
                let other = exchange(c, memory, place(c, n)?, None, sum.ty())?;
                let other = other.ok_or("has nothing to take")?;
                let total = partials::combined(
                    c,
                    self.scope,
                    self.nest(),
                    vector as usize,
                    &[*sum],
                    &[other],
                )?;
                *sum = *total.first().ok_or("has no sum")?;
            }
            // WAR barrier before the next level's stores.
            if left > 1 {
                threads::barrier(c)?;
            }
        }
        Ok(())
    }

    /// Stores the sums of a row of the window, and runs the stages that follow.
    fn store(&self, c: Code, sums: &[Value]) -> Result<()> {
        let [high, wide] = &self.w.spatial;
        for (n, sum) in sums.iter().enumerate() {
            let dims = self.dims(c, &[(high.dim, self.row), (wide.dim, c.index(n as i64)?)])?;
            let none = ForwardedElements::new();
            let (nest, lanes) = (self.nest(), self.lanes.count);
            let total =
                partials::combine_initial(c, self.scope, nest, &dims, lanes, &[*sum], &none)?;
            self.loops().finish(c, &dims, self.lanes, &total)?;
        }
        Ok(())
    }
}
