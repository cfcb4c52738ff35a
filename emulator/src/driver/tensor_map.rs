//! Tensor maps (TMA descriptors): `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`.
use super::{CudaResult, answer, put, valid};
use crate::tensor_map::TensorMap;
use cudarc::driver::sys::{
    CUresult, CUtensorMap, CUtensorMapDataType as Type, CUtensorMapFloatOOBfill,
    CUtensorMapInterleave, CUtensorMapSwizzle, cuuint32_t, cuuint64_t,
};
use std::ffi::{c_int, c_uint, c_void};

/// Alignment in bytes of addresses, strides and the inner box dimension.
const ALIGNMENT: u64 = 16;
/// Strides are below this.
const STRIDE_LIMIT: u64 = 1 << 40;
/// Largest box dimension, most pixels per column, largest element stride.
const LIMITS: (u32, u32, u32) = (256, 1024, 8);
/// Bytes of a 128-byte swizzle row.
const SWIZZLE_BYTES: u64 = 128;

const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// Bytes of an element, and whether it is converted to tf32.
fn element(dtype: c_uint) -> CudaResult<(usize, bool)> {
    use Type::*;
    let all = [
        (CU_TENSOR_MAP_DATA_TYPE_UINT8, 1),
        (CU_TENSOR_MAP_DATA_TYPE_UINT16, 2),
        (CU_TENSOR_MAP_DATA_TYPE_UINT32, 4),
        (CU_TENSOR_MAP_DATA_TYPE_INT32, 4),
        (CU_TENSOR_MAP_DATA_TYPE_UINT64, 8),
        (CU_TENSOR_MAP_DATA_TYPE_INT64, 8),
        (CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2),
        (CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4),
        (CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8),
        (CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2),
        (CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 4),
    ];
    let (found, width) = all.into_iter().find(|(t, _)| *t as c_uint == dtype).ok_or(UNSUPPORTED)?;
    Ok((width, found == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32))
}

/// A required array argument.
///
/// # Safety
/// It is null or has so many.
unsafe fn numbers<T: Copy>(from: *const T, count: usize) -> CudaResult<Vec<T>> {
    valid(!from.is_null())?;
    // SAFETY: the caller's promise.
    Ok((0..count).map(|i| unsafe { from.add(i).read() }).collect())
}

/// The parameters that tiled and im2col descriptors share.
struct Descriptor {
    to: *mut CUtensorMap,
    dtype: c_uint,
    rank: cuuint32_t,
    address: *mut c_void,
    sizes: *const cuuint64_t,
    strides: *const cuuint64_t,
    steps: *const cuuint32_t,
    interleave: c_uint,
    swizzle: c_uint,
    fill: c_uint,
}

