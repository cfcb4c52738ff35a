//! Products of tiles by wgmma.
use crate::{
    gpu::lower_tiles::{
        fragments::{Lowered, registers},
        rings::{ROW, Shared},
        role::Role,
        thread::ROWS,
    },
    strategies::gpu::common::ptx::{Mma, Ptx, wgmma_type},
};
use kiln_dialects::{ir::*, ops::*};

impl Role<'_> {
    /// Starts a product.
    pub(super) fn mma(&self, p: Ptx, op: Op) -> Result<Lowered> {
        let o = TileMma::of(op).ok_or_malformed(op)?;
        let element = o.rhs.ty().element().ok_or("has no element type")?;
        let Lowered::Shared(right) = self.lowered(o.rhs) else {
            return Err("has a right operand that is not in shared memory".into());
        };
        match (self.lowered(o.lhs), o.init, o.transposed) {
            (Lowered::Shared(left), None, true) => {
                let mma = Mma {
                    columns: 2 * registers(op.result(0).ty())?,
                    element: wgmma_type(element.dtype()?),
                    a_k_major: true,
                    b_k_major: true,
                };
                self.mma_shared(p, &mma, left, right).map(Lowered::Pending)
            }
            (Lowered::Operand(left), Some(init), false) => {
                let apart = right.rows * ROW;
                let right = p.wgmma_descriptor_strided(right.address, apart)?;
                let mut sums = self.elements(init)?;
                p.wgmma_fence()?;
                for (k, left) in left.chunks(4).enumerate() {
                    let right = p.advance_descriptor(right, k * 16 * ROW)?;
                    let dtype = element.dtype()?;
                    sums = p.wgmma_register_operand(dtype, left, right, false, &sums)?;
                }
                p.wgmma_commit_group()?;
                Ok(Lowered::Elements(sums))
            }
            _ => Err("has operands that no wgmma takes".into()),
        }
    }

    /// The warpgroup's rows of a tile times the transpose of another.
    fn mma_shared(&self, p: Ptx, mma: &Mma, left: Shared, right: Shared) -> Result<Value> {
        let own = p.add(left.address, p.mul_const(self.thread()?.group, ROWS * ROW)?)?;
        let (a, b) = (p.wgmma_descriptor(own, true)?, p.wgmma_descriptor(right.address, true)?);
        let mut sums = p.undef_accumulators(mma.columns)?;
        p.wgmma_fence()?;
        for k in 0..left.columns.div_ceil(16) {
            let at = |rows: usize| k / 4 * rows * ROW + k % 4 * 32;
            let a = p.advance_descriptor(a, at(left.rows))?;
            let b = p.advance_descriptor(b, at(right.rows))?;
            sums = p.wgmma(mma, a, b, sums, k == 0)?;
        }
        p.wgmma_commit_group()?;
        Ok(sums)
    }

    /// Waits for products; the values are others after it.
    pub(super) fn mma_wait(&self, p: Ptx, op: Op) -> Result<Vec<Lowered>> {
        let o = TileMmaWait::of(op).ok_or_malformed(op)?;
        let mut values = vec![];
        for v in &o.values {
            values.push(match self.lowered(*v) {
                Lowered::Pending(sums) => p.extract_accumulators(sums, registers(v.ty())?)?,
                _ => self.elements(*v)?,
            });
        }
        let alive: Vec<Value> = o.alive.iter().flat_map(|v| self.lowered(*v).flat()).collect();
        let done = p.wgmma_wait_group(o.pending as usize, &values.concat(), &alive)?;
        let shapes: Vec<Lowered> = values.into_iter().map(Lowered::Elements).collect();
        Lowered::like(&shapes, &done)
    }
}
