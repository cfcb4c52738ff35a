//! The producer, which issues the TMA loads of queries, keys and values.
use crate::{
    emit::code::{Code, constant_value},
    strategies::gpu::{
        attention::{flash::Flash, query_tile::QueryTile},
        common::{ptx::Ptx, tile::Tile},
        wgmma_gemm::MatrixOperand,
    },
};
use kiln_dialects::ir::*;

impl Flash<'_> {
    /// Waits until a stage is empty and loads a block of rows into it.
    fn load_stage(
        &self,
        c: Code,
        (ring, map): (Value, Value),
        operand: &MatrixOperand,
        stage: Value,
        row: Value,
        query_tile: &QueryTile,
    ) -> Result<()> {
        let around = operand.dims.iter().skip(2).map(|d| query_tile.outer[*d]);
        Tile(c).acquire(ring, stage)?;
        let first = Ptx(c).number(0)?;
        Tile(c).tma_load(map, [first, row].into_iter().chain(around).collect(), ring, stage)
    }
    /// The producer.
    pub(super) fn produce(&self, c: Code) -> Result<()> {
        let first = Tile(c).first_stage()?;
        let (pattern, [q, k, v]) = (self.pattern, self.maps);
        self.for_each_tile(c, &[first, first], &mut |c, query_tile, carried| {
            let (p, query, row) = (Ptx(c), carried[0], query_tile.first);
            self.load_stage(c, (self.queries_ring, q), &pattern.query, query, row, query_tile)?;
            // Without keys there is no memory to read: all rows are out of bounds, which TMA fills
            // with zeros.
            let none = match constant_value(self.count) {
                Some(n) => p.number(usize::from(n == 0))?,
                None => arith::extui(c, p.eq_const(self.count, 0)?, p.i32())?,
            };
            let next = c.for_dynamic_step(
                c.index(0)?,
                p.i32_to_index(query_tile.blocks[0])?,
                c.index(1)?,
                &carried[1..],
                &mut |c, back, carried| {
                    let (p, at) = (Ptx(c), carried[0]);
                    let row = p.add(self.first_key(p, query_tile, p.index_to_i32(back)?)?, none)?;
                    self.load_stage(c, (self.keys_ring, k), &pattern.key, at, row, query_tile)?;
                    self.load_stage(c, (self.values_ring, v), &pattern.value, at, row, query_tile)?;
                    Ok(vec![Tile(c).next_stage(self.keys_ring, at)?])
                },
            )?;
            Ok([vec![Tile(c).next_stage(self.queries_ring, query)?], next].concat())
        })
    }
}
