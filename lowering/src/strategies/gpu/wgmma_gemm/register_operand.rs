//! wgmma with the left operand in registers: a warp reads its rows of the tile from shared memory,
//! runs the prologue on its fragments and passes them to wgmma. The prologue of the next K step
//! overlaps the wgmmas of the current one.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        common::ptx::Ptx,
        prologue::{emit as prologue_emit, emit::PrologueElements},
        wgmma_gemm::{
            DEPTH, ROW,
            tile::{Fragments, WgmmaTile},
        },
    },
};
use kiln_dialects::{ir::*, value::DType};

/// A consumer thread at a tile.
struct Thread<'a> {
    elements: PrologueElements<'a>,
    lane: Value,
    /// The first of the warp's 16 rows in the tile.
    row: Value,
    /// The thread's first column of a K step.
    column: Value,
}

impl WgmmaTile<'_> {
    /// Bytes of the left operand's pipeline stage.
    pub(super) fn left_bytes(&self) -> usize {
        self.m * self.product().slices() * ROW
    }

    /// The computed left fragments of a K step, in f32. Of each 16 columns: two rows of the first 8
    /// columns, then two rows of the second 8, each with two adjacent elements.
    fn left(&self, c: Code, t: &Thread<'_>, stage: Value, step: Value) -> Result<Vec<Value>> {
        let p = Ptx(c);
        let mut known = t.elements.step(c, p.add(p.mul_const(step, DEPTH)?, t.column)?)?;
        let tile = p.add(self.pipeline, p.mul_const(stage, self.stage_bytes())?)?;
        let mut made = vec![];
        for k in 0..DEPTH / 16 {
            for (i, pair) in self.raw(p, t, tile, k)?.into_iter().enumerate() {
                let column = 16 * k + 8 * (i / 2);
                for (e, v) in pair.into_iter().enumerate() {
                    made.push(t.elements.element(c, &mut known, v, i % 2, column + e)?);
                }
            }
        }
        Ok(made)
    }
    /// The raw elements of the `k`-th 16 columns of a tile, in fragment order.
    fn raw(&self, p: Ptx, t: &Thread<'_>, tile: Value, k: usize) -> Result<Vec<[Value; 2]>> {
        let raw = self.product().raw;
        let swizzled = |chunk: Value, row: Value| p.mul_const(arith::xori(p, chunk, row)?, 16);
        if raw.byte_size() == 2 {
            let (row, high) = (p.rem_const(t.lane, 16)?, p.div_const(t.lane, 16)?);
            let chunk = arith::xori(p, high, p.number(2 * k)?)?;
            let at = p.add(
                p.mul_const(p.add(t.row, row)?, ROW)?,
                swizzled(chunk, p.rem_const(t.lane, 8)?)?,
            )?;
            return p
                .ldmatrix(p.add(tile, at)?, false)?
                .into_iter()
                .map(|word| prologue_emit::unpack_pair(p.0, word, raw))
                .collect();
        }
        // A slice of 32-bit elements has half as many columns.
        let tile = p.add_const(tile, k / 2 * self.m * ROW)?;
        let (row, pair) = (p.div_const(t.lane, 4)?, p.rem_const(t.lane, 4)?);
        let one = |i: usize| {
            let chunk = p.add_const(p.div_const(pair, 2)?, k % 2 * 4 + i / 2 * 2)?;
            let begin = p.mul_const(p.add_const(p.add(t.row, row)?, i % 2 * 8)?, ROW)?;
            let at = p.add(
                p.add(begin, swizzled(chunk, row)?)?,
                p.mul_const(p.rem_const(pair, 2)?, 8)?,
            )?;
            p.load_shared_pair(p.add(tile, at)?, Type::scalar(p.0.ctx(), DType::F32))
        };
        (0..4).map(one).collect()
    }

    /// Issues the wgmmas of a K step.
    fn multiply_registers(
        &self,
        p: Ptx,
        left: &[Value],
        sums: &[Value],
        stage: Value,
    ) -> Result<Vec<Value>> {
        let (k_major, element) = (self.product().rights[0].k_major, self.product().element);
        let right = p.add_const(
            p.add(self.pipeline, p.mul_const(stage, self.stage_bytes())?)?,
            self.left_bytes(),
        )?;
        let right = p.wgmma_descriptor(right, k_major)?;
        let mut sums = sums.to_vec();
        p.wgmma_fence()?;
        for (k, left) in left.chunks(4).enumerate() {
            let right = p.advance_descriptor(right, k * if k_major { 32 } else { 16 * ROW })?;
            sums = p.wgmma_register_operand(element, left, right, k_major, &sums)?;
        }
        p.wgmma_commit_group()?;
        Ok(sums)
    }

    /// A consumer warpgroup. `thread`: its thread, 0 to 127.
    pub(super) fn consume_computed(
        &self,
        c: Code,
        group: Value,
        thread: Value,
        warp: Value,
    ) -> Result<()> {
        self.for_each_tile(
            c,
            &[Ptx(c).number(0)?, Ptx(c).number(0)?],
            &mut |c, tile_coord, carried| {
                let p = Ptx(c);
                let lane = p.rem_const(thread, 32)?;
                // Each warp elects a lane to arrive: it may have read its rows before the other
                // warps have.
                let elected = p.eq_const(lane, 0)?;
                let release = |c: Code, stage: Value| {
                    c.if_else(
                        elected,
                        &mut |c| Ptx(c).mbarrier_arrive(self.empty_barrier(Ptx(c), stage)?),
                        None,
                    )
                };
                let ready = |c: Code, stage: Value, parity: Value| {
                    Ptx(c).mbarrier_wait(self.full_barrier(Ptx(c), stage)?, parity)
                };
                let row =
                    p.add(self.warpgroup_row(p, group)?, p.mul_const(p.rem_const(warp, 4)?, 16)?)?;
                let own = p.add(p.add(tile_coord.row, row)?, p.div_const(lane, 4)?)?;
                let elements = PrologueElements::of(
                    c,
                    &self.results,
                    &tile_coord.batch,
                    &[own, p.add_const(own, 8)?],
                )?;
                let t =
                    Thread { elements, lane, row, column: p.mul_const(p.rem_const(lane, 4)?, 2)? };
                ready(c, carried[0], carried[1])?;
                let made = self.left(c, &t, carried[0], p.number(0)?)?;
                let zero = c.number(0.0, p.f32())?;
                let mut state = vec![zero; self.n / 2];
                state.extend(t.elements.packed(p, &made)?);
                state.extend(carried);
                let count = self.n / 2;
                let one = c.index(1)?;
                let done = c.for_dynamic_step(
                    one,
                    self.k_split.count,
                    one,
                    &state,
                    &mut |c, step, state| {
                        let p = Ptx(c);
                        let ((sums, rest), end) = (state.split_at(count), state.len());
                        let (left, [stage, parity]) =
                            (&rest[..end - count - 2], [state[end - 2], state[end - 1]]);
                        let sums = self.multiply_registers(p, left, sums, stage)?;
                        let next = self.next_stage(p, stage, parity)?;
                        ready(c, next[0], next[1])?;
                        let made = self.left(c, &t, next[0], p.index_to_i32(step)?)?;
                        // Ends a basic block: otherwise ptxas sinks the prologue below the wgmma
                        // wait. For the same reason the prologue's results pass through that wait
                        // and are packed only after it.
                        ready(c, next[0], next[1])?;
                        let mut done =
                            p.wgmma_wait_group(0, &[sums.as_slice(), &made].concat(), left)?;
                        let made = done.split_off(count);
                        release(c, stage)?;
                        done.extend(t.elements.packed(p, &made)?);
                        done.extend(next);
                        Ok(done)
                    },
                )?;
                let ((sums, rest), end) = (done.split_at(count), done.len());
                let (left, [stage, parity]) =
                    (&rest[..end - count - 2], [done[end - 2], done[end - 1]]);
                let sums = self.multiply_registers(p, left, sums, stage)?;
                let sums = p.wgmma_wait_group(0, &sums, left)?;
                release(c, stage)?;
                self.finish(
                    c,
                    &Fragments {
                        coord: tile_coord,
                        warpgroup: group,
                        thread,
                        warp,
                        values: vec![vec![&sums]],
                    },
                )?;
                Ok(self.next_stage(p, stage, parity)?.to_vec())
            },
        )
    }
}
