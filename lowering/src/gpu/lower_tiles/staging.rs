//! Staging of results: a warp writes 16 rows of 128 bytes to shared memory, and TMA stores them while
//! the next ones are computed. Where rows are not 16-byte aligned, the warp stores them row by row.
use crate::{
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    gpu::lower_tiles::{
        role::Role,
        thread::{Thread, WARPS},
    },
    strategies::gpu::{
        common::ptx::Ptx,
        wgmma_gemm::{ROW, STORED},
    },
};
use kiln_dialects::ir::*;

/// Where a result is stored.
pub(super) struct Destination {
    /// A tensor map, or memory.
    pub(super) to: Value,
    pub(super) element: Type,
    /// Columns of 128 bytes.
    pub(super) columns: usize,
}

impl Destination {
    pub(super) fn is_tensor_map(&self) -> bool {
        !self.to.ty().is_memref()
    }
}

/// The element at which a row begins, given the row and its first column.
pub(super) type Line<'a> = dyn Fn(Code, Value, Value) -> Result<Value> + 'a;

/// A warp's staging buffers.
pub(super) struct Staging {
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

impl Staging {
    /// `buffers`: how many a tile uses.
    pub(super) fn of(
        p: Ptx,
        role: &Role<'_>,
        thread: Thread,
        destinations: &[Destination],
        buffers: usize,
    ) -> Result<Staging> {
        let own = p.add(p.mul_const(thread.group, WARPS)?, thread.warp)?;
        Ok(Staging {
            memory: p.add(role.rings.staging(p)?, p.mul_const(own, 2 * STORED * ROW)?)?,
            lane: thread.lane,
            elected: thread.elected,
            used: 0,
            odd: buffers % 2 == 1,
            all: destinations.iter().all(Destination::is_tensor_map),
        })
    }
    /// A buffer that no TMA store still reads.
    pub(super) fn next_buffer(&mut self, c: Code) -> Result<Value> {
        let left = usize::from(self.all && !(self.odd && self.used == 0));
        c.if_else(self.elected, &mut |c| Ptx(c).tma_store_wait(left, false), None)?;
        Ptx(c).warp_barrier()?;
        let at = Ptx(c).add_const(self.memory, self.used % 2 * STORED * ROW)?;
        self.used += 1;
        Ok(at)
    }
    /// The address of 16-byte chunk `chunk` of a row, under the 128-byte swizzle.
    fn chunk_address(&self, p: Ptx, buffer: Value, row: Value, chunk: Value) -> Result<Value> {
        let swizzled = arith::xori(p.0, chunk, p.rem_const(row, 8)?)?;
        p.add(buffer, p.add(p.mul_const(row, ROW)?, p.mul_const(swizzled, 16)?)?)
    }
    /// Stages pairs of elements of the upper and the lower 8 rows, for each 8 columns.
    pub(super) fn stage(
        &self,
        p: Ptx,
        d: &Destination,
        buffer: Value,
        pairs: &[[Value; 2]],
    ) -> Result<()> {
        match d.element.dtype()?.byte_size() {
            2 => self.stage_16_bit(p, buffer, pairs),
            _ => self.stage_32_bit(p, buffer, pairs),
        }
    }
    /// By stmatrix.
    fn stage_16_bit(&self, p: Ptx, buffer: Value, pairs: &[[Value; 2]]) -> Result<()> {
        let (row, right) = (p.rem_const(self.lane, 16)?, p.div_const(self.lane, 16)?);
        for (i, both) in pairs.chunks(2).enumerate() {
            let [[a, b], [c, d]] = both else {
                return Err("has an odd number of columns".into());
            };
            let parts = [
                p.pack_elements(*a)?,
                p.pack_elements(*b)?,
                p.pack_elements(*c)?,
                p.pack_elements(*d)?,
            ];
            p.stmatrix(self.chunk_address(p, buffer, row, p.add_const(right, 2 * i)?)?, parts)?;
        }
        Ok(())
    }
    fn stage_32_bit(&self, p: Ptx, buffer: Value, pairs: &[[Value; 2]]) -> Result<()> {
        let (row, pair) = (p.div_const(self.lane, 4)?, p.rem_const(self.lane, 4)?);
        for (i, halves) in pairs.iter().enumerate() {
            for (half, v) in halves.iter().enumerate() {
                let at = self.chunk_address(
                    p,
                    buffer,
                    p.add_const(row, 8 * half)?,
                    p.add_const(p.div_const(pair, 2)?, 2 * i)?,
                )?;
                p.store_shared(p.add(at, p.mul_const(p.rem_const(pair, 2)?, 8)?)?, *v, 8)?;
            }
        }
        Ok(())
    }

