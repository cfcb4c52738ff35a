//! Staged results whose rows begin anywhere in memory: TMA cannot store them. Lanes store 16 aligned
//! bytes each, of two adjacent chunks in shared memory, and the elements at either end of a row one
//! by one.
use crate::{
    emit::code::Code,
    gpu::lower_tiles::staging::{Destination, Staging},
    strategies::gpu::{
        common::ptx::Ptx,
        wgmma_gemm::{ROW, STORED},
    },
    target::launch::WARP,
};
use kiln_dialects::{ir::*, value::DType};

/// Bytes of a chunk.
const CHUNK: usize = 16;
/// Chunks of a row of a staging buffer.
const CHUNKS: usize = ROW / CHUNK;
/// Chunks that a lane reads before it stores them, which hides the latency of the reads.
const AHEAD: usize = 4;

/// The element at which a row begins, given the row and its first column.
pub(super) type Line<'a> = dyn Fn(Code, Value, Value) -> Result<Value> + 'a;

/// A staged tile and its place.
pub(super) struct Lines<'a> {
    pub(super) staging: &'a Staging,
    pub(super) to: &'a Destination,
    /// The staging buffer of its first columns, and how many adjacent ones it has.
    pub(super) buffer: Value,
    pub(super) buffers: usize,
    /// Its first row and column.
    pub(super) row: Value,
    pub(super) column: Value,
    /// Sizes of the result, where tiles may reach beyond them.
    pub(super) bounds: [Option<Value>; 2],
    pub(super) line: &'a Line<'a>,
}

/// A row of the tile.
struct Row {
    /// Its number in the tile.
    number: Value,
    /// Where it begins in memory, in elements, and how many that is behind a multiple of 16 bytes.
    begin: Value,
    behind: Value,
    /// Whether it is stored, if not all are.
    inside: Option<Value>,
}

impl Row {
    /// A condition, where the row is stored.
    fn if_inside(&self, c: Code, condition: Value) -> Result<Value> {
        let all: Vec<Value> = self.inside.into_iter().chain([condition]).collect();
        c.all_of(&all)?.ok_or_else(|| "has no condition".into())
    }
}

/// A store of words or of an element, at an element of a row, if a condition holds.
struct Store {
    condition: Value,
    begin: Value,
    element: Value,
    values: Vec<Value>,
}

