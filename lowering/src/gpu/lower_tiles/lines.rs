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
use kiln_dialects::ir::*;

/// Bytes of a chunk.
const CHUNK: usize = 16;
/// Chunks of a row, each of which a lane stores.
const CHUNKS: usize = ROW / CHUNK;

/// The element at which a row begins, given the row and its first column.
pub(super) type Line<'a> = dyn Fn(Code, Value, Value) -> Result<Value> + 'a;

/// A staged tile and its place.
pub(super) struct Lines<'a> {
    pub(super) staging: &'a Staging,
    pub(super) to: &'a Destination,
    pub(super) buffer: Value,
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
    /// Where it begins in memory, and how many elements that is behind a multiple of 16 bytes.
    begin: Value,
    behind: Value,
    /// Whether it is stored, if not all are.
    inside: Option<Value>,
}

impl Lines<'_> {
    fn size(&self) -> Result<usize> {
        Ok(self.to.element.dtype()?.byte_size())
    }
    /// Elements of a chunk.
    fn each(&self) -> Result<usize> {
        Ok(CHUNK / self.size()?)
    }
    /// Stores the tile.
    pub(super) fn store(&self, c: Code) -> Result<()> {
        let whole = &mut |c: Code| self.store_whole(c);
        match self.bounds[1] {
            None => whole(c)?,
            Some(n) => {
                let end = Ptx(c).add_const(self.column, self.to.columns)?;
                let end = Ptx(c).i32_to_index(end)?;
                let cut = &mut |c: Code| self.store_cut(c, n);
                c.if_else(c.compare(CmpIPredicate::Sle, end, n)?, whole, Some(cut))?;
            }
        }
        // Reconverge: wgmma needs whole warps.
        Ptx(c).warp_barrier()
    }

    /// Stores a tile that the bound of columns does not cut. All reads come before the stores, which
    /// hides their latency.
    fn store_whole(&self, c: Code) -> Result<()> {
        let (lane, each) = (Ptx(c).i32_to_index(self.staging.lane)?, self.each()?);
        let (mut chunks, mut ends) = (vec![], vec![]);
        let chunk = c.rem(lane, c.index(CHUNKS as i64)?)?;
        let down = c.div(lane, c.index(CHUNKS as i64)?)?;
        for first in (0..STORED).step_by(WARP / CHUNKS) {
            let row = self.row(c, c.add(down, c.index(first as i64)?)?)?;
            chunks.push((self.chunk(c, &row, chunk)?, row));
        }
        let (i, down) = (c.rem(lane, c.index(each as i64)?)?, c.div(lane, c.index(each as i64)?)?);
        for first in (0..STORED).step_by(WARP / each) {
            let row = self.row(c, c.add(down, c.index(first as i64)?)?)?;
            let e = self.end(c, &row, i)?;
            ends.push((self.read(c, &row, e)?, e, row));
        }
        for ((all, first), row) in chunks {
            let at = c.compare(CmpIPredicate::Sge, first, c.index(0)?)?;
            self.when(c, &row, at, &mut |c| {
                let store = vector::Store::new(c, all, self.to.to, &[c.add(row.begin, first)?]);
                store.alignment(CHUNK as i64).build().map(drop)
            })?;
        }
        for (v, e, row) in ends {
            let some = c.compare(CmpIPredicate::Ne, row.behind, c.index(0)?)?;
            self.when(c, &row, some, &mut |c| self.write(c, &row, e, v))?;
        }
        Ok(())
    }
    /// Stores a tile that the bound of columns cuts, element by element.
    fn store_cut(&self, c: Code, n: Value) -> Result<()> {
        let lane = Ptx(c).i32_to_index(self.staging.lane)?;
        // None where the tile begins beyond the bound: indices are not negative.
        let left = c.sub(n, c.min(n, Ptx(c).i32_to_index(self.column)?)?)?;
        let (from, to, by) = (c.index(0)?, c.index(STORED as i64)?, c.index(1)?);
        c.for_dynamic_step(from, to, by, &[], &mut |c, number, _| {
            let row = self.row(c, number)?;
            for first in (0..self.to.columns).step_by(WARP) {
                let e = c.add(lane, c.index(first as i64)?)?;
                let v = self.read(c, &row, e)?;
                self.when(c, &row, c.less_than(e, left)?, &mut |c| self.write(c, &row, e, v))?;
            }
            Ok(vec![])
        })?;
        Ok(())
    }

    fn row(&self, c: Code, number: Value) -> Result<Row> {
        let at = c.add(Ptx(c).i32_to_index(self.row)?, number)?;
        let begin = (self.line)(c, at, Ptx(c).i32_to_index(self.column)?)?;
        let behind = c.rem(begin, c.index(self.each()? as i64)?)?;
        let inside = self.bounds[0].map(|n| c.less_than(at, n)).transpose()?;
        Ok(Row { number, begin, behind, inside })
    }
    /// Runs `then` if a condition holds and the row is stored.
    fn when(
        &self,
        c: Code,
        row: &Row,
        condition: Value,
        then: &mut dyn FnMut(Code) -> Result<()>,
    ) -> Result<()> {
        let all: Vec<Value> = row.inside.into_iter().chain([condition]).collect();
        c.if_else(c.all_of(&all)?.ok_or("has no condition")?, then, None)
    }

    /// A chunk of memory, of the two in shared memory in which it is, and its first element. That is
    /// negative where the chunk begins before the row.
    fn chunk(&self, c: Code, row: &Row, chunk: Value) -> Result<(Value, Value)> {
        let (p, size, each) = (Ptx(c), self.size()?, self.each()?);
        let first = c.sub(c.mul(chunk, c.index(each as i64)?)?, row.behind)?;
        let (first32, number) = (p.index_to_i32(first)?, p.index_to_i32(row.number)?);
        let from = p.max(first32, p.number(0)?)?;
        let near = p.div_const(from, each)?;
        // Of an aligned row the second chunk is not used.
        let far = p.min(p.add_const(near, 1)?, p.number(CHUNKS - 1)?)?;
        let mut words = vec![];
        for chunk in [near, far] {
            let at = self.staging.chunk_address(p, self.buffer, number, chunk)?;
            words.extend(p.load_shared_vector(at, p.i32(), CHUNK / 4)?);
        }
        let shift = p.mul_const(p.rem_const(from, each)?, size)?;
        let has = |bytes: usize| {
            let bit = arith::andi(p, shift, p.number(bytes)?)?;
            c.compare(CmpIPredicate::Ne, bit, p.number(0)?)
        };
        for bytes in [8, 4] {
            let (taken, by) = (has(bytes)?, bytes / 4);
            let moved = |i: usize| c.select(taken, words[i + by], words[i]);
            words = (0..words.len() - by).map(moved).collect::<Result<_>>()?;
        }
        if size == 2 {
            let (taken, half) = (has(2)?, p.number(16)?);
            let moved = |i: usize| {
                let low = arith::shrui(p, words[i], half)?;
                let both = arith::ori(p, low, arith::shli(p, words[i + 1], half)?)?;
                c.select(taken, both, words[i])
            };
            words = (0..CHUNK / 4).map(moved).collect::<Result<_>>()?;
        }
        let all = vector::from_elements(c, &words[..CHUNK / 4], Type::vector(p.i32(), CHUNK / 4))?;
        Ok((vector::bitcast(c, all, Type::vector(self.to.element, each))?, first))
    }
    /// The `i`-th element that no whole chunk of memory has: those before the first one, then those
    /// behind the last one.
    fn end(&self, c: Code, row: &Row, i: Value) -> Result<Value> {
        let each = self.each()? as i64;
        let before = c.less_than(i, c.sub(c.index(each)?, row.behind)?)?;
        c.select(before, i, c.add(i, c.index(self.to.columns as i64 - each)?)?)
    }
    fn read(&self, c: Code, row: &Row, e: Value) -> Result<Value> {
        let (p, size, each) = (Ptx(c), self.size()?, self.each()?);
        let (e, number) = (p.index_to_i32(e)?, p.index_to_i32(row.number)?);
        let chunk = p.div_const(e, each)?;
        let at = self.staging.chunk_address(p, self.buffer, number, chunk)?;
        let at = p.add(at, p.mul_const(p.rem_const(e, each)?, size)?)?;
        p.load_shared_scalar(at, self.to.element, size)
    }
    fn write(&self, c: Code, row: &Row, e: Value, v: Value) -> Result<()> {
        memref::store(c, v, self.to.to, &[c.add(row.begin, e)?])
    }
}