    /// Stores a buffer by TMA.
    pub(super) fn store_by_tma(
        &self,
        c: Code,
        d: &Destination,
        buffer: Value,
        at: &[Value],
    ) -> Result<()> {
        let p = Ptx(c);
        p.fence_proxy_async()?;
        p.warp_barrier()?;
        c.if_else(self.elected, &mut |c| Ptx(c).tma_store(d.to, buffer, at), None)
    }

    /// Stores the rows of a buffer. A warp stores a row of 32-bit elements as it is, one of 16-bit
    /// elements as 32 pairs aligned to 4 bytes, plus the unaligned elements at either end.
    pub(super) fn store_lines(
        &self,
        c: Code,
        d: &Destination,
        buffer: Value,
        [row, column]: [Value; 2],
        [rows, columns]: [Option<Value>; 2],
        line: &Line<'_>,
    ) -> Result<()> {
        let (row, column, lane) = (
            Ptx(c).i32_to_index(row)?,
            Ptx(c).i32_to_index(column)?,
            Ptx(c).i32_to_index(self.lane)?,
        );
        let single = Lanes { count: 1, mask: None };
        let (size, each) = (d.element.dtype()?.byte_size(), 16 / d.element.dtype()?.byte_size());
        let one_row = |c: Code, r: Value, at: Value| -> Result<()> {
            let begin = line(c, at, column)?;
            let read = |c: Code, e: Value| -> Result<Value> {
                let (p, e) = (Ptx(c), Ptx(c).index_to_i32(e)?);
                let chunk = p.div_const(e, each)?;
                let at = self.chunk_address(p, buffer, p.index_to_i32(r)?, chunk)?;
                let at = p.add(at, p.mul_const(p.rem_const(e, each)?, size)?)?;
                p.load_shared(at, d.element)
            };
            let there = |c: Code, e: Value| -> Result<Value> {
                let inside = c.less_than(e, c.index(d.columns as i64)?)?;
                let Some(columns) = columns else { return Ok(inside) };
                let left = c.less_than(c.add(column, e)?, columns)?;
                c.all_of(&[inside, left])?.ok_or_else(|| "has no bounds".into())
            };
            let one = |c: Code, e: Value| -> Result<()> {
                let store = &mut |c: Code| {
                    let at = LaneValue::Uniform(c.add(begin, e)?);
                    single.store(c, d.to, at, LaneValue::Uniform(read(c, e)?), false)
                };
                c.if_else(there(c, e)?, store, None)
            };
            if size == 4 {
                return one(c, lane);
            }
            let odd = c.rem(begin, c.index(2)?)?;
            let first = c.add(c.mul(lane, c.index(2)?)?, odd)?;
            let second = c.add(first, c.index(1)?)?;
            let mut pair = |c: Code| -> Result<()> {
                let all = [read(c, first)?, read(c, second)?];
                let both = vector::from_elements(c, &all, Type::vector(d.element, 2))?;
                let at = LaneValue::Strided(c.add(begin, first)?, 1);
                let lanes = Lanes { count: 2, mask: None };
                lanes.store(c, d.to, at, LaneValue::Vector(both), false)
            };
            c.if_else(there(c, second)?, &mut pair, Some(&mut |c| one(c, first)))?;
            let front = [c.compare(CmpIPredicate::Eq, odd, c.index(1)?)?, self.elected];
            let front = c.all_of(&front)?.ok_or("has no bounds")?;
            c.if_else(front, &mut |c| one(c, c.index(0)?), None)
        };
        let (from, to, by) = (c.index(0)?, c.index(STORED as i64)?, c.index(1)?);
        c.for_dynamic_step(from, to, by, &[], &mut |c, r, _| {
            let at = c.add(row, r)?;
            match rows {
                None => one_row(c, r, at)?,
                Some(n) => {
                    c.if_else(c.less_than(at, n)?, &mut |c| one_row(c, r, at), None)?;
                }
            }
            Ok(vec![])
        })?;
        // Reconverge: wgmma needs whole warps.
        Ptx(c).warp_barrier()
    }
}