impl Lines<'_> {
    fn size(&self) -> Result<usize> {
        Ok(self.to.element.dtype()?.byte_size())
    }
    /// Elements of a chunk.
    fn each(&self) -> Result<usize> {
        Ok(CHUNK / self.size()?)
    }
    /// Chunks of a row, each of which a lane stores.
    fn chunks(&self) -> usize {
        CHUNKS * self.buffers
    }
    fn columns(&self) -> usize {
        self.to.columns * self.buffers
    }
    /// The address of a chunk of a row.
    fn address(&self, p: Ptx, row: &Row, chunk: Value) -> Result<Value> {
        let buffer = p.mul_const(p.div_const(chunk, CHUNKS)?, STORED * ROW)?;
        let buffer = p.add(self.buffer, buffer)?;
        self.staging.chunk_address(p, buffer, row.number, p.rem_const(chunk, CHUNKS)?)
    }

    /// Stores the tile.
    pub(super) fn store(&self, c: Code) -> Result<()> {
        let whole = &mut |c: Code| self.store_whole(c);
        match self.bounds[1] {
            None => whole(c)?,
            Some(n) => {
                let end = Ptx(c).add_const(self.column, self.columns())?;
                let end = Ptx(c).i32_to_index(end)?;
                let cut = &mut |c: Code| self.store_cut(c, n);
                c.if_else(c.compare(CmpIPredicate::Sle, end, n)?, whole, Some(cut))?;
            }
        }
        // Reconverge: wgmma needs whole warps.
        Ptx(c).warp_barrier()
    }

    /// Stores a tile that the bound of columns does not cut.
    fn store_whole(&self, c: Code) -> Result<()> {
        let (p, lane, memory) = (Ptx(c), self.staging.lane, Ptx(c).base_address(self.to.to)?);
        let (chunk, down) = (p.rem_const(lane, self.chunks())?, p.div_const(lane, self.chunks())?);
        let rows: Vec<usize> = (0..STORED).step_by(WARP / self.chunks()).collect();
        for some in rows.chunks(AHEAD) {
            let mut stores = vec![];
            for first in some {
                let row = self.row(c, p.add_const(down, *first)?)?;
                stores.push(self.chunk(c, &row, chunk)?);
            }
            self.write(p, memory, &stores)?;
        }
        let each = self.each()?;
        let (i, down) = (p.rem_const(lane, each)?, p.div_const(lane, each)?);
        let mut stores = vec![];
        for first in (0..STORED).step_by(WARP / each) {
            let row = self.row(c, p.add_const(down, first)?)?;
            stores.push(self.end(c, &row, i)?);
        }
        self.write(p, memory, &stores)
    }
    /// Stores a tile that the bound of columns cuts, element by element.
    fn store_cut(&self, c: Code, n: Value) -> Result<()> {
        // None where the tile begins beyond the bound: indices are not negative.
        let begin = c.min(n, Ptx(c).i32_to_index(self.column)?)?;
        let left = Ptx(c).index_to_i32(c.sub(n, begin)?)?;
        let memory = Ptx(c).base_address(self.to.to)?;
        let (from, to, by) = (c.index(0)?, c.index(STORED as i64)?, c.index(1)?);
        c.for_dynamic_step(from, to, by, &[], &mut |c, number, _| {
            let p = Ptx(c);
            let (row, mut stores) = (self.row(c, p.index_to_i32(number)?)?, vec![]);
            for first in (0..self.columns()).step_by(WARP) {
                let e = p.add_const(self.staging.lane, first)?;
                let there = c.compare(CmpIPredicate::Slt, e, left)?;
                stores.push(self.element(c, &row, e, there)?);
            }
            self.write(p, memory, &stores)?;
            Ok(vec![])
        })?;
        Ok(())
    }

    fn row(&self, c: Code, number: Value) -> Result<Row> {
        let p = Ptx(c);
        let at = p.i32_to_index(p.add(self.row, number)?)?;
        let begin = (self.line)(c, at, p.i32_to_index(self.column)?)?;
        let behind = p.rem_const(p.index_to_i32(begin)?, self.each()?)?;
        let inside = self.bounds[0].map(|n| c.less_than(at, n)).transpose()?;
        Ok(Row { number, begin, behind, inside })
    }

    /// A chunk of memory, unless the row begins in it: the last elements of the chunk before it in
    /// shared memory, as many as the row is behind, then the first ones of this.
    fn chunk(&self, c: Code, row: &Row, chunk: Value) -> Result<Store> {
        let (p, size, each) = (Ptx(c), self.size()?, self.each()?);
        let before = p.max(p.add_signed(chunk, -1)?, p.number(0)?)?;
        let mut words = vec![];
        for chunk in [before, chunk] {
            let at = self.address(p, row, chunk)?;
            words.extend(p.load_shared_vector(at, p.i32(), CHUNK / 4)?);
        }
        let has = |bytes: usize| {
            let bit = arith::andi(p, row.behind, p.number(bytes / size)?)?;
            c.compare(CmpIPredicate::Ne, bit, p.number(0)?)
        };
        for bytes in [8, 4] {
            let (taken, by) = (has(bytes)?, bytes / 4);
            let moved = |i: usize| c.select(taken, words[i - by], words[i]);
            words = (by..words.len()).map(moved).collect::<Result<_>>()?;
        }
        if size == 2 {
            let (taken, half) = (has(2)?, p.number(16)?);
            let moved = |i: usize| {
                let low = arith::shrui(p, words[i - 1], half)?;
                let both = arith::ori(p, low, arith::shli(p, words[i], half)?)?;
                c.select(taken, both, words[i])
            };
            words = (1..words.len()).map(moved).collect::<Result<_>>()?;
        }
        let values = words.split_off(words.len() - CHUNK / 4);
        let first = p.sub(p.mul_const(chunk, each)?, row.behind)?;
        let there = c.compare(CmpIPredicate::Sge, first, p.number(0)?)?;
        let condition = row.if_inside(c, there)?;
        Ok(Store { condition, begin: row.begin, element: first, values })
    }
    /// The `i`-th element that no whole chunk of memory has: those before the first one, then those
    /// behind the last one.
    fn end(&self, c: Code, row: &Row, i: Value) -> Result<Store> {
        let (p, each) = (Ptx(c), self.each()?);
        let left = p.sub(p.number(each)?, row.behind)?;
        let before = c.compare(CmpIPredicate::Slt, i, left)?;
        let e = c.select(before, i, p.add_const(i, self.columns() - each)?)?;
        let some = c.compare(CmpIPredicate::Ne, row.behind, p.number(0)?)?;
        self.element(c, row, e, some)
    }
    /// An element of a row, if a condition holds.
    fn element(&self, c: Code, row: &Row, e: Value, condition: Value) -> Result<Store> {
        let (p, size, each) = (Ptx(c), self.size()?, self.each()?);
        let at = self.address(p, row, p.div_const(e, each)?)?;
        let at = p.add(at, p.mul_const(p.rem_const(e, each)?, size)?)?;
        let bits = Type::scalar(c.ctx(), if size == 2 { DType::I16 } else { DType::I32 });
        let values = vec![p.load_shared_scalar(at, bits, size)?];
        let condition = row.if_inside(c, condition)?;
        Ok(Store { condition, begin: row.begin, element: e, values })
    }
    /// Predicated stores: in a branch LLVM would sink the reads to each of them.
    fn write(&self, p: Ptx, memory: Value, stores: &[Store]) -> Result<()> {
        for s in stores {
            // Signed: a chunk that is not stored may begin before its row.
            let element = arith::index_cast(p, s.element, Type::index(p.0.ctx()))?;
            let at = p.element_address(memory, arith::addi(p, s.begin, element)?, self.size()?)?;
            p.store_global_if(s.condition, at, &s.values)?;
        }
        Ok(())
    }
}