impl Descriptor {
    /// The tensor map without its box.
    ///
    /// # Safety
    /// The arrays are null or have as many numbers as the rank says.
    unsafe fn read(&self, least: usize) -> CudaResult<TensorMap> {
        let rank = self.rank as usize;
        let address = self.address.addr() as u64;
        valid((least..=5).contains(&rank) && address.is_multiple_of(ALIGNMENT) && address != 0)?;
        valid(!self.to.is_null() && self.to.addr().is_multiple_of(64))?;
        let (width, tf32) = element(self.dtype)?;
        if self.interleave != CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE as c_uint
            || self.fill != CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE as c_uint
        {
            return Err(UNSUPPORTED);
        }
        let swizzle = self.swizzle == CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B as c_uint;
        if !swizzle && self.swizzle != CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE as c_uint {
            return Err(UNSUPPORTED);
        }
        let mut map = TensorMap {
            address,
            rank,
            width,
            tf32,
            swizzle,
            steps: [1; 5],
            ..TensorMap::default()
        };
        // SAFETY: the caller's promise.
        let (sizes, steps) = unsafe { (numbers(self.sizes, rank)?, numbers(self.steps, rank)?) };
        for (to, size) in map.sizes.iter_mut().zip(sizes) {
            *to = u32::try_from(size)
                .ok()
                .filter(|n| *n > 0)
                .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        }
        valid(steps.iter().all(|s| (1..=LIMITS.2).contains(s)))?;
        // The hardware ignores the innermost element stride.
        map.steps.iter_mut().zip(steps).skip(1).for_each(|(to, step)| *to = step as u8);
        if rank > 1 {
            // SAFETY: the caller's promise.
            let strides = unsafe { numbers(self.strides, rank - 1) }?;
            valid(strides.iter().all(|s| s.is_multiple_of(ALIGNMENT) && *s < STRIDE_LIMIT))?;
            map.strides[..rank - 1].copy_from_slice(&strides);
        }
        Ok(map)
    }
    /// Writes the tensor map with its box.
    ///
    /// # Safety
    /// There is room for it.
    unsafe fn write(&self, mut map: TensorMap, extent: &[(u32, u32)]) -> CudaResult {
        valid(extent.iter().all(|(n, most)| (1..=*most).contains(n)))?;
        map.extent.iter_mut().zip(extent).for_each(|(to, (n, _))| *to = *n as u16);
        let row = u64::from(map.extent[0]) * map.width as u64;
        valid(row.is_multiple_of(ALIGNMENT) && (!map.swizzle || row <= SWIZZLE_BYTES))?;
        // SAFETY: the caller's promise.
        unsafe { put(self.to.cast(), map.to_bytes()) }
    }
}

/// Encodes a tiled tensor map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(
    to: *mut CUtensorMap,
    dtype: c_uint,
    rank: cuuint32_t,
    address: *mut c_void,
    sizes: *const cuuint64_t,
    strides: *const cuuint64_t,
    extent: *const cuuint32_t,
    steps: *const cuuint32_t,
    interleave: c_uint,
    swizzle: c_uint,
    _promotion: c_uint,
    fill: c_uint,
) -> CUresult {
    answer(|| {
        let common = Descriptor {
            to,
            dtype,
            rank,
            address,
            sizes,
            strides,
            steps,
            interleave,
            swizzle,
            fill,
        };
        // SAFETY: arrays of as many numbers as the rank says.
        unsafe {
            let map = common.read(1)?;
            let extent: Vec<_> =
                numbers(extent, map.rank)?.into_iter().map(|n| (n, LIMITS.0)).collect();
            common.write(map, &extent)
        }
    })
}

/// Encodes an im2col tensor map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeIm2col(
    to: *mut CUtensorMap,
    dtype: c_uint,
    rank: cuuint32_t,
    address: *mut c_void,
    sizes: *const cuuint64_t,
    strides: *const cuuint64_t,
    low: *const c_int,
    high: *const c_int,
    channels: cuuint32_t,
    pixels: cuuint32_t,
    steps: *const cuuint32_t,
    interleave: c_uint,
    swizzle: c_uint,
    _promotion: c_uint,
    fill: c_uint,
) -> CUresult {
    answer(|| {
        let common = Descriptor {
            to,
            dtype,
            rank,
            address,
            sizes,
            strides,
            steps,
            interleave,
            swizzle,
            fill,
        };
        // SAFETY: arrays of as many numbers as the rank says, corners of two less.
        unsafe {
            let mut map = common.read(3)?;
            // The range of corner offsets: the bits shrink with the rank.
            let reach = [1 << 15, 1 << 7, 1 << 4][map.rank - 3];
            let mut corners = [[0; 3]; 2];
            for (to, from) in corners.iter_mut().zip([low, high]) {
                let from = numbers(from, map.rank - 2)?;
                valid(from.iter().all(|n| (-reach..reach).contains(n)))?;
                to.iter_mut().zip(from).for_each(|(to, n)| *to = n as i16);
            }
            map.corners = Some(corners);
            common.write(map, &[(channels, LIMITS.0), (pixels, LIMITS.1)])
        }
    })
}
