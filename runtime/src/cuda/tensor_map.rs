//! Tensors as the copy engine of sm_90 wants them described.
use super::{CudaError, words};
use cudarc::driver::sys;
use std::ffi::c_void;

/// A tensor with its sizes known.
pub struct Described<'a> {
    /// The kernel, for errors.
    pub kernel: &'a str,
    /// The element type in MLIR's spelling.
    pub dtype: &'a str,
    /// The address of its first element; a multiple of 16.
    pub address: u64,
    /// Sizes, the innermost first.
    pub sizes: &'a [i64],
    /// Distances of neighbours in all dimensions but the innermost, in elements of 2 bytes.
    pub strides: &'a [i64],
    /// Sizes of a box.
    pub extent: &'a [u32],
}

impl Described<'_> {
    /// The 128 bytes that a kernel takes. What a box has beyond the tensor reads as 0.
    pub fn encode(&self) -> Result<sys::CUtensorMap, CudaError> {
        use sys::CUtensorMapDataType::{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 as BF16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16 as F16};
        let fail = |reason: String| CudaError::Launch { what: format!("kernel {}: describing an operand", self.kernel), reason };
        let dtype = match self.dtype {
            "bf16" => BF16,
            "f16" => F16,
            other => return Err(fail(format!("there is no form of {other} for the copy engine"))),
        };
        let rank = self.sizes.len();
        if !(2..=5).contains(&rank) || self.strides.len() + 1 != rank || self.extent.len() != rank || !self.address.is_multiple_of(16) {
            let (address, strides, extent) = (self.address, self.strides, self.extent);
            return Err(fail(format!("sizes {:?}, strides {strides:?}, box {extent:?} at {address:#x} are not possible", self.sizes)));
        }
        // A tensor without elements has no tiles; it still needs a description.
        let sizes: Vec<u64> = self.sizes.iter().map(|n| u64::try_from(*n).unwrap_or(0).max(1)).collect();
        let strides: Vec<u64> = self.strides.iter().map(|n| 2 * u64::try_from(*n).unwrap_or(0).max(8)).collect();
        let steps = vec![1u32; rank];
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: all arrays have as many entries as the rank says, and the driver writes the map only.
        let made = unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                dtype,
                rank as u32,
                self.address as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                self.extent.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        let about = format!("sizes {sizes:?}, strides of {strides:?} bytes, box {:?} at {:#x}", self.extent, self.address);
        made.result().map(|()| map).map_err(|e| fail(format!("{} ({about})", words(e))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_described_is_an_error() {
        let ok = Described { kernel: "k", dtype: "bf16", address: 256, sizes: &[64, 8], strides: &[64], extent: &[64, 64] };
        let said = |d: Described| d.encode().expect_err("not possible").to_string();
        assert!(said(Described { dtype: "f32", ..ok }).contains("no form of f32"));
        let ok = Described { kernel: "k", dtype: "bf16", address: 256, sizes: &[64, 8], strides: &[64], extent: &[64, 64] };
        assert!(said(Described { address: 264, ..ok }).contains("not possible"));
        let ok = Described { kernel: "k", dtype: "bf16", address: 256, sizes: &[64, 8], strides: &[64], extent: &[64, 64] };
        assert!(said(Described { strides: &[], ..ok }).contains("not possible"));
    }
}
