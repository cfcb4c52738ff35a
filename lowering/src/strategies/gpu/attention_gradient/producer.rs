//! The producer, which issues the TMA loads of what stays and of what is streamed.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        attention_gradient::emit::Gradient,
        common::{ptx::Ptx, tile::Tile},
        wgmma_gemm::MatrixOperand,
    },
};
use kiln_dialects::ir::*;

impl Gradient<'_> {
    /// Waits until a stage is empty and loads rows of both operands into it.
    fn load_stage(
        &self,
        c: Code,
        (ring, maps): ([Value; 2], [Value; 2]),
        operands: &[MatrixOperand; 2],
        (stage, row): (Value, Value),
        outer: &dyn Fn(usize) -> Result<Value>,
    ) -> Result<()> {
        Tile(c).acquire(ring[0], stage)?;
        for ((ring, map), operand) in ring.into_iter().zip(maps).zip(operands) {
            let around = operand.dims.iter().skip(2).map(|d| outer(*d));
            let around = around.collect::<Result<Vec<_>>>()?;
            let at = [Ptx(c).number(0)?, row].into_iter().chain(around).collect();
            Tile(c).tma_load(map, at, ring, stage)?;
        }
        Ok(())
    }

    /// The producer.
    pub(super) fn produce(&self, c: Code) -> Result<()> {
        let (first, at) = (Tile(c).first_stage()?, &self.pattern.at);
        let [rows, columns] = [(self.rows_ring, self.maps[0]), (self.columns_ring, self.maps[1])];
        self.for_each_tile(c, &[first, first], &mut |c, tile, carried| {
            let kept = |d: usize| {
                let place = at.kept.iter().position(|k| *k == d);
                let place = place.ok_or("has rows at a position that it sums over")?;
                Ok(tile.kept[place])
            };
            self.load_stage(c, rows, &self.pattern.rows, (carried[0], tile.first), &kept)?;
            let next = self.for_each_outer(c, tile, &carried[1..], &mut |c, outer, carried| {
                let ends = tile.segments.first().zip(tile.segments.last());
                let ((from, ..), (_, to, _)) = ends.ok_or("sees no columns")?;
                c.for_dynamic_step(*from, *to, c.index(1)?, carried, &mut |c, i, carried| {
                    let (p, stage) = (Ptx(c), carried[0]);
                    let row = p.mul_const(p.index_to_i32(i)?, self.block)?;
                    let place = |d: usize| Ok(outer[d]);
                    let operands = &self.pattern.columns;
                    self.load_stage(c, columns, operands, (stage, row), &place)?;
                    Ok(vec![Tile(c).next_stage(self.columns_ring[0], stage)?])
                })
            })?;
            Ok([vec![Tile(c).next_stage(self.rows_ring[0], carried[0])?], next].concat())
        })
    }
}
