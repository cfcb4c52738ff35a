//! TMA loads of a convolution in im2col mode: a load takes one window position of consecutive
//! output pixels, across rows and images.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        common::{
            ptx::Ptx,
            tile::{Tile, TmaLoad},
        },
        wgmma_gemm::{DEPTH, im2col::Window, tile::WgmmaTile},
    },
};
use kiln_dialects::ir::*;

impl WgmmaTile<'_> {
    /// Where the window of an output pixel begins: width, height, image.
    pub(super) fn pixel(&self, p: Ptx, w: &Window, row: Value) -> Result<[Value; 3]> {
        let size = |i: usize| p.index_to_i32(self.results.scope.poly(p.0, &w.out[i])?);
        let (high, wide) = (size(0)?, size(1)?);
        let line = arith::divui(p, row, wide)?;
        let begins = |x: Value, i: usize| {
            arith::subi(p, p.mul_const(x, w.strides[i] as usize)?, p.number(w.low[i] as usize)?)
        };
        let across = begins(arith::remui(p, row, wide)?, 1)?;
        let down = begins(arith::remui(p, line, high)?, 0)?;
        Ok([across, down, arith::divui(p, line, high)?])
    }
    /// Starts the TMA loads of a K step: 64 channels at one window position, and their weights.
    /// `group`: the group's index, if there are several.
    pub(super) fn load_window(
        &self,
        c: Code,
        w: &Window,
        pixel: &[Value; 3],
        stage: Value,
        step: Value,
        (column, group): (Value, Option<Value>),
    ) -> Result<()> {
        let (p, t) = (Ptx(c), Tile(c));
        let step = p.index_to_i32(step)?;
        let blocks = w.blocks() as usize;
        let (window_position, channel) =
            (p.div_const(step, blocks)?, p.mul_const(p.rem_const(step, blocks)?, DEPTH)?);
        let wide = w.sizes[1] as usize;
        let across = p.mul_const(p.rem_const(window_position, wide)?, w.dilation[1] as usize)?;
        let down = p.mul_const(p.div_const(window_position, wide)?, w.dilation[0] as usize)?;
        let (of_image, column) = match group.zip(w.filters) {
            Some((g, filters)) => (
                p.add(p.mul_const(g, w.channels as usize)?, channel)?,
                p.add(p.mul_const(g, filters as usize)?, column)?,
            ),
            None => (channel, column),
        };
        let how = TmaLoad { window: vec![across, down], ..TmaLoad::default() };
        let at = [&[of_image], &pixel[..]].concat();
        t.tma_load_as(self.left_map, at, self.left, stage, &how)?;
        let weight = if self.results.product.rights[0].sizes.len() == 2 {
            vec![p.mul_const(step, DEPTH)?, column]
        } else {
            vec![channel, window_position, column]
        };
        t.tma_load(self.right_maps[0], weight, self.right, stage)
    }
}
