//! Tensor cores: `mma` and `wgmma`. Accumulates one instruction in f64 and rounds once, so results
//! are as accurate as hardware's but not bitwise equal.
use super::{FaultKind, async_copies::swizzled, cluster::Cluster, memory::read};
use crate::ptx::{
    code::{AccumulatorType, Mma, NumberType, OperandType, Slot, Space, Wgmma},
    convert::wide,
};
use half::f16;

impl OperandType {
    fn bytes(self) -> usize {
        match self {
            OperandType::Bf16 | OperandType::F16 => 2,
            OperandType::Tf32 => 4,
            OperandType::E4m3 | OperandType::E5m2 | OperandType::S8 => 1,
        }
    }
    /// Elements in a register.
    fn packed(self) -> usize {
        4 / self.bytes()
    }
    /// Element `i` of a register.
    fn element(self, register: u64, i: usize) -> f64 {
        let bits = 8 * self.bytes();
        self.value(register >> (bits * i) & ((1 << bits) - 1))
    }
    fn value(self, bits: u64) -> f64 {
        match self {
            OperandType::Bf16 => wide(NumberType::Bf16, bits),
            OperandType::F16 => wide(NumberType::Float(16), bits),
            OperandType::Tf32 => wide(NumberType::Float(32), bits & !0x1fff),
            OperandType::E4m3 => e4m3(bits as u8),
            // f16 without the last 8 bits of its mantissa.
            OperandType::E5m2 => wide(NumberType::Float(16), (bits & 0xff) << 8),
            OperandType::S8 => f64::from(bits as u8 as i8),
        }
    }
}

/// An f8E4M3FN: 4 bits of exponent with bias 7, no infinities, NaN where all others are 1.
fn e4m3(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7) / 8.0);
    let magnitude = match (exponent, bits & 0x7f) {
        (_, 0x7f) => f64::NAN,
        (0, _) => mantissa * f64::powi(2.0, -6),
        _ => (1.0 + mantissa) * f64::powi(2.0, exponent - 7),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

impl AccumulatorType {
    /// Accumulators in a register.
    fn packed(self) -> usize {
        if self == AccumulatorType::F16 { 2 } else { 1 }
    }
    fn value(self, bits: u64) -> f64 {
        match self {
            AccumulatorType::F16 => wide(NumberType::Float(16), bits & 0xffff),
            AccumulatorType::F32 => wide(NumberType::Float(32), bits & 0xffff_ffff),
            AccumulatorType::S32 => f64::from(bits as u32 as i32),
        }
    }
    fn bits(self, v: f64) -> u64 {
        match self {
            AccumulatorType::F16 => u64::from(f16::from_f64(v).to_bits()),
            AccumulatorType::F32 => u64::from((v as f32).to_bits()),
            // Sums of products of int8 are exact in f64.
            AccumulatorType::S32 => u64::from(v as i64 as u32),
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
                let (v, packed) = (self.reg(b, *t, *s), operand_type.packed());
                let row = lane / 4 + i % 2 * 8;
                let column = (lane % 4 + i / 2 * 4) * packed;
                for e in 0..packed {
                    out[row * k + column + e] = operand_type.element(v, e);
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
        accumulator_type: AccumulatorType,
        keep: bool,
        product: &dyn Fn(usize, usize) -> f64,
    ) {
        for (lane, t) in warp.iter().enumerate() {
            for i in 0..d.len() {
                let (packed, mut bits) = (accumulator_type.packed(), 0);
                for h in 0..packed {
                    let e = i * packed + h;
                    let (row, column) = accumulator_position(lane, e % 4);
                    let column = column + e / 4 * 8;
                    let before = accumulator_type.value(self.reg(b, *t, c[i]) >> (16 * h));
                    let sum = if keep { before } else { 0.0 } + product(row, column);
                    bits |= accumulator_type.bits(sum) << (16 * h);
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
                let (v, packed) = (self.reg(b, *t, *s), m.operand_type.packed());
                let at = lane / 4 * m.k + (lane % 4 + i * 4) * packed;
                for e in 0..packed {
                    columns[at + e] = m.operand_type.element(v, e);
                }
            }
        }
        let product = |r: usize, c: usize| {
            rows[r * m.k..][..m.k].iter().zip(&columns[c * m.k..][..m.k]).map(|(x, y)| x * y).sum()
        };
        self.accumulate(b, warp, (&m.d, &m.c), m.accumulator_type, true, &product);
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
        if m.operand_type.bytes() != 2 && m.transposed != [false, false] {
            return Err(FaultKind::Instruction("only 16-bit operands may be MN-major".into()));
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
            self.accumulate(b, warp, (&m.d, &m.d), m.accumulator_type, keep, &product);
        }
        Ok(())
    }
}
