//! Tensor maps (`CUtensorMap`): what TMA needs to know of a tensor.
use super::{CudaError, driver_message};
use crate::program::Window;
use cudarc::driver::sys;
use std::ffi::c_void;

/// Common to all tensor maps: 128-byte swizzle in shared memory, zero fill out of bounds.
const LAYOUT: sys::CUtensorMapInterleave =
    sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
const SWIZZLE: sys::CUtensorMapSwizzle = sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B;
const PROMOTION: sys::CUtensorMapL2promotion =
    sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
const BEYOND: sys::CUtensorMapFloatOOBfill =
    sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

/// A tensor with resolved sizes.
#[derive(Clone, Copy)]
pub struct TensorMapDesc<'a> {
    /// The kernel, for errors.
    pub kernel: &'a str,
    /// The element type in MLIR's spelling.
    pub dtype: &'a str,
    /// The device address of the first element; a multiple of 16.
    pub address: u64,
    /// Sizes, innermost first.
    pub sizes: &'a [i64],
    /// Strides of all dimensions but the innermost, in elements.
    pub strides: &'a [i64],
    /// Box sizes; for im2col, channels and pixels of a column.
    pub extent: &'a [u32],
    /// The im2col window, if any.
    pub window: Option<Window>,
}

impl TensorMapDesc<'_> {
    /// Encodes the 128-byte map. Out-of-bounds elements of a box read as 0.
    pub fn encode(&self) -> Result<sys::CUtensorMap, CudaError> {
        use sys::CUtensorMapDataType::{
            CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 as BF16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16 as F16,
            CU_TENSOR_MAP_DATA_TYPE_FLOAT32 as F32, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 as TF32,
            CU_TENSOR_MAP_DATA_TYPE_UINT8 as U8,
        };
        let fail = |reason: String| CudaError::Launch {
            what: format!("kernel {}: describing a tensor", self.kernel),
            reason,
        };
        let (dtype, width) = match self.dtype {
            "bf16" => (BF16, 2),
            "f16" => (F16, 2),
            "f32" => (F32, 4),
            // f32 elements, which TMA rounds.
            "tf32" => (TF32, 4),
            // TMA copies elements of 8 bits as they are.
            "i8" | "f8E4M3FN" | "f8E5M2" => (U8, 1),
            other => return Err(fail(format!("TMA does not support the element type {other}"))),
        };
        let rank = self.sizes.len();
        let boxes = if self.window.is_some() {
            rank == 4 && self.extent.len() == 2
        } else {
            self.extent.len() == rank
        };
        if !(2..=5).contains(&rank)
            || self.strides.len() + 1 != rank
            || !boxes
            || !self.address.is_multiple_of(16)
        {
            let (address, strides, extent) = (self.address, self.strides, self.extent);
            return Err(fail(format!(
                "sizes {:?}, strides {strides:?}, box {extent:?} at {address:#x} are not possible",
                self.sizes
            )));
        }
        // An empty tensor still needs a map; its size is raised to 1.
        let sizes: Vec<u64> =
            self.sizes.iter().map(|n| u64::try_from(*n).unwrap_or(0).max(1)).collect();
        let strides: Vec<u64> =
            self.strides.iter().map(|n| (width * u64::try_from(*n).unwrap_or(0)).max(16)).collect();
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let about = format!(
            "sizes {sizes:?}, strides of {strides:?} bytes, box {:?}, window {:?} at {:#x}",
            self.extent, self.window, self.address
        );
        let made = |made: sys::CUresult| {
            made.result().map_err(|e| fail(format!("{} ({about})", driver_message(e))))
        };
        if let (Some(w), [channels, pixels]) = (self.window, self.extent) {
            let ([high, wide], [below, behind]) = (w.low, w.high);
            let steps = [1, w.strides[1], w.strides[0], 1];
            // SAFETY: as below; the corners are of width and height.
            made(unsafe {
                sys::cuTensorMapEncodeIm2col(
                    &mut map,
                    dtype,
                    rank as u32,
                    self.address as *mut c_void,
                    sizes.as_ptr(),
                    strides.as_ptr(),
                    [wide, high].as_ptr(),
                    [behind, below].as_ptr(),
                    *channels,
                    *pixels,
                    steps.as_ptr(),
                    LAYOUT,
                    SWIZZLE,
                    PROMOTION,
                    BEYOND,
                )
            })?;
            return Ok(map);
        }
        let steps = vec![1u32; rank];
        // SAFETY: all arrays have `rank` entries, and the driver writes only the map.
        made(unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                dtype,
                rank as u32,
                self.address as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                self.extent.as_ptr(),
                steps.as_ptr(),
                LAYOUT,
                SWIZZLE,
                PROMOTION,
                BEYOND,
            )
        })?;
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_described_is_an_error() {
        let ok = TensorMapDesc {
            kernel: "k",
            dtype: "bf16",
            address: 256,
            sizes: &[64, 8],
            strides: &[64],
            extent: &[64, 64],
            window: None,
        };
        let said = |d: TensorMapDesc| d.encode().expect_err("not possible").to_string();
        assert!(
            said(TensorMapDesc { dtype: "f64", ..ok })
                .contains("does not support the element type f64")
        );
        assert!(said(TensorMapDesc { address: 264, ..ok }).contains("not possible"));
        assert!(said(TensorMapDesc { strides: &[], ..ok }).contains("not possible"));
        let window = Some(Window { low: [0, 0], high: [0, 0], strides: [1, 1] });
        assert!(said(TensorMapDesc { window, ..ok }).contains("not possible"));
    }
}
