//! Products of tiles by wgmma.
use crate::{
    gpu::lower_tiles::{
        fragments::{Lowered, registers},
        rings::Shared,
        role::Role,
        thread::ROWS,
    },
    strategies::gpu::{
        common::ptx::{MMA_K_BYTES, Mma, Ptx},
        wgmma_gemm::ROW,
    },
};
use kiln_dialects::{ir::*, ops::*};

/// Rows that one takes of an MN-major tile of 16-bit elements.
const DEPTH_ROWS: usize = 16;

/// How far apart the operands of consecutive wgmmas are in a tile, in bytes.
fn advance(tile: Shared, k_major: bool, k: usize) -> usize {
    let each = ROW / MMA_K_BYTES;
    match k_major {
        true => k / each * tile.rows * ROW + k % each * MMA_K_BYTES,
        false => k * DEPTH_ROWS * ROW,
    }
}

/// The descriptor of a tile.
fn descriptor(p: Ptx, tile: Shared, k_major: bool) -> Result<Value> {
    match k_major {
        true => p.wgmma_descriptor(tile.address, true),
        false => p.wgmma_descriptor_strided(tile.address, tile.rows * ROW),
    }
}

impl Role<'_> {
    /// Starts a product.
    pub(super) fn mma(&self, p: Ptx, op: Op) -> Result<Lowered> {
        let o = TileMma::of(op).ok_or_malformed(op)?;
        let element = o.rhs.ty().element().ok_or("has no element type")?.dtype()?;
        let Lowered::Shared(right) = self.lowered(o.rhs) else {
            return Err("has a right operand that is not in shared memory".into());
        };
        // wgmma reads operands of 8 and 32 bits K-major only.
        if element.byte_size() != 2 && (o.transposed_lhs || !o.transposed) {
            return Err("has operands that no wgmma takes".into());
        }
        match self.lowered(o.lhs) {
            Lowered::Shared(left) => {
                let mma = Mma {
                    columns: 2 * registers(op.result(0).ty())?,
                    element,
                    a_k_major: !o.transposed_lhs,
                    b_k_major: o.transposed,
                };
                let sums = match o.init.map(|v| self.lowered(v)) {
                    None => None,
                    Some(Lowered::Pending(sums)) => Some(sums),
                    Some(_) => return Err("adds to what is no product under way".into()),
                };
                let blocks = self.blocks(op.result(0).ty())?;
                self.mma_shared(p, &mma, left, right, (sums, blocks)).map(Lowered::Pending)
            }
            Lowered::Operand(left) => {
                let count = self.registers(op.result(0).ty())?;
                let mut sums = match o.init {
                    Some(init) => self.elements(init)?,
                    None => {
                        let undef = p.undef_accumulators(p.f32(), 2 * count)?;
                        p.extract_accumulators(undef, p.f32(), count)?
                    }
                };
                let descriptor = descriptor(p, right, o.transposed)?;
                p.wgmma_fence()?;
                for (k, left) in left.chunks(4).enumerate() {
                    let at = advance(right, o.transposed, k);
                    let at = p.advance_descriptor(descriptor, at)?;
                    let fresh = o.init.is_none() && k == 0;
                    let right = (at, o.transposed);
                    sums = p.wgmma_register_operand(element, left, right, (&sums, fresh))?;
                }
                p.wgmma_commit_group()?;
                Ok(Lowered::Elements(sums))
            }
            _ => Err("has operands that no wgmma takes".into()),
        }
    }

    /// The warpgroup's rows of a tile, in blocks of 64, times another tile.
    fn mma_shared(
        &self,
        p: Ptx,
        mma: &Mma,
        left: Shared,
        right: Shared,
        (sums, blocks): (Option<Vec<Value>>, usize),
    ) -> Result<Vec<Value>> {
        // 64 rows take 8 KiB of a slice, K-major or MN-major.
        let own = p.mul_const(self.thread()?.group, blocks * ROWS * ROW)?;
        let own = Shared { address: p.add(left.address, own)?, ..left };
        let (a, b) = (descriptor(p, own, mma.a_k_major)?, descriptor(p, right, mma.b_k_major)?);
        let fresh = sums.is_none();
        let sum = mma.accumulator(p.0);
        let nothing = || (0..blocks).map(|_| p.undef_accumulators(sum, mma.columns)).collect();
        let mut sums = sums.map_or_else(nothing, Ok)?;
        let depth = if mma.a_k_major { left.columns } else { left.rows };
        let each = if mma.a_k_major { left.slice * MMA_K_BYTES / ROW } else { DEPTH_ROWS };
        p.wgmma_fence()?;
        for k in 0..depth.div_ceil(each) {
            let b = p.advance_descriptor(b, advance(right, mma.b_k_major, k))?;
            for (block, sum) in sums.iter_mut().enumerate() {
                let at = advance(left, mma.a_k_major, k) + block * ROWS * ROW;
                *sum = p.wgmma(mma, p.advance_descriptor(a, at)?, b, *sum, fresh && k == 0)?;
            }
        }
        p.wgmma_commit_group()?;
        Ok(sums)
    }

    /// Waits for products; the values are others after it.
    pub(super) fn mma_wait(&self, p: Ptx, op: Op) -> Result<Vec<Lowered>> {
        let o = TileMmaWait::of(op).ok_or_malformed(op)?;
        if o.values.is_empty() && o.alive.is_empty() {
            nvvm::wgmma_wait_group_sync_aligned(p, o.pending)?;
            return Ok(vec![]);
        }
        let mut values = vec![];
        for v in &o.values {
            values.push(match self.lowered(*v) {
                Lowered::Pending(sums) => {
                    let (each, ty) = (registers(v.ty())?, v.ty().element());
                    let ty = ty.ok_or("has no element type")?;
                    let all = sums.iter().map(|s| p.extract_accumulators(*s, ty, each));
                    all.collect::<Result<Vec<_>>>()?.concat()
                }
                _ => self.elements(*v)?,
            });
        }
        let alive: Vec<Value> = o.alive.iter().flat_map(|v| self.lowered(*v).flat()).collect();
        let done = p.wgmma_wait_group(o.pending as usize, &values.concat(), &alive)?;
        let shapes: Vec<Lowered> = values.into_iter().map(Lowered::Elements).collect();
        Lowered::like(&shapes, &done)
    }
}
