//! The im2col tiles of a convolution: a row of the left tile is the channels of a pixel at one
//! window position, copied if the pixel lies in the image and zero-filled otherwise.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        common::ptx::Ptx,
        mma_gemm::tile::{MmaTile, OperandTile, Pixel, ROWS_PER_COPY},
        wgmma_gemm::{DEPTH, ROW, im2col::Window},
    },
};
use kiln_dialects::ir::*;

/// A coordinate outside of every image.
const OUT_OF_IMAGE: i64 = -(1 << 30);

impl MmaTile<'_> {
    fn number(&self, c: Code, p: &crate::analysis::Poly) -> Result<Value> {
        Ptx(c).index_to_i32(self.results.scope.poly(c, p)?)
    }
    /// The pixels whose channels this thread copies into a tile that begins at `first`; pixels
    /// beyond the last one lie in no image.
    pub(crate) fn pixels(
        &self,
        c: Code,
        w: &Window,
        begin: Value,
        first: Value,
    ) -> Result<Vec<Pixel>> {
        let p = Ptx(c);
        let (high, wide) = (self.number(c, &w.out[0])?, self.number(c, &w.out[1])?);
        let total = p.index_to_i32(self.results.rows(c)?)?;
        let strides = &self.results.product.left.strides;
        let distance = |i: usize| self.results.scope.poly(c, &strides[i]);
        let own = p.add(first, p.div_const(self.thread, 8)?)?;
        let one = |i: usize| -> Result<Pixel> {
            let row = p.add_const(own, i * ROWS_PER_COPY)?;
            let (line, across) = (arith::divui(p, row, wide)?, arith::remui(p, row, wide)?);
            let (image, down) = (arith::divui(p, line, high)?, arith::remui(p, line, high)?);
            let from = |x: Value, i: usize| {
                p.add_signed(p.mul_const(x, w.strides[i] as usize)?, -w.low[i])
            };
            let (h, x) = (from(down, 0)?, from(across, 1)?);
            // Coordinates in the padding are negative.
            let signed = |v: Value| arith::index_cast(c, v, Type::index(c.ctx()));
            let rows =
                c.add(c.mul(signed(image)?, distance(2)?)?, c.mul(signed(h)?, distance(1)?)?)?;
            let element = c.add(rows, c.mul(signed(x)?, distance(0)?)?)?;
            let there = c.compare(CmpIPredicate::Slt, row, total)?;
            let h = c.select(there, h, p.constant(OUT_OF_IMAGE)?)?;
            Ok(Pixel { at: [h, x], begin: arith::addi(p, begin, p.size_in_bytes(element, 2)?)? })
        };
        (0..self.m / ROWS_PER_COPY).map(one).collect()
    }
    /// Issues the cp.asyncs of a K step: channels at one window position, or their weights.
    pub(crate) fn copy_window(
        &self,
        c: Code,
        w: &Window,
        side: &OperandTile<'_>,
        step: Value,
        to: Value,
        chunk: Value,
    ) -> Result<()> {
        let (p, o, blocks) = (Ptx(c), side.operand, w.blocks() as usize);
        let place = p.div_const(step, blocks)?;
        let channel =
            p.add(p.mul_const(p.rem_const(step, blocks)?, DEPTH)?, p.mul_const(chunk, 8)?)?;
        let (zero, sixteen) = (p.number(0)?, p.number(16)?);
        // A chunk is either whole or absent: channels are a multiple of 8.
        let left = if w.channels % DEPTH as i64 == 0 {
            sixteen
        } else {
            c.select(
                c.compare(CmpIPredicate::Slt, channel, p.constant(w.channels)?)?,
                sixteen,
                zero,
            )?
        };
        if !side.left {
            let (size, stride) = (
                o.sizes.last().ok_or("has no weights")?,
                o.strides.last().ok_or("has no weights")?,
            );
            let (rows, stride) = (self.number(c, size)?, self.results.scope.poly(c, stride)?);
            let near = p.i32_to_index(p.add(p.mul_const(place, w.channels as usize)?, channel)?)?;
            for i in 0..side.across / ROWS_PER_COPY {
                let far = p.add(
                    side.first,
                    p.add_const(p.div_const(self.thread, 8)?, i * ROWS_PER_COPY)?,
                )?;
                let from = arith::addi(
                    p,
                    side.base,
                    p.size_in_bytes(c.add(c.mul(p.i32_to_index(far)?, stride)?, near)?, 2)?,
                )?;
                p.cp_async(
                    p.add_const(to, i * ROWS_PER_COPY * ROW)?,
                    from,
                    c.select(c.compare(CmpIPredicate::Slt, far, rows)?, left, zero)?,
                    16,
                )?;
            }
            return Ok(());
        }
        let wide = w.sizes[1] as usize;
        let further = [
            p.mul_const(p.div_const(place, wide)?, w.dilation[0] as usize)?,
            p.mul_const(p.rem_const(place, wide)?, w.dilation[1] as usize)?,
        ];
        let distance = |i: usize| self.results.scope.poly(c, &o.strides[i]);
        let offset = c.add(
            c.mul(p.i32_to_index(further[0])?, distance(1)?)?,
            c.mul(p.i32_to_index(further[1])?, distance(0)?)?,
        )?;
        let offset = p.size_in_bytes(c.add(offset, p.i32_to_index(channel)?)?, 2)?;
        let (high, width) = (self.number(c, &o.sizes[2])?, self.number(c, &o.sizes[1])?);
        for (i, pixel) in side.pixels.iter().enumerate() {
            // ult: unsigned, a negative coordinate is out of bounds.
            let inside = [
                c.compare(CmpIPredicate::Ult, p.add(pixel.at[0], further[0])?, high)?,
                c.compare(CmpIPredicate::Ult, p.add(pixel.at[1], further[1])?, width)?,
            ];
            let inside = c.all_of(&inside)?.ok_or("has no condition")?;
            let from = arith::addi(p, pixel.begin, offset)?;
            p.cp_async(
                p.add_const(to, i * ROWS_PER_COPY * ROW)?,
                from,
                c.select(inside, left, zero)?,
                16,
            )?;
        }
        Ok(())
    }
}
