//! The main loop of a skinny GEMM as a multistage pipeline: `cp.async` copies the matrices' elements
//! into a ring of stages in shared memory, several K steps ahead, from one tile on into the next.
//!
//! A thread copies and reads the same elements, those of its fragments, so that no barrier is
//! needed. Where no launch writes the matrices, the first stages are filled while the kernel before
//! this one ends.
use crate::{
    analysis::Access,
    emit::{
        code::Code,
        lanes::LaneValue,
    },
    strategies::gpu::{
        common::{ptx::Ptx, shared, threads},
        skinny_gemm::{
            DEPTH, INSTRUCTION, Params, SkinnyProduct, VECTOR,
            emit::{ONE_LANE, SkinnyTile, StepOfK, TileRange},
        },
    },
    target::launch::WARP,
};
use kiln_dialects::{ir::*, value::DType};

/// Bytes of a thread's copy.
const COPY: usize = 16;
/// Most bytes of few rows that a CTA copies to shared memory.
const STAGED_ROWS: usize = 16 << 10;

/// Whether products can share a pipeline: each step copies as much, and all read the same rows.
pub fn is_uniform(all: &[SkinnyProduct], few: &[&Access]) -> bool {
    let same = |p: &SkinnyProduct| p.stages.len() == all[0].stages.len() && p.k == all[0].k;
    all.iter().all(|p| p.batch.is_empty() && same(p)) && few.iter().all(|a| *a == few[0])
}

/// Bytes of a warp's K step.
pub fn step_bytes(p: &SkinnyProduct, rows: usize) -> usize {
    p.stages.len() * rows / INSTRUCTION.1 * WARP * COPY
}

/// K steps of a warp in a tile.
pub fn steps(p: &SkinnyProduct, warps: usize) -> usize {
    p.k.1.div_ceil(DEPTH).div_ceil(warps)
}

/// The pipeline of the calling thread.
pub struct Pipeline<'a> {
    ranges: &'a [TileRange<'a>],
    /// K steps of a warp in a tile.
    steps: usize,
    stages: usize,
    /// K steps between waits.
    unroll: usize,
    /// Bytes of a warp's K step.
    bytes: usize,
    /// The thread's place in the warp's first stage, as a shared-memory address.
    ring: Value,
    /// The thread's first element of K.
    k: Value,
    /// The few rows in shared memory, if the CTA copies them there.
    staged: Option<Value>,
    total: Value,
}

