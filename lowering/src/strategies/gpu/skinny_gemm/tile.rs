//! A tile of a skinny GEMM with mma.sync: the matrix's rows are the instruction's M, the few rows
//! its N. Each lane loads 16 contiguous bytes of a row straight into fragments: this permutes K,
//! alike in both operands. The warps of a CTA take K steps in turn; a reduction in warp order adds
//! their accumulators.
use crate::{
    analysis::{Access, Nest, Output, Role, Stage},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::decode,
    },
    strategies::gpu::{
        common::ptx::Ptx,
        skinny_gemm::{
            INSTRUCTION, SkinnyOperand, SkinnyProduct, VECTOR,
            stored::{Stored, VECTOR_BYTES, WORDS},
            weights,
        },
        wgmma_gemm::tiles::PROCESSORS,
    },
};
use kiln_dialects::{ir::*, value::DType};

pub(super) const ONE_LANE: Lanes = Lanes { count: 1, mask: None };

/// What all parts of the emission share.
pub(super) struct SkinnyTile<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) nest: &'a Nest,
    pub(super) stages: Vec<&'a Stage>,
    /// The outputs of these stages.
    pub(super) outs: Vec<&'a Output>,
    pub(super) product: &'a SkinnyProduct,
    pub(super) rows: usize,
    pub(super) warps: usize,
    pub(super) unroll: usize,
    /// Warps whose accumulators fit shared memory at once.
    pub(super) warps_at_once: usize,
    /// The base of the reduction buffer in shared memory.
    pub(super) memory: Value,
    pub(super) thread: Value,
    pub(super) warp: Value,
    /// The lane's group (0 to 7), and its place in the group (0 to 3), as mma.sync numbers them.
    pub(super) lane: [Value; 2],
}

/// A lane's place along K in a step.
pub(super) struct StepOfK {
    pub(super) index: Value,
    /// Whether it is inside, if not all are.
    pub(super) inside: Option<Value>,
}

/// The tiles of a product among those of all products of the kernel.
pub(super) struct TileRange<'a> {
    pub(super) tile: SkinnyTile<'a>,
    /// Sizes by which tiles are numbered: batch, tiles of rows.
    pub(super) sizes: Vec<Value>,
    /// Rows of the matrix.
    pub(super) many: Value,
    /// The number of its first tile; `None` for 0.
    pub(super) begin: Option<Value>,
    /// The number after its last tile.
    pub(super) end: Value,
}

