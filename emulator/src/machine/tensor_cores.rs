//! Products of the tensor cores. Each product of an instruction is summed in f64 and rounded once,
//! which a card does otherwise: its sums are as good, not the same to the last bit.
use super::{What, cluster::Cluster, copies::swizzled, memory::read};
use crate::ptx::{
    code::{Factor, Kind, Mma, Slot, Space, Wgmma},
    convert::wide,
};
use half::f16;

impl Factor {
    fn bytes(self) -> usize {
        if self == Factor::Tf32 { 4 } else { 2 }
    }
    fn value(self, bits: u64) -> f64 {
        match self {
            Factor::Bf16 => wide(Kind::Bf16, bits),
            Factor::F16 => wide(Kind::Float(16), bits),
            Factor::Tf32 => wide(Kind::Float(32), bits & !0x1fff),
        }
    }
}

/// Swizzled rows of 128 bytes, as a description of shared memory says it.
const ROWS_OF_128: u64 = 1;

/// A factor in shared memory: where it begins, and bytes from group to group.
struct Described {
    begin: u64,
    /// From 8 rows of 128 bytes to the next 8.
    stride: u64,
    /// From 128 bytes to the next, where rows lie the other way.
    leading: u64,
}

fn described(bits: u64) -> Result<Described, What> {
    let part = |from: u32| (bits >> from & 0x3fff) << 4;
    if bits >> 62 != ROWS_OF_128 || bits >> 49 & 7 != 0 {
        return Err(What::Instruction(format!(
            "the description {bits:#x} is of a layout that is not known"
        )));
    }
    Ok(Described { begin: part(0), leading: part(16), stride: part(32) })
}

/// Where the 4 sums or 2 registers of a lane stand in 16 rows of 8 columns.
fn place(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2)
}

impl Cluster<'_> {
    /// Elements of 16 rows and `k` columns that lanes of a warp hold.
    fn fragment(
        &self,
        b: usize,
        warp: &[usize],
        regs: &[Slot],
        factor: Factor,
        k: usize,
    ) -> Vec<f64> {
        let mut out = vec![0.0; 16 * k];
        for (lane, t) in warp.iter().enumerate() {
            for (i, s) in regs.iter().enumerate() {
                let v = self.reg(b, *t, *s);
                let row = lane / 4 + i % 2 * 8;
                if factor == Factor::Tf32 {
                    out[row * k + lane % 4 + i / 2 * 4] = factor.value(v);
                } else {
                    let column = lane % 4 * 2 + i / 2 * 8;
                    out[row * k + column] = factor.value(v & 0xffff);
                    out[row * k + column + 1] = factor.value(v >> 16 & 0xffff);
                }
            }
        }
        out
    }

    /// Adds products to the sums of a warp: `columns(j)` has the second factor's column `j`.
    fn sums(
        &mut self,
        b: usize,
        warp: &[usize],
        (d, c): (&[Slot], &[Slot]),
        narrow: bool,
        keep: bool,
        product: &dyn Fn(usize, usize) -> f64,
    ) {
        for (lane, t) in warp.iter().enumerate() {
            for i in 0..d.len() {
                let per = if narrow { 2 } else { 1 };
                let mut bits = 0;
                for h in 0..per {
                    let e = i * per + h;
                    let (row, column) = place(lane, e % 4);
                    let column = column + e / 4 * 8;
                    let before = self.reg(b, *t, c[i]) >> (16 * h);
                    let kind = if narrow { Kind::Float(16) } else { Kind::Float(32) };
                    let sum = if keep {
                        wide(kind, before & if narrow { 0xffff } else { 0xffff_ffff })
                    } else {
                        0.0
                    } + product(row, column);
                    let made = if narrow {
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

    /// `mma.sync`: 16 rows, 8 columns.
    pub fn mma(&mut self, b: usize, m: &Mma, warp: &[usize]) -> Result<(), What> {
        if warp.len() != 32 {
            return Err(What::Instruction(format!("{} of 32 lanes are here", warp.len())));
        }
        let rows = self.fragment(b, warp, &m.a, m.factor, m.k);
        // The second factor's columns are held as the first eight rows of a first factor.
        let mut columns = vec![0.0; 8 * m.k];
        for (lane, t) in warp.iter().enumerate() {
            for (i, s) in m.b.iter().enumerate() {
                let v = self.reg(b, *t, *s);
                let at = lane / 4 * m.k;
                if m.factor == Factor::Tf32 {
                    columns[at + lane % 4 + i * 4] = m.factor.value(v);
                } else {
                    columns[at + lane % 4 * 2 + i * 8] = m.factor.value(v & 0xffff);
                    columns[at + lane % 4 * 2 + i * 8 + 1] = m.factor.value(v >> 16 & 0xffff);
                }
            }
        }
        let product = |r: usize, c: usize| {
            rows[r * m.k..][..m.k].iter().zip(&columns[c * m.k..][..m.k]).map(|(x, y)| x * y).sum()
        };
        self.sums(b, warp, (&m.d, &m.c), m.narrow, true, &product);
        Ok(())
    }

    /// Rows of a factor in shared memory, each of `k` elements.
    fn shared_rows(
        &mut self,
        b: usize,
        bits: u64,
        rows: usize,
        k: usize,
        factor: Factor,
        turned: bool,
    ) -> Result<Vec<f64>, What> {
        let d = described(bits)?;
        let width = factor.bytes() as u64;
        let mut out = vec![0.0; rows * k];
        for r in 0..rows as u64 {
            for c in 0..k as u64 {
                let far = if turned {
                    // Rows of 128 bytes along the rows' dimension, one for each column.
                    let wide = 128 / width;
                    r % wide * width + r / wide * d.leading + c % 8 * 128 + c / 8 * d.stride
                } else {
                    r % 8 * 128 + r / 8 * d.stride + c * width
                };
                let from =
                    self.somewhere(b, Space::Shared, swizzled(d.begin + far), width, width)?;
                // SAFETY: `place` has found the element.
                out[r as usize * k + c as usize] = factor.value(unsafe { read(from, width as u8) });
            }
        }
        Ok(out)
    }

    /// `wgmma.mma_async`: 64 rows, four warps.
    pub fn wgmma(&mut self, b: usize, m: &Wgmma, group: &[usize]) -> Result<(), What> {
        let Some(&first) = group.first() else { return Ok(()) };
        if m.factor == Factor::Tf32 && m.transposed != [false, false] {
            return Err(What::Instruction("tf32 has one layout only".into()));
        }
        let mut rows = match m.a[..] {
            [description] => self.shared_rows(
                b,
                self.reg(b, first, description),
                64,
                m.k,
                m.factor,
                m.transposed[0],
            )?,
            _ => group
                .chunks(32)
                .flat_map(|warp| self.fragment(b, warp, &m.a, m.factor, m.k))
                .collect(),
        };
        let columns =
            self.shared_rows(b, self.reg(b, first, m.b), m.n, m.k, m.factor, m.transposed[1])?;
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
            self.sums(b, warp, (&m.d, &m.d), m.narrow, keep, &product);
        }
        Ok(())
    }
}