impl<'a> Pipeline<'a> {
    /// Of all tiles of `ranges`, of which there are `total`.
    pub fn of(
        c: Code,
        ranges: &'a [TileRange<'a>],
        params: &Params,
        total: Value,
    ) -> Result<Pipeline<'a>> {
        let (p, tile) = (Ptx(c), &ranges.first().ok_or("has no product")?.tile);
        let product = tile.product;
        let (bytes, stages) = (step_bytes(product, tile.rows), params.stages);
        let lane = p.rem_const(p.thread_id()?, WARP)?;
        let warp = p.mul_const(p.div_const(p.thread_id()?, WARP)?, stages * bytes)?;
        let ring = p.add(p.dynamic_shared(tile.scope.kernel.func)?, warp)?;
        let k = c.add(
            c.mul(tile.warp, c.index(DEPTH as i64)?)?,
            c.mul(tile.lane[1], c.index(VECTOR as i64)?)?,
        )?;
        let elements = product.rows * product.k.1;
        let fits = elements * product.element.byte_size() <= STAGED_ROWS;
        let staged = fits && !tile.few_are_computed();
        let element = Type::scalar(c.ctx(), product.element);
        Ok(Pipeline {
            ranges,
            steps: steps(product, tile.warps),
            stages,
            unroll: params.unroll,
            bytes,
            ring: p.add(ring, p.mul_const(lane, COPY)?)?,
            k,
            staged: staged
                .then(|| shared(c, element, elements as i64))
                .transpose()?,
            total,
        })
    }

    fn tile(&self) -> &SkinnyTile<'a> {
        &self.ranges[0].tile
    }

    /// The addresses of the thread's first elements of a tile's rows, of each matrix.
    fn sources(&self, c: Code, number: Value) -> Result<Vec<Value>> {
        let mut found: Option<Vec<Value>> = None;
        for r in self.ranges.iter().rev() {
            let mine = self.sources_of(c, r, number)?;
            found = Some(match found {
                None => mine,
                Some(others) => {
                    let inside = c.less_than(number, r.end)?;
                    let pairs = mine.into_iter().zip(others);
                    pairs.map(|(a, b)| c.select(inside, a, b)).collect::<Result<_>>()?
                }
            });
        }
        found.ok_or_else(|| "has no product".into())
    }

    fn sources_of(&self, c: Code, r: &TileRange<'_>, number: Value) -> Result<Vec<Value>> {
        let (p, tile) = (Ptx(c), &r.tile);
        let SkinnyProduct { matrix, k: (k_dim, _), element, .. } = tile.product;
        let (dims, first) = r.place(c, number)?;
        let from = (c.add(first, tile.lane[0])?, r.many);
        let count = tile.rows / INSTRUCTION.1;
        let rows = tile.rows(c, &dims, matrix, from, INSTRUCTION.1, count)?;
        let mut all = vec![];
        for stage in &tile.stages {
            let access = stage.inputs.get(matrix.input).ok_or("has no matrix")?;
            let base = p.base_address(tile.scope.buffer(access.buffer)?)?;
            for row in &rows {
                let mut row = row.clone();
                row[*k_dim] = LaneValue::Uniform(self.k);
                let at = tile.scope.address(c, &access.at, &row, ONE_LANE)?;
                let at = ONE_LANE.vector(c, at)?;
                all.push(arith::addi(p, base, p.size_in_bytes(at, element.byte_size())?)?);
            }
        }
        Ok(all)
    }

    /// Starts the copies of a K step into a stage, as one group. Nothing is read unless `inside`.
    fn copy(
        &self,
        c: Code,
        sources: &[Value],
        step: Value,
        stage: Value,
        inside: Value,
    ) -> Result<()> {
        let (p, tile) = (Ptx(c), self.tile());
        let wide = DEPTH * tile.warps;
        let depth = tile.product.k.1;
        let mut inside = inside;
        if depth % wide != 0 {
            let k = c.add(self.k, c.mul(step, c.index(wide as i64)?)?)?;
            inside = arith::andi(c, inside, c.less_than(k, c.index(depth as i64)?)?)?;
        }
        let bytes = c.select(inside, p.number(COPY)?, p.number(0)?)?;
        let further = p.size_in_bytes(step, wide * tile.product.element.byte_size())?;
        for (n, from) in sources.iter().enumerate() {
            let from = arith::addi(p, *from, further)?;
            p.cp_async(p.add_const(stage, n * WARP * COPY)?, from, bytes, COPY)?;
        }
        p.cp_async_commit_group()
    }

    /// The stage `count` behind another.
    fn stage_behind(&self, c: Code, stage: Value, count: usize) -> Result<Value> {
        let (p, size) = (Ptx(c), self.stages * self.bytes);
        let next = p.add_const(stage, count * self.bytes)?;
        let end = c.compare(CmpIPredicate::Ult, next, p.number(size)?)?;
        c.select(end, next, p.add_signed(next, -(size as i64))?)
    }

    /// Fills all stages, from the first tile of the CTA.
    pub fn fill(&self, c: Code) -> Result<Vec<Value>> {
        let p = Ptx(c);
        let number = threads::block_id(c)?;
        let sources = self.sources(c, self.clamped(c, number)?)?;
        let inside = c.less_than(number, self.total)?;
        for s in 0..self.stages {
            let stage = p.add_const(self.ring, s * self.bytes)?;
            self.copy(c, &sources, c.index(s as i64)?, stage, inside)?;
        }
        Ok(sources)
    }

    fn clamped(&self, c: Code, number: Value) -> Result<Value> {
        c.min(number, c.sub(self.total, c.index(1)?)?)
    }

    /// Copies the few rows to shared memory, behind the wait for the kernel that writes them.
    pub fn stage_rows(&self, c: Code) -> Result<()> {
        let (Some(memory), tile) = (self.staged, self.tile()) else { return Ok(()) };
        let SkinnyProduct { skinny, rows, k: (k_dim, depth), .. } = tile.product;
        let vectors = c.index((rows * depth / VECTOR) as i64)?;
        let each = c.index((depth / VECTOR) as i64)?;
        let access = tile.stages[0].inputs.get(skinny.input).ok_or("has no few rows")?;
        let step = c.index((WARP * tile.warps) as i64)?;
        c.for_dynamic_step(tile.thread, vectors, step, &[], &mut |c, i, _| {
            let (row, k) = (c.div(i, each)?, c.mul(c.rem(i, each)?, c.index(VECTOR as i64)?)?);
            let mut dims = tile.row(c, &tile.no_dims(c)?, skinny, row)?;
            dims[*k_dim] = LaneValue::Strided(k, 1);
            let v = tile.read_vector(c, access, &dims)?;
            let to = c.mul(i, c.index(VECTOR as i64)?)?;
            vector::store(c, v, memory, &[to])?;
            Ok(vec![])
        })?;
        threads::barrier(c)
    }

    /// All tiles of the CTA.
    pub fn tiles(&self, c: Code, sources: Vec<Value>) -> Result<()> {
        let p = Ptx(c);
        let count = sources.len();
        let carried = [sources, vec![p.number(0)?]].concat();
        threads::for_each_tile(c, self.total, &carried, &mut |c, number, carried| {
            let next = c.add(number, threads::grid_dim(c)?)?;
            let further = c.less_than(next, self.total)?;
            let after = self.sources(c, self.clamped(c, next)?)?;
            let (now, slot) = carried.split_at(count);
            let (sums, slot) = self.multiply(c, now, (&after, further), slot[0])?;
            self.tile().exchange(c, sums)?;
            self.finish(c, self.ranges, number)?;
            // The next tile reuses the reduction buffer.
            threads::barrier(c)?;
            Ok([after, vec![slot]].concat())
        })?;
        p.cp_async_wait_group(0)
    }

    /// The epilogue of the tile of a number.
    fn finish(&self, c: Code, ranges: &[TileRange<'_>], number: Value) -> Result<()> {
        let (first, others) = ranges.split_first().ok_or("has no product")?;
        let mine = |c: Code| {
            let (dims, row) = first.place(c, number)?;
            first.tile.finish(c, &dims, row, first.many)
        };
        if others.is_empty() {
            return mine(c);
        }
        let inside = c.less_than(number, first.end)?;
        c.if_else(inside, &mut |c| mine(c), Some(&mut |c| self.finish(c, others, number)))
    }

    /// The warp's accumulators of a tile, and the stage of the next tile's first step. `after`: the
    /// next tile's addresses, and whether there is one.
    fn multiply(
        &self,
        c: Code,
        now: &[Value],
        after: (&[Value], Value),
        slot: Value,
    ) -> Result<(Vec<Value>, Value)> {
        let tile = self.tile();
        let product = tile.product;
        let few = tile.few_rows(c)?;
        let zero = c.number(0.0, Type::scalar(c.ctx(), DType::F32))?;
        let sums = product.stages.len() * tile.rows / INSTRUCTION.0 * product.columns();
        let mut carried = vec![zero; 4 * sums];
        carried.push(slot);
        let (steps, unroll) = (c.index(self.steps as i64)?, self.unroll as i64);
        let all = c.for_loop(c.index(0)?, steps, unroll, &carried, &mut |c, step, carried| {
            let p = Ptx(c);
            let (slot, sums) = carried.split_last().ok_or("has no stage")?;
            let (mut sums, mut stages) = (sums.to_vec(), vec![*slot]);
            p.cp_async_wait_group(self.stages - self.unroll)?;
            for n in 1..=self.unroll {
                stages.push(self.stage_behind(c, *slot, n)?);
            }
            let mut right = vec![];
            for n in 0..self.unroll {
                let k = self.step_of_k(c, c.add(step, c.index(n as i64)?)?)?;
                right.push(self.few(c, &few, &k)?);
            }
            for (right, slot) in right.iter().zip(&stages) {
                let left = self.fragments(p, p.add(self.ring, *slot)?, now.len())?;
                sums = tile.accumulate(c, product.element, &left, right, &sums)?;
            }
            for (n, slot) in stages.iter().take(self.unroll).enumerate() {
                let ahead = c.add(step, c.index((n + self.stages) as i64)?)?;
                let mine = c.less_than(ahead, steps)?;
                let index = c.select(mine, ahead, c.sub(ahead, steps)?)?;
                let pairs = now.iter().zip(after.0);
                let from =
                    pairs.map(|(a, b)| c.select(mine, *a, *b)).collect::<Result<Vec<_>>>()?;
                let inside = arith::ori(c, mine, after.1)?;
                self.copy(c, &from, index, p.add(self.ring, *slot)?, inside)?;
            }
            sums.push(stages[self.unroll]);
            Ok(sums)
        })?;
        let (slot, sums) = all.split_last().ok_or("has no stage")?;
        Ok((sums.to_vec(), *slot))
    }

    /// The thread's place along K in a step of its warp.
    fn step_of_k(&self, c: Code, step: Value) -> Result<StepOfK> {
        let (depth, wide) = (self.tile().product.k.1, DEPTH * self.tile().warps);
        let index = c.add(self.k, c.mul(step, c.index(wide as i64)?)?)?;
        if depth % wide == 0 {
            return Ok(StepOfK { index, inside: None });
        }
        let inside = c.less_than(index, c.index(depth as i64)?)?;
        Ok(StepOfK { index: c.select(inside, index, c.index(0)?)?, inside: Some(inside) })
    }

    /// The thread's fragments of the few rows.
    fn few(&self, c: Code, rows: &[(Value, Vec<LaneValue>)], k: &StepOfK) -> Result<Vec<Vec<Value>>> {
        let tile = self.tile();
        let SkinnyProduct { skinny, k: (_, depth), .. } = tile.product;
        let access = tile.stages[0].inputs.get(skinny.input).ok_or("has no few rows")?;
        let one = |(row, dims): &(Value, Vec<LaneValue>)| match self.staged {
            None => tile.read(c, access, dims, k.index, k.inside),
            Some(memory) => {
                let at = c.add(c.mul(*row, c.index(*depth as i64)?)?, k.index)?;
                let element = memory.ty().element().ok_or("is no buffer")?;
                let v = vector::load(c, memory, &[at], Type::vector(element, VECTOR))?;
                tile.words(c, v, k.inside)
            }
        };
        rows.iter().map(one).collect()
    }

    /// The thread's fragments of the matrices in a stage.
    fn fragments(&self, p: Ptx, stage: Value, count: usize) -> Result<Vec<Vec<Value>>> {
        let words = Type::vector(Type::scalar(p.0.ctx(), DType::I32), COPY / 4);
        let one = |n: usize| -> Result<Vec<Value>> {
            let at = p.pointer(p.add_const(stage, n * WARP * COPY)?)?;
            let v = llvm::Load::new(p, at, words).alignment(COPY as i64).result()?;
            let part = |i| vector::extract(p, v, &[Size::Static(i)], p.i32());
            (0..COPY as i64 / 4).map(part).collect()
        };
        (0..count).map(one).collect()
    }
}
