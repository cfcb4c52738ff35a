//! The main loop of a skinny GEMM with software pipelining: a thread's registers hold the matrices'
//! elements of several K steps ahead, from one tile on into the next, so that loads are in flight
//! while warps exchange their accumulators.
//!
//! Where no launch writes the matrices, the first steps are loaded while the kernel before this one
//! ends.
use crate::{
    analysis::Access,
    emit::{code::Code, lanes::LaneValue},
    strategies::gpu::{
        common::{ptx::Ptx, shared, threads},
        skinny_gemm::{
            INSTRUCTION, Params, SkinnyProduct, VECTOR,
            dequantization::{Table, without_runs},
            stored::WORDS,
            tile::{ONE_LANE, SkinnyTile, StepOfK, TileRange, tile_of},
            weights,
        },
    },
    target::launch::WARP,
};
use kiln_dialects::{ir::*, value::DType};

/// Most bytes of few rows that a CTA copies to shared memory.
const STAGED_ROWS: usize = 16 << 10;

/// Whether products can share a pipeline: each step copies as much, and all read the same rows.
pub fn is_uniform(all: &[SkinnyProduct], few: &[&Access]) -> bool {
    let first = &all[0];
    let same = |p: &SkinnyProduct| {
        p.stages.len() == first.stages.len()
            && p.k == first.k
            && p.weights == first.weights
            && p.tables == first.tables
    };
    all.iter().all(|p| p.batch.is_empty() && same(p)) && few.iter().all(|a| *a == few[0])
}

/// Fragments of a thread in a K step.
pub fn fragments(p: &SkinnyProduct, rows: usize) -> usize {
    p.stages.len() * rows / INSTRUCTION.1
}

/// 32-bit registers of a fragment with an element of each table.
pub fn fragment_words(p: &SkinnyProduct) -> usize {
    WORDS + p.tables.len()
}

/// Bytes of few rows that a CTA copies to shared memory; 0 if it reads them where they are.
pub fn staged_bytes(p: &SkinnyProduct) -> usize {
    let bytes = p.rows * p.k.1 * p.element.byte_size();
    if bytes <= STAGED_ROWS { bytes } else { 0 }
}

/// K steps of a warp in a tile.
pub fn steps(p: &SkinnyProduct, warps: usize) -> usize {
    p.steps().div_ceil(warps)
}

