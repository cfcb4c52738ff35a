//! The producer, which issues the TMA loads of queries, keys, values and biases.
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
    /// Waits until a stage is empty and loads a block of rows into it, from a column on.
    fn load_stage(
        &self,
        c: Code,
        (ring, map): (Value, Value),
        operand: &MatrixOperand,
        stage: Value,
        [row, column]: [Value; 2],
        query_tile: &QueryTile,
    ) -> Result<()> {
        let around = operand.dims.iter().skip(2).map(|d| query_tile.outer[*d]);
        Tile(c).acquire(ring, stage)?;
        Tile(c).tma_load(map, [column, row].into_iter().chain(around).collect(), ring, stage)
    }
    /// The producer.
    pub(super) fn produce(&self, c: Code) -> Result<()> {
        let first = Tile(c).first_stage()?;
        let [q, k, v, biases @ ..] = self.maps else { return Err("has no tensor maps".into()) };
        let pattern = self.pattern;
        self.for_each_tile(c, &[first, first], &mut |c, query_tile, carried| {
            let (p, query, first) = (Ptx(c), carried[0], query_tile.first);
            let at = [first, p.number(0)?];
            self.load_stage(c, (self.queries_ring, *q), &pattern.query, query, at, query_tile)?;
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
                    let (p, stage) = (Ptx(c), carried[0]);
                    let row = p.add(self.first_key(p, query_tile, p.index_to_i32(back)?)?, none)?;
                    let at = [row, p.number(0)?];
                    let load = |ring: (Value, Value), o: &MatrixOperand, at: [Value; 2]| {
                        self.load_stage(c, ring, o, stage, at, query_tile)
                    };
                    load((self.keys_ring, *k), &pattern.key, at)?;
                    for ((bias, ring), map) in self.biases.iter().zip(biases) {
                        load((*ring, *map), &bias.operand, [first, row])?;
                    }
                    load((self.values_ring, *v), &pattern.value, at)?;
                    Ok(vec![Tile(c).next_stage(self.keys_ring, stage)?])
                },
            )?;
            Ok([vec![Tile(c).next_stage(self.queries_ring, query)?], next].concat())
        })
    }
}
