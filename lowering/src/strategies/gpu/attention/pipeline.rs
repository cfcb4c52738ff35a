//! The multi-stage pipelines of queries, keys and values in shared memory, and the producer that
//! issues their TMA loads.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention::{
            ROWS,
            emit::{Flash, Place, ROW, Ring, Thread, WARPS},
        },
        common::ptx::Ptx,
        wgmma_gemm::{DEPTH, Operand},
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

/// The vector width of a thread's stores, in bytes.
const WORDS: usize = 16;

impl Flash<'_> {
    pub(crate) fn slots(&self, ring: Ring) -> (usize, usize, usize) {
        let [query, key, value] = self.bytes;
        let (keys, values) = (query * self.slots, query * self.slots + key * self.stages);
        match ring {
            Ring::Queries => (0, query, self.slots),
            Ring::Keys => (keys, key, self.stages),
            Ring::Values => (values, value, self.stages),
        }
    }
    /// The address of a stage.
    pub(crate) fn slot(&self, p: Ptx, ring: Ring, slot: Value) -> Result<Value> {
        let (start, bytes, _) = self.slots(ring);
        p.add(p.add_const(self.base, start)?, p.mul_const(slot, bytes)?)
    }
    pub(crate) fn full(&self, p: Ptx, ring: Ring, slot: Value) -> Result<Value> {
        let [query, key, value] = self.bytes;
        let barriers = query * self.slots + (key + value) * self.stages;
        let before = match ring {
            Ring::Queries => 0,
            Ring::Keys => 16 * self.slots,
            Ring::Values => 16 * (self.slots + self.stages),
        };
        p.add(p.add_const(self.base, barriers + before)?, p.mul_const(slot, 8)?)
    }
    pub(crate) fn empty(&self, p: Ptx, ring: Ring, slot: Value) -> Result<Value> {
        p.add_const(self.full(p, ring, slot)?, 8 * self.slots(ring).2)
    }
    /// The next stage, and its phase parity.
    pub(crate) fn next(
        &self,
        p: Ptx,
        ring: Ring,
        [slot, parity]: [Value; 2],
    ) -> Result<[Value; 2]> {
        p.next_stage(slot, parity, self.slots(ring).2)
    }

    /// Waits until a stage is empty and loads all slices of a block of rows into it.
    pub(crate) fn fill(
        &self,
        p: Ptx,
        ring: Ring,
        [slot, parity]: [Value; 2],
        row: Value,
        place: &Place,
    ) -> Result<()> {
        let (o, map): (&Operand, Value) = match ring {
            Ring::Queries => (&self.form.query, self.maps[0]),
            Ring::Keys => (&self.form.key, self.maps[1]),
            Ring::Values => (&self.form.value, self.maps[2]),
        };
        let bytes = self.slots(ring).1;
        let rows = if matches!(ring, Ring::Queries) { self.groups * ROWS } else { self.keys };
        p.mbarrier_wait(self.empty(p, ring, slot)?, parity)?;
        let (full, to) = (self.full(p, ring, slot)?, self.slot(p, ring, slot)?);
        p.mbarrier_arrive_expect_tx(full, bytes)?;
        let around: Vec<Value> = o
            .dims
            .iter()
            .skip(2)
            .map(|d| p.index_to_i32(place.around[*d]))
            .collect::<Result<_>>()?;
        for slab in 0..bytes / (rows * ROW) {
            let at = [&[p.number(slab * DEPTH)?, row], around.as_slice()].concat();
            p.tma_load(p.add_const(to, slab * rows * ROW)?, map, &at, full)?;
        }
        Ok(())
    }
    /// Zeroes the values of masked keys in the last block: they may be NaN, and 0 × NaN is NaN. A
    /// late warpgroup writes zeros over zeros.
    pub(crate) fn clear(&self, c: Code, t: &Thread<'_>, [slot, parity]: [Value; 2]) -> Result<()> {
        let p = Ptx(c);
        let rest = p.sub(t.place.count, self.first_key(p, t.place, p.number(0)?)?)?;
        let some = [
            c.compare(CmpIPredicate::Slt, rest, p.number(self.keys)?)?,
            c.compare(CmpIPredicate::Slt, t.place.count, self.count)?,
        ];
        let mut zeros = |c: Code| -> Result<()> {
            let p = Ptx(c);
            p.mbarrier_wait(self.full(p, Ring::Values, slot)?, parity)?;
            let begin = p.add(
                self.slot(p, Ring::Values, slot)?,
                p.mul_const(p.max(rest, p.number(0)?)?, ROW)?,
            )?;
            let (first, end) = (
                p.mul_const(t.group[1], WORDS)?,
                p.mul_const(p.sub(p.number(self.keys)?, p.max(rest, p.number(0)?)?)?, ROW)?,
            );
            let nothing = c.integer(0, Type::vector(p.i32(), WORDS / 4))?;
            c.for_dynamic_step(
                p.i32_to_index(first)?,
                p.i32_to_index(end)?,
                c.index((WARPS * WARP * WORDS) as i64)?,
                &[],
                &mut |c, at, _| {
                    let p = Ptx(c);
                    let at = p.add(begin, p.index_to_i32(at)?)?;
                    for slab in 0..self.form.slabs()[1] {
                        p.store_shared(p.add_const(at, slab * self.keys * ROW)?, nothing, WORDS)?;
                    }
                    Ok(vec![])
                },
            )?;
            p.fence_proxy_async()?;
            p.named_barrier(t.group[0], WARPS * WARP)
        };
        c.if_else(c.all_of(&some)?.ok_or("has no condition")?, &mut zeros, None)
    }
    /// The producer. All stages are empty at first.
    pub(crate) fn produce(&self, c: Code) -> Result<()> {
        let (zero, one) = (Ptx(c).number(0)?, Ptx(c).number(1)?);
        self.each(c, &[zero, one, zero, one], &mut |c, place, carried| {
            let (p, query) = (Ptx(c), [carried[0], carried[1]]);
            self.fill(p, Ring::Queries, query, place.first, place)?;
            // Without keys there is no memory to read: all rows are out of bounds, which TMA fills
            // with zeros.
            let none = arith::extui(c, p.eq_const(self.count, 0)?, zero.ty())?;
            let next = c.for_dynamic_step(
                c.index(0)?,
                p.i32_to_index(place.blocks[0])?,
                c.index(1)?,
                &carried[2..],
                &mut |c, back, carried| {
                    let (p, at) = (Ptx(c), [carried[0], carried[1]]);
                    let row = p.add(self.first_key(p, place, p.index_to_i32(back)?)?, none)?;
                    self.fill(p, Ring::Keys, at, row, place)?;
                    self.fill(p, Ring::Values, at, row, place)?;
                    Ok(self.next(p, Ring::Keys, at)?.to_vec())
                },
            )?;
            Ok([self.next(p, Ring::Queries, query)?.to_vec(), next].concat())
        })
    }
}