/// The pipeline of the calling thread.
pub struct Pipeline<'a> {
    ranges: &'a [TileRange<'a>],
    /// K steps of a warp in a tile.
    steps: usize,
    /// K steps of a tile that are loaded ahead.
    stages: usize,
    /// Tiles that are loaded ahead; of more than one all steps.
    ahead: usize,
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
        let tile = &ranges.first().ok_or("has no product")?.tile;
        let product = tile.product;
        let k = c.add(
            c.mul(tile.warp, c.index(product.depth() as i64)?)?,
            c.mul(tile.lane[1], c.index(product.vector() as i64)?)?,
        )?;
        let staged = staged_bytes(product) > 0 && !tile.few_are_computed();
        let (element, elements) =
            (Type::scalar(c.ctx(), product.element), product.rows * product.k.1);
        let steps = steps(product, tile.warps);
        Ok(Pipeline {
            ranges,
            steps,
            stages: params.stages.min(steps),
            ahead: (params.stages / steps).max(1),
            k,
            staged: staged.then(|| shared(c, element, elements as i64)).transpose()?,
            total,
        })
    }

    fn tile(&self) -> &SkinnyTile<'a> {
        &self.ranges[0].tile
    }

    /// The addresses of the thread's fragments of a tile's rows, of each matrix: of the first
    /// elements along K, then of the row in each table.
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
        let SkinnyProduct { matrix, k: (k_dim, _), weights, .. } = tile.product;
        let (dims, first) = r.place(c, number)?;
        let from = (c.add(first, tile.lane[0])?, r.many);
        let count = tile.rows / INSTRUCTION.1;
        let rows = tile.rows(c, &dims, matrix, from, INSTRUCTION.1, count)?;
        let mut all = vec![];
        for stage in &tile.stages {
            let input = |i: usize| stage.inputs.get(i).ok_or("has no such input");
            let matrix = input(matrix.input)?;
            let mut parts = vec![(matrix.buffer, matrix.at.clone())];
            for i in weights.tables() {
                parts.push((input(i)?.buffer, without_runs(&input(i)?.at)));
            }
            for row in &rows {
                let mut row = row.clone();
                row[*k_dim] = LaneValue::Uniform(self.k);
                for (buffer, at) in &parts {
                    let memory = tile.scope.buffer(*buffer)?;
                    let size = memory.ty().element().ok_or("is no buffer")?.dtype()?.byte_size();
                    let at = ONE_LANE.vector(c, tile.scope.address(c, at, &row, ONE_LANE)?)?;
                    all.push(arith::addi(p, p.base_address(memory)?, p.size_in_bytes(at, size)?)?);
                }
            }
        }
        Ok(all)
    }

    /// The thread's fragments of a K step, zeros unless it is inside of K; without `there` it is.
    fn load(
        &self,
        c: Code,
        sources: &[Value],
        step: Value,
        there: Option<Value>,
    ) -> Result<Vec<Value>> {
        let tile = self.tile();
        let (wide, depth) = (tile.product.depth() * tile.warps, tile.product.k.1);
        let mut conditions: Vec<Value> = there.into_iter().collect();
        if !depth.is_multiple_of(wide) {
            let k = c.add(self.k, c.mul(step, c.index(wide as i64)?)?)?;
            conditions.push(c.less_than(k, c.index(depth as i64)?)?);
        }
        let stored = tile.product.weights.stored;
        let bytes = Ptx(c).size_in_bytes(step, stored.bytes(wide))?;
        let mut all = |c: Code| self.load_all(c, sources, (step, bytes));
        let Some(inside) = c.all_of(&conditions)? else { return all(c) };
        let word = Ptx(c).i32();
        let parts = 1 + tile.product.tables.len();
        let words = fragment_words(tile.product) * (sources.len() / parts);
        let zeros = vec![c.integer(0, word)?; words];
        c.if_values(inside, &vec![word; zeros.len()], &mut all, &mut |_| Ok(zeros.clone()))
    }

    /// The fragments of a K step, whose elements are so many bytes after the first ones.
    fn load_all(
        &self,
        c: Code,
        sources: &[Value],
        (step, bytes): (Value, Value),
    ) -> Result<Vec<Value>> {
        let (p, mut words) = (Ptx(c), vec![]);
        let SkinnyProduct { tables, weights, .. } = self.tile().product;
        let vector = Type::vector(p.i32(), WORDS);
        for fragment in sources.chunks(1 + tables.len()) {
            let (from, rows) = fragment.split_first().ok_or("has no fragment")?;
            let at = llvm::inttoptr(p, arith::addi(p, *from, bytes)?, Type::llvm_ptr(c.ctx(), 1))?;
            // No `ld.global.nc`, which ptxas moves across `griddepcontrol.wait`.
            let v = llvm::Load::new(p, at, vector).alignment(16).result()?;
            for i in 0..WORDS as i64 {
                words.push(vector::extract(p, v, &[Size::Static(i)], p.i32())?);
            }
            for ((table, input), row) in tables.iter().zip(weights.tables()).zip(rows) {
                words.push(self.load_table(c, (table, input), *row, step)?);
            }
        }
        Ok(words)
    }

    /// The element of a table for the thread's vector in a K step.
    fn load_table(
        &self,
        c: Code,
        (table, input): (&Table, usize),
        row: Value,
        step: Value,
    ) -> Result<Value> {
        let (p, tile) = (Ptx(c), self.tile());
        let access = tile.stages[0].inputs.get(input).ok_or("has no such table")?;
        let memory = tile.scope.buffer(access.buffer)?;
        let element = memory.ty().element().ok_or("is no buffer")?;
        let mut at = row;
        if let Some(run) = table.run {
            let wide = (tile.product.depth() * tile.warps) as i64;
            let k = c.add(self.k, c.mul(step, c.index(wide)?)?)?;
            let run = c.mul(c.div(k, c.index(run)?)?, c.index(table.stride)?)?;
            at = arith::addi(p, at, p.size_in_bytes(run, element.dtype()?.byte_size())?)?;
        }
        let at = llvm::inttoptr(p, at, Type::llvm_ptr(c.ctx(), 1))?;
        let v = llvm::Load::new(p, at, element).result()?;
        weights::table_bits(c, v)
    }

    /// Loads the first steps of the CTA's first tiles: the addresses of the first tile, then the
    /// fragments.
    pub fn fill(&self, c: Code) -> Result<[Vec<Value>; 2]> {
        let (mut number, mut all, mut first) = (threads::block_id(c)?, vec![], None);
        for tile in 0..self.ahead {
            if tile > 0 {
                number = c.add(number, threads::grid_dim(c)?)?;
            }
            let sources = self.sources(c, self.clamped(c, number)?)?;
            let inside = c.less_than(number, self.total)?;
            for s in 0..self.stages {
                all.extend(self.load(c, &sources, c.index(s as i64)?, Some(inside))?);
            }
            first.get_or_insert(sources);
        }
        Ok([first.unwrap_or_default(), all])
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

    /// All tiles of the CTA, the first of which are loaded.
    pub fn tiles(&self, c: Code, [sources, first]: [Vec<Value>; 2]) -> Result<()> {
        if self.ahead > 1 {
            return self.tiles_ahead(c, &first);
        }
        let count = sources.len();
        let carried = [sources, first].concat();
        threads::for_each_tile(c, self.total, &carried, &mut |c, number, carried| {
            let next = c.add(number, threads::grid_dim(c)?)?;
            let (now, loaded) = carried.split_at(count);
            let [after, loaded] = self.tile_of(c, [number, next], Some(now), loaded)?;
            Ok([after, loaded].concat())
        })
        .map(drop)
    }

    /// As [`Self::tiles`], with the fragments of several tiles in registers: each tile's are replaced
    /// by those of the tile that many later.
    fn tiles_ahead(&self, c: Code, first: &[Value]) -> Result<()> {
        let grid = threads::grid_dim(c)?;
        let far = c.mul(grid, c.index(self.ahead as i64)?)?;
        let size = first.len() / self.ahead;
        let types: Vec<Type> = first.iter().take(size).map(|v| v.ty()).collect();
        c.for_dynamic_step(threads::block_id(c)?, self.total, far, first, &mut |c, number, sets| {
            let (mut number, mut all) = (number, vec![]);
            for (tile, set) in sets.chunks(size).enumerate() {
                let one = |c: Code, number: Value| {
                    let next = c.add(number, far)?;
                    self.tile_of(c, [number, next], None, set).map(|[_, loaded]| loaded)
                };
                if tile == 0 {
                    all.extend(one(c, number)?);
                    continue;
                }
                number = c.add(number, grid)?;
                let inside = c.less_than(number, self.total)?;
                let mut there = |c: Code| one(c, number);
                all.extend(c.if_values(inside, &types, &mut there, &mut |_| Ok(set.to_vec()))?);
            }
            Ok(all)
        })
        .map(drop)
    }

    /// A tile, whose fragments are replaced by those of a later one: the addresses of that tile, and
    /// its fragments. `now`: the addresses of this tile, if not all its steps are loaded.
    fn tile_of(
        &self,
        c: Code,
        [number, next]: [Value; 2],
        now: Option<&[Value]>,
        loaded: &[Value],
    ) -> Result<[Vec<Value>; 2]> {
        let further = c.less_than(next, self.total)?;
        let after = self.sources(c, self.clamped(c, next)?)?;
        let sources = [now.unwrap_or(&after), &after];
        let (sums, loaded) = self.multiply(c, sources, further, loaded)?;
        self.tile().exchange(c, sums)?;
        tile_of(c, self.ranges, number, &|c, r| {
            let (dims, row) = r.place(c, number)?;
            r.tile.finish(c, &dims, row, r.many)
        })?;
        // The next tile reuses the reduction buffer.
        threads::barrier(c)?;
        Ok([after, loaded])
    }

    /// The warp's accumulators of a tile, and the fragments of the next tile's first steps.
    /// `sources`: the addresses of both tiles; `further`: whether there is a next one.
    fn multiply(
        &self,
        c: Code,
        sources: [&[Value]; 2],
        further: Value,
        loaded: &[Value],
    ) -> Result<(Vec<Value>, Vec<Value>)> {
        let tile = self.tile();
        let product = tile.product;
        let (few, [now, after]) = (tile.few_rows(c)?, sources);
        let zero = c.number(0.0, Type::scalar(c.ctx(), DType::F32))?;
        let sums = 4 * fragments(product, tile.rows) / 2 * product.columns();
        let carried = [vec![zero; sums], loaded.to_vec()].concat();
        let fragment = fragment_words(product);
        let size = fragment * fragments(product, tile.rows);
        // A round of the loop: as many steps as are loaded ahead, each replaced by a later one.
        let round = |c: Code, step: Value, carried: &[Value], last: bool| -> Result<Vec<Value>> {
            let (sums, loaded) = carried.split_at(sums);
            let (mut sums, mut next) = (sums.to_vec(), vec![]);
            for (n, words) in loaded.chunks(size).enumerate() {
                let k = self.step_of_k(c, c.add(step, c.index(n as i64)?)?)?;
                let right = self.few(c, &few, &k)?;
                let left: Vec<Vec<Value>> = words.chunks(fragment).map(<[Value]>::to_vec).collect();
                sums = tile.accumulate(c, &left, &right, &sums)?;
                let (from, there) = if last { (after, Some(further)) } else { (now, None) };
                let ahead = match last {
                    true => c.index(n as i64)?,
                    false => c.add(step, c.index((n + self.stages) as i64)?)?,
                };
                next.extend(self.load(c, from, ahead, there)?);
            }
            Ok([sums, next].concat())
        };
        let (stages, end) = (self.stages as i64, (self.steps - self.stages) as i64);
        let all =
            c.for_loop(c.index(0)?, c.index(end)?, stages, &carried, &mut |c, step, all| {
                round(c, step, all, false)
            })?;
        let mut all = round(c, c.index(end)?, &all, true)?;
        let next = all.split_off(sums);
        Ok((all, next))
    }

    /// The thread's place along K in a step of its warp.
    fn step_of_k(&self, c: Code, step: Value) -> Result<StepOfK> {
        let product = self.tile().product;
        let (depth, wide) = (product.k.1, product.depth() * self.tile().warps);
        let index = c.add(self.k, c.mul(step, c.index(wide as i64)?)?)?;
        if depth.is_multiple_of(wide) {
            return Ok(StepOfK { index, inside: None });
        }
        let inside = c.less_than(index, c.index(depth as i64)?)?;
        Ok(StepOfK { index: c.select(inside, index, c.index(0)?)?, inside: Some(inside) })
    }

    /// The thread's fragments of the few rows.
    fn few(
        &self,
        c: Code,
        rows: &[(Value, Vec<LaneValue>)],
        k: &StepOfK,
    ) -> Result<Vec<Vec<Value>>> {
        let tile = self.tile();
        let SkinnyProduct { skinny, k: (_, depth), .. } = tile.product;
        let access = tile.stages[0].inputs.get(skinny.input).ok_or("has no few rows")?;
        let one = |(row, dims): &(Value, Vec<LaneValue>)| match self.staged {
            None => tile.read_few(c, access, dims, k),
            Some(memory) => tile.few_vectors(c, k, &|c, k| {
                let at = c.add(c.mul(*row, c.index(*depth as i64)?)?, k.index)?;
                let element = memory.ty().element().ok_or("is no buffer")?;
                let v = vector::load(c, memory, &[at], Type::vector(element, VECTOR))?;
                tile.words(c, v, k.inside)
            }),
        };
        rows.iter().map(one).collect()
    }
}
