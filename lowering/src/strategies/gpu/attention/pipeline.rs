//! The multi-stage pipelines of queries, keys and values in shared memory, and the producer that
//! issues their TMA loads.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention::{
            ROWS,
            flash::{Flash, Pipeline, ROW, WARPS},
            query_tile::{QueryTile, Thread},
        },
        common::ptx::Ptx,
        wgmma_gemm::{DEPTH, MatrixOperand},
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

/// The vector width of a thread's stores, in bytes.
const STORE_BYTES: usize = 16;

impl Flash<'_> {
    pub(super) fn stage_layout(&self, pipeline: Pipeline) -> (usize, usize, usize) {
        let [query, key, value] = self.bytes;
        let (keys, values) = (query * self.q_stages, query * self.q_stages + key * self.kv_stages);
        match pipeline {
            Pipeline::Queries => (0, query, self.q_stages),
            Pipeline::Keys => (keys, key, self.kv_stages),
            Pipeline::Values => (values, value, self.kv_stages),
        }
    }
    /// The address of a stage.
    pub(super) fn stage_address(&self, p: Ptx, pipeline: Pipeline, stage: Value) -> Result<Value> {
        let (start, bytes, _) = self.stage_layout(pipeline);
        p.add(p.add_const(self.base, start)?, p.mul_const(stage, bytes)?)
    }
    pub(super) fn full_barrier(&self, p: Ptx, pipeline: Pipeline, stage: Value) -> Result<Value> {
        let [query, key, value] = self.bytes;
        let barriers = query * self.q_stages + (key + value) * self.kv_stages;
        let before = match pipeline {
            Pipeline::Queries => 0,
            Pipeline::Keys => 16 * self.q_stages,
            Pipeline::Values => 16 * (self.q_stages + self.kv_stages),
        };
        p.add(p.add_const(self.base, barriers + before)?, p.mul_const(stage, 8)?)
    }
    pub(super) fn empty_barrier(&self, p: Ptx, pipeline: Pipeline, stage: Value) -> Result<Value> {
        p.add_const(self.full_barrier(p, pipeline, stage)?, 8 * self.stage_layout(pipeline).2)
    }
    /// The next stage, and its phase parity.
    pub(super) fn next_stage(
        &self,
        p: Ptx,
        pipeline: Pipeline,
        [stage, parity]: [Value; 2],
    ) -> Result<[Value; 2]> {
        p.next_stage(stage, parity, self.stage_layout(pipeline).2)
    }

    /// Waits until a stage is empty and loads all slices of a block of rows into it.
    pub(super) fn load_stage(
        &self,
        p: Ptx,
        pipeline: Pipeline,
        [stage, parity]: [Value; 2],
        row: Value,
        query_tile: &QueryTile,
    ) -> Result<()> {
        let (o, map): (&MatrixOperand, Value) = match pipeline {
            Pipeline::Queries => (&self.pattern.query, self.maps[0]),
            Pipeline::Keys => (&self.pattern.key, self.maps[1]),
            Pipeline::Values => (&self.pattern.value, self.maps[2]),
        };
        let bytes = self.stage_layout(pipeline).1;
        let rows =
            if matches!(pipeline, Pipeline::Queries) { self.warpgroups * ROWS } else { self.keys };
        p.mbarrier_wait(self.empty_barrier(p, pipeline, stage)?, parity)?;
        let (full, to) =
            (self.full_barrier(p, pipeline, stage)?, self.stage_address(p, pipeline, stage)?);
        p.mbarrier_arrive_expect_tx(full, bytes)?;
        let around: Vec<Value> = o
            .dims
            .iter()
            .skip(2)
            .map(|d| p.index_to_i32(query_tile.outer[*d]))
            .collect::<Result<_>>()?;
        for slice in 0..bytes / (rows * ROW) {
            let at = [&[p.number(slice * DEPTH)?, row], around.as_slice()].concat();
            p.tma_load(p.add_const(to, slice * rows * ROW)?, map, &at, full)?;
        }
        Ok(())
    }
    /// Zeroes the values of masked keys in the last block: they may be NaN, and 0 × NaN is NaN. A
    /// late warpgroup writes zeros over zeros.
    pub(super) fn zero_masked_values(
        &self,
        c: Code,
        t: &Thread<'_>,
        [stage, parity]: [Value; 2],
    ) -> Result<()> {
        let p = Ptx(c);
        let rest = p.sub(t.query_tile.count, self.first_key(p, t.query_tile, p.number(0)?)?)?;
        let some = [
            c.compare(CmpIPredicate::Slt, rest, p.number(self.keys)?)?,
            c.compare(CmpIPredicate::Slt, t.query_tile.count, self.count)?,
        ];
        let mut zeros = |c: Code| -> Result<()> {
            let p = Ptx(c);
            p.mbarrier_wait(self.full_barrier(p, Pipeline::Values, stage)?, parity)?;
            let begin = p.add(
                self.stage_address(p, Pipeline::Values, stage)?,
                p.mul_const(p.max(rest, p.number(0)?)?, ROW)?,
            )?;
            let (first, end) = (
                p.mul_const(t.group[1], STORE_BYTES)?,
                p.mul_const(p.sub(p.number(self.keys)?, p.max(rest, p.number(0)?)?)?, ROW)?,
            );
            let nothing = c.integer(0, Type::vector(p.i32(), STORE_BYTES / 4))?;
            c.for_dynamic_step(
                p.i32_to_index(first)?,
                p.i32_to_index(end)?,
                c.index((WARPS * WARP * STORE_BYTES) as i64)?,
                &[],
                &mut |c, at, _| {
                    let p = Ptx(c);
                    let at = p.add(begin, p.index_to_i32(at)?)?;
                    for slice in 0..self.pattern.slices()[1] {
                        p.store_shared(
                            p.add_const(at, slice * self.keys * ROW)?,
                            nothing,
                            STORE_BYTES,
                        )?;
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
    pub(super) fn produce(&self, c: Code) -> Result<()> {
        let (zero, one) = (Ptx(c).number(0)?, Ptx(c).number(1)?);
        self.for_each_tile(c, &[zero, one, zero, one], &mut |c, query_tile, carried| {
            let (p, query) = (Ptx(c), [carried[0], carried[1]]);
            self.load_stage(p, Pipeline::Queries, query, query_tile.first, query_tile)?;
            // Without keys there is no memory to read: all rows are out of bounds, which TMA fills
            // with zeros.
            let none = arith::extui(c, p.eq_const(self.count, 0)?, zero.ty())?;
            let next = c.for_dynamic_step(
                c.index(0)?,
                p.i32_to_index(query_tile.blocks[0])?,
                c.index(1)?,
                &carried[2..],
                &mut |c, back, carried| {
                    let (p, at) = (Ptx(c), [carried[0], carried[1]]);
                    let row = p.add(self.first_key(p, query_tile, p.index_to_i32(back)?)?, none)?;
                    self.load_stage(p, Pipeline::Keys, at, row, query_tile)?;
                    self.load_stage(p, Pipeline::Values, at, row, query_tile)?;
                    Ok(self.next_stage(p, Pipeline::Keys, at)?.to_vec())
                },
            )?;
            Ok([self.next_stage(p, Pipeline::Queries, query)?.to_vec(), next].concat())
        })
    }
}
