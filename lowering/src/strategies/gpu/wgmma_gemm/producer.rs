//! The producer: the TMA loads of both operands into the pipeline.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        common::{
            ptx::Ptx,
            tile::{Tile, TmaLoad},
        },
        wgmma_gemm::{
            DEPTH, MatrixOperand,
            tile::{TileCoord, WgmmaTile},
        },
    },
};
use kiln_dialects::ir::*;

impl WgmmaTile<'_> {
    /// Starts the loads of an operand, which is a part of a tile. `across`: its rows or columns,
    /// from `x` on.
    fn load_operand(
        &self,
        c: Code,
        (o, map): (&MatrixOperand, Value),
        (ring, stage): (Value, Value),
        (across, part): (usize, Option<(usize, usize)>),
        (x, depth, batch): (Value, Value, &[Value]),
    ) -> Result<()> {
        let (p, whole) = (Ptx(c), o.is_single_load(across));
        let mut at = match (whole, o.k_major) {
            (true, _) => vec![p.number(0)?, depth, p.div_const(x, DEPTH)?],
            (_, true) => vec![depth, x],
            (_, false) => vec![x, depth],
        };
        at.extend(o.batch.iter().filter_map(|i| batch.get(*i)));
        let how = TmaLoad { whole, part, ..TmaLoad::default() };
        Tile(c).tma_load_as(map, at, ring, stage, &how)
    }

    /// Loads the operands of a K step of a matrix product.
    fn load_step(
        &self,
        c: Code,
        coord: &TileCoord,
        stage: Value,
        step: Value,
        batch: &[Value],
    ) -> Result<()> {
        let (p, product) = (Ptx(c), self.product());
        let depth = p.mul_const(p.index_to_i32(step)?, product.k_per_stage())?;
        let left = (&product.left, self.left_map);
        let at = (coord.row, depth, batch);
        self.load_operand(c, left, (self.left, stage), (self.m, None), at)?;
        if let Some(pixels) = &product.depth {
            return self.load_pixels(c, (pixels, coord, batch), stage, step);
        }
        let count = product.rights.len();
        for (i, (o, map)) in product.rights.iter().zip(&self.right_maps).enumerate() {
            let part = (self.operand_columns(), (count > 1).then_some((i, count)));
            let at = (coord.column, depth, batch);
            self.load_operand(c, (o, *map), (self.right, stage), part, at)?;
        }
        Ok(())
    }

    /// The producer.
    pub(super) fn produce(&self, c: Code) -> Result<()> {
        self.for_each_tile(c, &mut |c, coord, first| {
            let p = Ptx(c);
            let batch: Vec<Value> =
                coord.batch.iter().map(|b| p.index_to_i32(*b)).collect::<Result<_>>()?;
            let window = self.product().window.as_ref();
            let pixel = window.map(|w| self.pixel(p, w, coord.row)).transpose()?;
            let (from, to, one) = (self.k_split.first, self.k_split.end, c.index(1)?);
            let done = c.for_dynamic_step(from, to, one, &[first], &mut |c, step, carried| {
                let (t, stage) = (Tile(c), carried[0]);
                t.acquire(self.left, stage)?;
                match window.zip(pixel) {
                    Some((w, pixel)) => {
                        let at = (coord.column, batch.first().copied());
                        self.load_window(c, w, &pixel, stage, step, at)?
                    }
                    None => self.load_step(c, coord, stage, step, &batch)?,
                }
                Ok(vec![t.next_stage(self.left, stage)?])
            })?;
            Ok(done[0])
        })
    }
}
