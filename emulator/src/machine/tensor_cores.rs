//! Tensor cores: `mma` and `wgmma`. Accumulates one instruction in f64 and rounds once, so results
//! are as accurate as hardware's but not bitwise equal.
use super::{FaultKind, async_copies::swizzled, cluster::Cluster, memory::read};
use crate::ptx::{
    code::{Mma, NumberType, OperandType, Slot, Space, Wgmma},
    convert::wide,
};
use half::f16;

impl OperandType {
    fn bytes(self) -> usize {
        if self == OperandType::Tf32 { 4 } else { 2 }
    }
    fn value(self, bits: u64) -> f64 {
        match self {
            OperandType::Bf16 => wide(NumberType::Bf16, bits),
            OperandType::F16 => wide(NumberType::Float(16), bits),
            OperandType::Tf32 => wide(NumberType::Float(32), bits & !0x1fff),
        }
    }
}

/// The 128-byte swizzle mode of a matrix descriptor.
const SWIZZLE_128B: u64 = 1;

/// A decoded matrix descriptor: start address and byte offsets.
struct MatrixDescriptor {
    begin: u64,
    /// Stride byte offset: between groups of 8 rows of 128 bytes.
    stride: u64,
    /// Leading byte offset: between 128-byte column blocks of a transposed (MN-major) operand.
    leading: u64,
}

fn decode_descriptor(bits: u64) -> Result<MatrixDescriptor, FaultKind> {
    let part = |from: u32| (bits >> from & 0x3fff) << 4;
    if bits >> 62 != SWIZZLE_128B || bits >> 49 & 7 != 0 {
        return Err(FaultKind::Instruction(format!(
            "the matrix descriptor {bits:#x} has an unsupported layout"
        )));
    }
    Ok(MatrixDescriptor { begin: part(0), leading: part(16), stride: part(32) })
}

/// Row and column of accumulator element or register `i` of a lane, in a 16x8 tile.
fn accumulator_position(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2)
}

