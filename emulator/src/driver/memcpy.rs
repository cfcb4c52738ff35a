//! memcpy and memset.
use super::{
    CudaResult, capture, current,
    stream::find,
    valid,
    work::{Rows, Work},
};
use cudarc::driver::sys::{CUDA_MEMCPY2D, CUdeviceptr, CUmemorytype, CUresult, CUstream};
use std::{
    ffi::{c_uchar, c_uint, c_void},
    ptr,
};

/// The largest pitch (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const MAX_PITCH: usize = i32::MAX as usize;

/// Runs on the legacy stream, synchronously.
fn run_now(work: Work) -> CudaResult {
    capture::unsafe_call()?;
    find(ptr::null_mut())?.give(work)
}

fn copy(to: (u64, bool), from: (u64, bool), len: usize) -> Work {
    Work::Copy { from: Rows::one(from.0, len, from.1), to: Rows::one(to.0, len, to.1) }
}

fn fill(at: u64, with: u32, width: usize, count: usize) -> CudaResult<Work> {
    valid(at.is_multiple_of(width as u64))?;
    let len = count.checked_mul(width).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(Work::Fill { at: Rows::one(at, len, true), with, width })
}

/// The rows that one side of a 2-D copy describes.
fn rows(
    kind: CUmemorytype,
    host: u64,
    device: u64,
    pitch: usize,
    (x, y): (usize, usize),
    copy: &CUDA_MEMCPY2D,
) -> CudaResult<Rows> {
    let (at, on_device) = match kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => (host, false),
        CUmemorytype::CU_MEMORYTYPE_DEVICE | CUmemorytype::CU_MEMORYTYPE_UNIFIED => (device, true),
        CUmemorytype::CU_MEMORYTYPE_ARRAY => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    };
    let end = x.checked_add(copy.WidthInBytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // A pitch of 0 means rows without gaps.
    let pitch = if pitch == 0 { end } else { pitch };
    valid(end <= pitch && pitch <= MAX_PITCH)?;
    let first =
        y.checked_mul(pitch).and_then(|n| n.checked_add(x)).and_then(|n| at.checked_add(n as u64));
    let first = first.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(Rows { at: first, len: copy.WidthInBytes, count: copy.Height, pitch, on_device })
}

/// Host to device, synchronous.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(
    to: CUdeviceptr,
    from: *const c_void,
    len: usize,
) -> CUresult {
    current(|| run_now(copy((to, true), (from.expose_provenance() as u64, false), len)))
}

/// Device to host, synchronous.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    len: usize,
) -> CUresult {
    current(|| run_now(copy((to.expose_provenance() as u64, false), (from, true), len)))
}

/// Device to device, synchronous.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoD_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    len: usize,
) -> CUresult {
    current(|| run_now(copy((to, true), (from, true), len)))
}

/// Host to device on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *const c_void,
    len: usize,
    stream: CUstream,
) -> CUresult {
    current(|| find(stream)?.give(copy((to, true), (from.expose_provenance() as u64, false), len)))
}

/// Device to host on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    len: usize,
    stream: CUstream,
) -> CUresult {
    current(|| find(stream)?.give(copy((to.expose_provenance() as u64, false), (from, true), len)))
}

/// Device to device on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    len: usize,
    stream: CUstream,
) -> CUresult {
    current(|| find(stream)?.give(copy((to, true), (from, true), len)))
}

/// 2-D copy between any memories.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(
    what: *const CUDA_MEMCPY2D,
    stream: CUstream,
) -> CUresult {
    current(|| {
        let stream = find(stream)?;
        // SAFETY: null or a description.
        let c = unsafe { what.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (source, target) =
            (c.srcHost.expose_provenance() as u64, c.dstHost.expose_provenance() as u64);
        let from =
            rows(c.srcMemoryType, source, c.srcDevice, c.srcPitch, (c.srcXInBytes, c.srcY), c)?;
        let to =
            rows(c.dstMemoryType, target, c.dstDevice, c.dstPitch, (c.dstXInBytes, c.dstY), c)?;
        stream.give(Work::Copy { from, to })
    })
}

/// memset of bytes, synchronous.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(at: CUdeviceptr, with: c_uchar, count: usize) -> CUresult {
    current(|| run_now(fill(at, with.into(), 1, count)?))
}

/// memset of bytes on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    at: CUdeviceptr,
    with: c_uchar,
    count: usize,
    stream: CUstream,
) -> CUresult {
    current(|| find(stream)?.give(fill(at, with.into(), 1, count)?))
}

/// memset of 32-bit words, synchronous.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32_v2(at: CUdeviceptr, with: c_uint, count: usize) -> CUresult {
    current(|| run_now(fill(at, with, 4, count)?))
}

/// memset of 32-bit words on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(
    at: CUdeviceptr,
    with: c_uint,
    count: usize,
    stream: CUstream,
) -> CUresult {
    current(|| find(stream)?.give(fill(at, with, 4, count)?))
}
