//! The epilogue of attention's derivatives: scales the accumulators and stores them.
use crate::{
    analysis::Poly,
    emit::code::Code,
    strategies::gpu::{
        attention_gradient::{emit::Gradient, row_tile::RowTile},
        common::{ptx::Ptx, tile::Tile},
    },
};
use kiln_dialects::ir::*;

impl Gradient<'_> {
    /// Stores a tile of rows of the `r`th result.
    pub(super) fn finish(&self, c: Code, tile: &RowTile, r: usize, sums: Value) -> Result<()> {
        let (t, f, p, at) = (Tile(c), self.fragments(), Ptx(c), &self.pattern.at);
        let stage = at.results.get(r).and_then(|s| self.scope.kernel.stages.get(*s));
        let out = stage.and_then(|s| s.outputs.first()).ok_or("has no result")?;
        let (memory, width) = (self.scope.buffer(out.access.buffer)?, self.pattern.widths()[r]);
        let element = memory.ty().element().ok_or("has no result")?;
        let index = Type::index(c.ctx());
        let rows = t.iota(tile.first, None, f.row(index))?;
        let columns = t.iota(p.number(0)?, None, f.columns(index, width))?;
        // The derivative by value, the second one, has no factor.
        let made = match r {
            0 => arith::mulf(c, sums, c.number(at.scale, sums.ty())?)?,
            _ => sums,
        };
        let made = t.convert(made, f.accumulator(element, width))?;
        let eights = |p: &Poly| p.multiple_of(8);
        let outside = out.access.at.dims.iter().filter(|(d, _)| **d != at.kept.len() + 1);
        let wide = out.access.at.divisions.is_empty()
            && outside.map(|(_, p)| p).chain([&out.access.at.constant]).all(eights);
        let below = self.partial_tiles[0].then_some(self.row_count);
        let vector = if wide { 8 } else { 2 };
        t.store(made, memory, &[rows, columns], (vector, below), &mut |c, x| {
            self.scope.element_address(c, &out.access, &[&tile.kept, x].concat())
        })
    }
}