impl Cluster<'_> {
    /// A 16 x k operand fragment in the registers of a warp.
    fn fragment(
        &self,
        b: usize,
        warp: &[usize],
        regs: &[Slot],
        operand_type: OperandType,
        k: usize,
    ) -> Vec<f64> {
        let mut out = vec![0.0; 16 * k];
        for (lane, t) in warp.iter().enumerate() {
            for (i, s) in regs.iter().enumerate() {
                let v = self.reg(b, *t, *s);
                let row = lane / 4 + i % 2 * 8;
                if operand_type == OperandType::Tf32 {
                    out[row * k + lane % 4 + i / 2 * 4] = operand_type.value(v);
                } else {
                    let column = lane % 4 * 2 + i / 2 * 8;
                    out[row * k + column] = operand_type.value(v & 0xffff);
                    out[row * k + column + 1] = operand_type.value(v >> 16 & 0xffff);
                }
            }
        }
        out
    }

    /// Accumulates a warp's tile; `columns(j)` is column `j` of B.
    fn accumulate(
        &mut self,
        b: usize,
        warp: &[usize],
        (d, c): (&[Slot], &[Slot]),
        f16_accumulators: bool,
        keep: bool,
        product: &dyn Fn(usize, usize) -> f64,
    ) {
        for (lane, t) in warp.iter().enumerate() {
            for i in 0..d.len() {
                let per = if f16_accumulators { 2 } else { 1 };
                let mut bits = 0;
                for h in 0..per {
                    let e = i * per + h;
                    let (row, column) = accumulator_position(lane, e % 4);
                    let column = column + e / 4 * 8;
                    let before = self.reg(b, *t, c[i]) >> (16 * h);
                    let kind = if f16_accumulators {
                        NumberType::Float(16)
                    } else {
                        NumberType::Float(32)
                    };
                    let sum = if keep {
                        wide(kind, before & if f16_accumulators { 0xffff } else { 0xffff_ffff })
                    } else {
                        0.0
                    } + product(row, column);
                    let made = if f16_accumulators {
                        u64::from(f16::from_f64(sum).to_bits())
                    } else {
                        u64::from((sum as f32).to_bits())
                    };
                    bits |= made << (16 * h);
                }
                self.blocks[b].threads[*t].regs[d[i] as usize] = bits;
            }
        }
    }

    /// `mma.sync`: m16n8.
    pub fn mma(&mut self, b: usize, m: &Mma, warp: &[usize]) -> Result<(), FaultKind> {
        if warp.len() != 32 {
            return Err(FaultKind::Instruction(format!("{} of 32 lanes are here", warp.len())));
        }
        let rows = self.fragment(b, warp, &m.a, m.operand_type, m.k);
        // B is held column by column, like the first 8 rows of A.
        let mut columns = vec![0.0; 8 * m.k];
        for (lane, t) in warp.iter().enumerate() {
            for (i, s) in m.b.iter().enumerate() {
                let v = self.reg(b, *t, *s);
                let at = lane / 4 * m.k;
                if m.operand_type == OperandType::Tf32 {
                    columns[at + lane % 4 + i * 4] = m.operand_type.value(v);
                } else {
                    columns[at + lane % 4 * 2 + i * 8] = m.operand_type.value(v & 0xffff);
                    columns[at + lane % 4 * 2 + i * 8 + 1] = m.operand_type.value(v >> 16 & 0xffff);
                }
            }
        }
        let product = |r: usize, c: usize| {
            rows[r * m.k..][..m.k].iter().zip(&columns[c * m.k..][..m.k]).map(|(x, y)| x * y).sum()
        };
        self.accumulate(b, warp, (&m.d, &m.c), m.f16_accumulators, true, &product);
        Ok(())
    }

    /// Rows of `k` elements of an operand in shared memory.
    fn shared_rows(
        &mut self,
        b: usize,
        bits: u64,
        rows: usize,
        k: usize,
        operand_type: OperandType,
        turned: bool,
    ) -> Result<Vec<f64>, FaultKind> {
        let d = decode_descriptor(bits)?;
        let width = operand_type.bytes() as u64;
        let mut out = vec![0.0; rows * k];
        for r in 0..rows as u64 {
            for c in 0..k as u64 {
                let far = if turned {
                    // MN-major: 128-byte rows run along the M or N dimension, one per k.
                    let wide = 128 / width;
                    r % wide * width + r / wide * d.leading + c % 8 * 128 + c / 8 * d.stride
                } else {
                    r % 8 * 128 + r / 8 * d.stride + c * width
                };
                let from = self.place_without_thread(
                    b,
                    Space::Shared,
                    swizzled(d.begin + far),
                    width,
                    width,
                )?;
                // SAFETY: `place` has found the element.
                out[r as usize * k + c as usize] =
                    operand_type.value(unsafe { read(from, width as u8) });
            }
        }
        Ok(out)
    }

    /// `wgmma.mma_async`: m64, four warps.
    pub fn wgmma(&mut self, b: usize, m: &Wgmma, group: &[usize]) -> Result<(), FaultKind> {
        let Some(&first) = group.first() else { return Ok(()) };
        if m.operand_type == OperandType::Tf32 && m.transposed != [false, false] {
            return Err(FaultKind::Instruction("tf32 operands must be K-major".into()));
        }
        let mut rows = match m.a[..] {
            [description] => self.shared_rows(
                b,
                self.reg(b, first, description),
                64,
                m.k,
                m.operand_type,
                m.transposed[0],
            )?,
            _ => group
                .chunks(32)
                .flat_map(|warp| self.fragment(b, warp, &m.a, m.operand_type, m.k))
                .collect(),
        };
        let columns = self.shared_rows(
            b,
            self.reg(b, first, m.b),
            m.n,
            m.k,
            m.operand_type,
            m.transposed[1],
        )?;
        let sign = f64::from(m.signs[0] * m.signs[1]);
        rows.iter_mut().for_each(|v| *v *= sign);
        let keep = self.reg(b, first, m.add) & 1 == 1;
        for (w, warp) in group.chunks(32).enumerate() {
            let own = &rows[w * 16 * m.k..][..16 * m.k];
            let product = |r: usize, c: usize| {
                own[r * m.k..][..m.k]
                    .iter()
                    .zip(&columns[c * m.k..][..m.k])
                    .map(|(x, y)| x * y)
                    .sum()
            };
            self.accumulate(b, warp, (&m.d, &m.d), m.f16_accumulators, keep, &product);
        }
        Ok(())
    }
}
