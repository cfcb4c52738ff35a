//! The producer warp: an elected lane issues the TMA loads of both operands into the pipeline.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        common::ptx::Ptx,
        wgmma_gemm::{DEPTH, MatrixOperand, ROW, tile::WgmmaTile},
    },
};
use kiln_dialects::ir::*;

impl WgmmaTile<'_> {
    /// Issues the TMA loads of an operand's tile.
    fn load_operand(
        &self,
        p: Ptx,
        o: &MatrixOperand,
        map: Value,
        (to, across): (Value, usize),
        at: (Value, Value, &[Value]),
        barrier: Value,
    ) -> Result<()> {
        let (x, depth, batch) = at;
        let batch: Vec<Value> = o.batch.iter().filter_map(|i| batch.get(*i).copied()).collect();
        if o.is_single_load(across) {
            return p.tma_load(
                to,
                map,
                &[&[p.number(0)?, depth, p.div_const(x, DEPTH)?], batch.as_slice()].concat(),
                barrier,
            );
        }
        let boxes = if o.k_major { 1 } else { across / DEPTH };
        for i in 0..boxes {
            let x = p.add_const(x, i * DEPTH)?;
            let (near, far) = if o.k_major { (depth, x) } else { (x, depth) };
            p.tma_load(
                p.add_const(to, i * DEPTH * ROW)?,
                map,
                &[&[near, far], batch.as_slice()].concat(),
                barrier,
            )?;
        }
        Ok(())
    }

    /// The producer.
    pub(super) fn produce(&self, c: Code) -> Result<()> {
        // All stages are empty at first.
        self.for_each_tile(
            c,
            &[Ptx(c).number(0)?, Ptx(c).number(1)?],
            &mut |c, tile_coord, carried| {
                let p = Ptx(c);
                let batch: Vec<Value> =
                    tile_coord.batch.iter().map(|b| p.index_to_i32(*b)).collect::<Result<_>>()?;
                let pixel = self
                    .product()
                    .window
                    .as_ref()
                    .map(|w| self.pixel(p, w, tile_coord.row))
                    .transpose()?;
                c.for_dynamic_step(
                    self.k_split.first,
                    self.k_split.end,
                    c.index(1)?,
                    carried,
                    &mut |c, step, carried| {
                        let (p, [stage, parity]) = (Ptx(c), [carried[0], carried[1]]);
                        p.mbarrier_wait(self.empty_barrier(p, stage)?, parity)?;
                        let full = self.full_barrier(p, stage)?;
                        p.mbarrier_arrive_expect_tx(full, self.stage_bytes())?;
                        let left = p.add(self.pipeline, p.mul_const(stage, self.stage_bytes())?)?;
                        let right = p.add_const(left, self.left_bytes())?;
                        if let (Some(w), Some(pixel)) = (&self.product().window, &pixel) {
                            self.copy_window(
                                p,
                                w,
                                pixel,
                                p.index_to_i32(step)?,
                                (tile_coord.column, batch.first().copied()),
                                (left, right),
                                full,
                            )?;
                        } else {
                            let depth =
                                p.mul_const(p.index_to_i32(step)?, self.product().k_per_stage())?;
                            let slices = self.product().slices();
                            for slice in 0..slices {
                                let (to, depth) = (
                                    p.add_const(left, slice * self.m * ROW)?,
                                    p.add_const(
                                        depth,
                                        slice * self.product().k_per_stage() / slices,
                                    )?,
                                );
                                self.load_operand(
                                    p,
                                    &self.product().left,
                                    self.left_map,
                                    (to, self.m),
                                    (tile_coord.row, depth, &batch),
                                    full,
                                )?;
                            }
                            for (i, (o, map)) in
                                self.product().rights.iter().zip(&self.right_maps).enumerate()
                            {
                                let right = p.add_const(right, i * self.operand_columns() * ROW)?;
                                self.load_operand(
                                    p,
                                    o,
                                    *map,
                                    (right, self.operand_columns()),
                                    (tile_coord.column, depth, &batch),
                                    full,
                                )?;
                            }
                        }
                        Ok(self.next_stage(p, stage, parity)?.to_vec())
                    },
                )
            },
        )
    }
}