/// Emits code for the tile of a number, with the product that has it: the same for the whole CTA.
pub(super) fn tile_of(
    c: Code,
    ranges: &[TileRange<'_>],
    number: Value,
    each: &dyn Fn(Code, &TileRange<'_>) -> Result<()>,
) -> Result<()> {
    let (first, others) = ranges.split_first().ok_or("has no product")?;
    if others.is_empty() {
        return each(c, first);
    }
    let inside = c.less_than(number, first.end)?;
    let mut rest = |c: Code| tile_of(c, others, number, each);
    c.if_else(inside, &mut |c| each(c, first), Some(&mut rest))
}

impl TileRange<'_> {
    /// The loops of the tile of a number, with those of its rows 0, and its first row.
    pub(super) fn place(&self, c: Code, number: Value) -> Result<(Vec<LaneValue>, Value)> {
        let number = self.begin.map_or(Ok(number), |begin| c.sub(number, begin))?;
        let at = decode(c, number, &self.sizes)?;
        let mut dims = self.tile.no_dims(c)?;
        let batch = &self.tile.product.batch;
        batch.iter().zip(&at).for_each(|(d, i)| dims[*d] = LaneValue::Uniform(*i));
        let rows = c.index(self.tile.rows as i64)?;
        Ok((dims, c.mul(*at.last().ok_or("has no tiles")?, rows)?))
    }
    pub(super) fn compute(&self, c: Code, number: Value) -> Result<()> {
        let (dims, first) = self.place(c, number)?;
        let sums = self.tile.multiply(c, &dims, first, self.many)?;
        self.tile.exchange(c, sums)?;
        self.tile.finish(c, &dims, first, self.many)
    }
    /// Prefetches the start of the rows of a tile to L2, a row a thread, if it is of this product
    /// and among as many tiles as there are SMs. This is right while the kernel before it may still
    /// write to the matrix: nothing is read.
    pub(super) fn prefetch(&self, c: Code, number: Value, bytes: usize) -> Result<()> {
        let SkinnyTile { product, stages, scope, thread, rows, .. } = &self.tile;
        let SkinnyProduct { matrix, k: (_, depth), weights, .. } = product;
        let bytes = bytes.min(weights.stored.bytes(*depth));
        let mut one = |c: Code| -> Result<()> {
            let (dims, first) = self.place(c, number)?;
            let row = c.min(c.add(first, *thread)?, c.sub(self.many, c.index(1)?)?)?;
            let dims = self.tile.row(c, &dims, matrix, row)?;
            for stage in stages {
                let access = stage.inputs.get(matrix.input).ok_or("has no matrix")?;
                let place = ONE_LANE.vector(c, scope.address(c, &access.at, &dims, ONE_LANE)?)?;
                let buffer = scope.buffer(access.buffer)?;
                let element = buffer.ty().element().ok_or("is no buffer")?.dtype()?;
                Ptx(c).prefetch_l2(buffer, place, element, bytes)?;
            }
            Ok(())
        };
        let end = c.min(self.end, c.index(PROCESSORS as i64)?)?;
        let mut inside =
            vec![c.less_than(*thread, c.index(*rows as i64)?)?, c.less_than(number, end)?];
        if let Some(begin) = self.begin {
            inside.push(c.compare(CmpIPredicate::Uge, number, begin)?);
        }
        let inside = c.all_of(&inside)?.ok_or("has no condition")?;
        c.if_else(inside, &mut one, None).map(drop)
    }
}

impl SkinnyTile<'_> {
    pub(super) fn sizes(&self, c: Code, dims: &[usize]) -> Result<Vec<Value>> {
        dims.iter().map(|d| self.scope.poly(c, &self.nest.extents[*d])).collect()
    }
    pub(super) fn total(&self, c: Code, dims: &[usize]) -> Result<Value> {
        self.sizes(c, dims)?.into_iter().try_fold(c.index(1)?, |a, b| c.mul(a, b))
    }
    /// Loop dimensions, all at their start.
    pub(super) fn no_dims(&self, c: Code) -> Result<Vec<LaneValue>> {
        Ok(vec![LaneValue::Uniform(c.index(0)?); self.nest.extents.len()])
    }
    /// The few rows that a thread reads, for the first batch: their indices and loop dimensions.
    pub(super) fn few_rows(&self, c: Code) -> Result<Vec<(Value, Vec<LaneValue>)>> {
        let last = c.index(self.product.rows as i64 - 1)?;
        let one = |i: usize| {
            let row = c.min(c.add(self.lane[0], c.index((i * INSTRUCTION.1) as i64)?)?, last)?;
            Ok((row, self.row(c, &self.no_dims(c)?, &self.product.skinny, row)?))
        };
        (0..self.product.columns()).map(one).collect()
    }
    /// Whether the kernel computes the few rows.
    pub(super) fn few_are_computed(&self) -> bool {
        let access = self.stages.first().and_then(|s| s.inputs.get(self.product.skinny.input));
        let buffer = access.and_then(|a| self.scope.kernel.buffers.get(a.buffer));
        buffer.is_some_and(|b| b.role == Role::Temporary)
    }
    /// The loop dimensions, with those of an operand's row set.
    pub(super) fn row(
        &self,
        c: Code,
        dims: &[LaneValue],
        side: &SkinnyOperand,
        row: Value,
    ) -> Result<Vec<LaneValue>> {
        let mut dims = dims.to_vec();
        side.dims
            .iter()
            .zip(decode(c, row, &self.sizes(c, &side.dims)?)?)
            .for_each(|(d, i)| dims[*d] = LaneValue::Uniform(i));
        Ok(dims)
    }
    /// The rows of an operand that a thread reads, from `first` on with a constant step, clamped to
    /// the last row.
    pub(super) fn rows(
        &self,
        c: Code,
        dims: &[LaneValue],
        side: &SkinnyOperand,
        (first, size): (Value, Value),
        apart: usize,
        count: usize,
    ) -> Result<Vec<Vec<LaneValue>>> {
        let last = c.sub(size, c.index(1)?)?;
        let of = |i: usize| {
            self.row(c, dims, side, c.min(c.add(first, c.index((i * apart) as i64)?)?, last)?)
        };
        (0..count).map(of).collect()
    }
    /// 16 bytes of a row, from an element of K on, as words; zeros unless `inside`.
    fn read(&self, c: Code, access: &Access, row: &[LaneValue], k: &StepOfK) -> Result<Vec<Value>> {
        let mut dims = row.to_vec();
        dims[self.product.k.0] = LaneValue::Strided(k.index, 1);
        self.words(c, self.read_vector(c, access, &dims)?, k.inside)
    }
    /// A fragment of a stage's matrix: 16 bytes of a row, and the elements of its tables.
    fn read_matrix(
        &self,
        c: Code,
        stage: &Stage,
        row: &[LaneValue],
        k: &StepOfK,
    ) -> Result<Vec<Value>> {
        let SkinnyProduct { matrix, weights, .. } = self.product;
        let mut at = row.to_vec();
        at[self.product.k.0] = LaneValue::Uniform(k.index);
        let address = |c: Code, access: &Access| {
            ONE_LANE.vector(c, self.scope.address(c, &access.at, &at, ONE_LANE)?)
        };
        let access = stage.inputs.get(matrix.input).ok_or("has no matrix")?;
        let mut words = match weights.stored {
            Stored::Element(_) => self.read(c, access, row, k)?,
            Stored::Int4 => {
                let memory = self.scope.buffer(access.buffer)?;
                let element = memory.ty().element().ok_or("is no buffer")?;
                let bytes = Type::vector(element, VECTOR_BYTES);
                let v = vector::load(c, memory, &[address(c, access)?], bytes)?;
                self.words(c, v, k.inside)?
            }
        };
        for input in weights.tables() {
            let access = stage.inputs.get(input).ok_or("has no such table")?;
            let v = memref::load(c, self.scope.buffer(access.buffer)?, &[address(c, access)?])?;
            words.push(weights::table_bits(c, v)?);
        }
        Ok(words)
    }
    /// A thread's elements of one of the few rows in a K step, as packed pairs.
    pub(super) fn read_few(
        &self,
        c: Code,
        access: &Access,
        row: &[LaneValue],
        k: &StepOfK,
    ) -> Result<Vec<Value>> {
        self.few_vectors(c, k, &|c, k| self.read(c, access, row, k))
    }
    /// A thread's elements of a K step by `read`, which gives packed pairs of a vector of 16-bit
    /// elements.
    pub(super) fn few_vectors(
        &self,
        c: Code,
        k: &StepOfK,
        read: &dyn Fn(Code, &StepOfK) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let mut all = vec![];
        for at in (0..self.product.vector()).step_by(VECTOR) {
            let index = if at == 0 { k.index } else { c.add(k.index, c.index(at as i64)?)? };
            all.extend(read(c, &StepOfK { index, inside: k.inside })?);
        }
        Ok(all)
    }
    /// 16 bytes of an operand, contiguous along K.
    pub(super) fn read_vector(
        &self,
        c: Code,
        access: &Access,
        dims: &[LaneValue],
    ) -> Result<Value> {
        let element = self.scope.buffer(access.buffer)?.ty().element().ok_or("is no buffer")?;
        let lanes = Lanes { count: VECTOR_BYTES / element.dtype()?.byte_size(), mask: None };
        let v = self.scope.read(c, access, dims, lanes, &ForwardedElements::new())?;
        lanes.vector(c, v)
    }
    /// 16 bytes as four words; zeros unless `inside`.
    pub(super) fn words(&self, c: Code, v: Value, inside: Option<Value>) -> Result<Vec<Value>> {
        let words = Type::vector(Type::scalar(c.ctx(), DType::I32), 4);
        let mut v = vector::bitcast(c, v, words)?;
        if let Some(inside) = inside {
            v = c.select(inside, v, c.integer(0, words)?)?;
        }
        (0..4)
            .map(|i| vector::extract(c, v, &[Size::Static(i)], Type::scalar(c.ctx(), DType::I32)))
            .collect()
    }

    /// A warp's accumulators of a tile: by matrix, by 16 of its rows, by 8 of the few rows, four
    /// each.
    fn multiply(
        &self,
        c: Code,
        dims: &[LaneValue],
        first: Value,
        many: Value,
    ) -> Result<Vec<Value>> {
        let SkinnyProduct { matrix, skinny: few, rows: count, .. } = self.product;
        let (down, over) = (self.rows / INSTRUCTION.0, self.product.columns());
        let group = self.lane[0];
        let matrix_rows =
            self.rows(c, dims, matrix, (c.add(first, group)?, many), INSTRUCTION.1, 2 * down)?;
        let few_rows =
            self.rows(c, dims, few, (group, c.index(*count as i64)?), INSTRUCTION.1, over)?;
        let zero = c.number(0.0, Type::scalar(c.ctx(), DType::F32))?;
        let sums = vec![zero; 4 * self.stages.len() * down * over];
        let (steps, turn) = (c.index(self.product.steps() as i64)?, c.index(self.warps as i64)?);
        let left = |c: Code, k: &StepOfK| {
            let rows = |s: &&Stage| {
                let all = matrix_rows.iter().map(|r| self.read_matrix(c, s, r, k));
                all.collect::<Result<Vec<_>>>()
            };
            self.stages.iter().map(rows).collect::<Result<Vec<_>>>().map(|all| all.concat())
        };
        let access = &self.stages[0].inputs[few.input];
        c.for_unrolled(self.warp, steps, turn, self.unroll, &sums, &mut |c, step, sums| {
            let k = self.step_of_k(c, step)?;
            let left = left(c, &k)?;
            let right: Vec<Vec<Value>> =
                few_rows.iter().map(|r| self.read_few(c, access, r, &k)).collect::<Result<_>>()?;
            self.accumulate(c, &left, &right, sums)
        })
    }

    /// Where a lane's elements of a step are along K.
    fn step_of_k(&self, c: Code, step: Value) -> Result<StepOfK> {
        let SkinnyProduct { k: (_, depth), .. } = self.product;
        let wide = self.product.depth();
        let mut index = c.add(
            c.mul(step, c.index(wide as i64)?)?,
            c.mul(self.lane[1], c.index(self.product.vector() as i64)?)?,
        )?;
        let mut inside = None;
        if depth % wide != 0 {
            let there = c.less_than(index, c.index(*depth as i64)?)?;
            index = c.select(there, index, c.index(0)?)?;
            inside = Some(there);
        }
        Ok(StepOfK { index, inside })
    }

    /// The accumulators after a step. `left`: words of the matrix's rows, each with an element of
    /// each table; `right`: packed pairs.
    pub(super) fn accumulate(
        &self,
        c: Code,
        left: &[Vec<Value>],
        right: &[Vec<Value>],
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let SkinnyProduct { element, weights, .. } = self.product;
        let right: Vec<Vec<Value>> =
            right.iter().map(|x| weights::ordered(c, weights.stored, x)).collect::<Result<_>>()?;
        if self.product.scales_sums() {
            return self.accumulate_scaled(c, left, &right, sums);
        }
        let mut sums = sums.to_vec();
        for (i, rows) in left.chunks(2).enumerate() {
            let rows: Vec<Vec<Value>> = rows
                .iter()
                .map(|fragment| {
                    let (words, tables) = fragment.split_at(WORDS);
                    weights::pairs(c, weights, *element, words, tables)
                })
                .collect::<Result<_>>()?;
            for (j, x) in right.iter().enumerate() {
                let at = 4 * (i * right.len() + j);
                let next = self.product_of(c, &rows, x, &sums[at..at + 4])?;
                sums.splice(at..at + 4, next);
            }
        }
        Ok(sums)
    }

    /// As [`Self::accumulate`] of int4 weights whose scale is the same for a K step: tensor cores
    /// multiply the elements plus a bias, and f32 sums of a step are scaled. What the bias, the
    /// offset and the zero point add is a multiple of the sum of a row's elements.
    fn accumulate_scaled(
        &self,
        c: Code,
        left: &[Vec<Value>],
        right: &[Vec<Value>],
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let SkinnyProduct { element, weights, .. } = self.product;
        let zeros = vec![c.number(0.0, Type::scalar(c.ctx(), DType::F32))?; 4];
        let ones = vec![vec![weights::both(c, *element, 1)?; right[0].len()]; 2];
        let totals: Vec<Vec<Value>> =
            right.iter().map(|x| self.product_of(c, &ones, x, &zeros)).collect::<Result<_>>()?;
        let mut sums = sums.to_vec();
        for (i, rows) in left.chunks(2).enumerate() {
            let (mut elements, mut scales) = (vec![], vec![]);
            for fragment in rows {
                let (words, tables) = fragment.split_at(WORDS);
                elements.push(weights::biased(c, *element, words)?);
                scales.push(weights::scale_and_bias(c, weights, *element, tables)?);
            }
            for (j, x) in right.iter().enumerate() {
                let step = self.product_of(c, &elements, x, &zeros)?;
                for n in 0..4 {
                    let ([scale, bias], sum) =
                        (scales[n / 2], &mut sums[4 * (i * right.len() + j) + n]);
                    *sum = math::fma(c, bias, totals[j][n], *sum)?;
                    *sum = math::fma(c, scale, step[n], *sum)?;
                }
            }
        }
        Ok(sums)
    }

    /// The accumulators of mma.sync after packed pairs of two rows and of a column.
    fn product_of(
        &self,
        c: Code,
        rows: &[Vec<Value>],
        x: &[Value],
        sums: &[Value],
    ) -> Result<Vec<Value>> {
        let mut sums = sums.to_vec();
        for k in (0..x.len()).step_by(2) {
            let rows = [rows[0][k], rows[1][k], rows[0][k + 1], rows[1][k + 1]];
            sums = Ptx(c).warp_mma(self.product.element, rows, [x[k], x[k + 1]], &sums)?;
        }
        Ok(sums)
    }
}
