//! An operand of a product on tensor cores, as TMA reads it.
use crate::analysis::Poly;

/// K of a pipeline stage of 16-bit elements, and columns of a slice of a tile: 128 bytes, the
/// widest swizzle of shared memory.
pub const DEPTH: usize = 64;

/// Most dimensions of a tensor map.
pub(super) const TENSOR_RANK: usize = 5;

/// Bytes of a row of a tile in shared memory: one row of a 128-byte swizzle atom.
pub const ROW: usize = 2 * DEPTH;

/// An operand: a batch of matrices, with one contiguous dimension.
#[derive(Clone, Debug)]
pub struct MatrixOperand {
    /// The buffer.
    pub buffer: usize,
    /// The index of the kernel's tensor argument; scalars do not count.
    pub argument: usize,
    /// The offset of the first element.
    pub offset: Poly,
    /// Whether the operand is K-major: contiguous in the K dimension. Otherwise it is MN-major.
    pub k_major: bool,
    /// The loops along its dimensions, where each is a single loop.
    pub dims: Vec<usize>,
    /// Which of the product's batch dimensions it has.
    pub batch: Vec<usize>,
    /// Sizes: of the contiguous dimension, of the other matrix dimension, of the batch. For images:
    /// channels, width, height, images. For convolution weights: channels of all window positions,
    /// filters; or channels, positions, filters where channels are no multiple of [`DEPTH`].
    pub sizes: Vec<Poly>,
    /// Strides of all dimensions but the contiguous one, in elements.
    pub strides: Vec<Poly>,
}

impl MatrixOperand {
    /// Whether one TMA load covers an MN-major tile. Its slices need a dimension of the tensor map of
    /// their own, and the contiguous size must be a multiple of a slice.
    pub fn is_single_load(&self, across: usize) -> bool {
        let whole = self.sizes.first().and_then(Poly::known).is_some_and(|n| n % DEPTH as i64 == 0);
        !self.k_major && across > DEPTH && whole && self.sizes.len() < TENSOR_RANK
    }
    /// Bytes of the widest aligned copy of elements of `size` bytes, at most 16 of cp.async.
    pub fn copy_bytes(&self, size: usize) -> usize {
        let aligned = |bytes: &usize| {
            let units = |p: &Poly| p.is_zero() || p.multiple_of((*bytes / size) as i64);
            units(&self.offset) && self.strides.iter().all(units)
        };
        [16, 8].into_iter().find(aligned).unwrap_or(4)
    }
    /// The operand with its slices as a dimension: 64 elements, K, slices, batch.
    pub(super) fn with_slices(&self) -> MatrixOperand {
        let mut o = self.clone();
        let slices = o.sizes.first().and_then(Poly::known).unwrap_or_default() / DEPTH as i64;
        o.sizes[0] = Poly::number(DEPTH as i64);
        o.sizes.insert(2, Poly::number(slices));
        o.strides.insert(1, Poly::number(DEPTH as i64));
        o
    }
}
