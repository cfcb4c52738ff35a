//! Allocation of device memory and pinned host memory.
use super::{CudaResult, alive, capture, current, device, lock, put, stream, valid};
use crate::allocations::{MEMORY, MemoryKind};
use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUmemPool_attribute, CUmemoryPool, CUresult, CUstream,
};
use std::{
    ffi::{c_uint, c_void},
    ptr,
    sync::Mutex,
};

/// Held from the check of free memory to the allocation.
static COUNTING: Mutex<()> = Mutex::new(());
/// All valid flags of `cuMemHostAlloc`; all memory has these properties here.
const HOST_FLAGS: c_uint = 7;

fn allocate(len: usize, kind: MemoryKind) -> CudaResult<u64> {
    valid(len > 0)?;
    let none = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let _counting = lock(&COUNTING);
    if kind == MemoryKind::Device
        && MEMORY
            .used()
            .checked_add(len)
            .is_none_or(|n| n > device::device().map_or(0, |c| c.memory))
    {
        return Err(none);
    }
    MEMORY.allocate(len, kind).ok_or(none)
}

fn free(at: u64, kind: MemoryKind) -> CudaResult {
    let _counting = lock(&COUNTING);
    valid(
        MEMORY.find(at).is_some_and(|(first, _, of)| first == at && of == kind) && MEMORY.free(at),
    )
}

/// Allocates device memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(at: *mut CUdeviceptr, len: usize) -> CUresult {
    current(|| {
        valid(!at.is_null())?;
        capture::unsafe_call()?;
        // SAFETY: room for an address.
        unsafe { put(at, allocate(len, MemoryKind::Device)?) }
    })
}

/// Allocates device memory in stream order. Not during capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(
    at: *mut CUdeviceptr,
    len: usize,
    stream: CUstream,
) -> CUresult {
    current(|| {
        valid(!at.is_null())?;
        stream::find(stream)?.not_captured()?;
        // SAFETY: room for an address.
        unsafe { put(at, allocate(len, MemoryKind::Device)?) }
    })
}

/// The one pool. It keeps nothing: what is freed is gone.
const POOL: usize = 1;

/// The pool of stream-ordered allocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(
    pool: *mut CUmemoryPool,
    device: CUdevice,
) -> CUresult {
    alive(|| {
        valid(device == 0 && !pool.is_null())?;
        // SAFETY: room for a handle.
        unsafe { put(pool, ptr::without_provenance_mut(POOL)) }
    })
}

/// Accepts how much the pool may keep.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolSetAttribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> CUresult {
    let known = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    alive(|| valid(pool.addr() == POOL && attribute == known && !value.is_null()))
}

/// Returns what the pool keeps, which is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolTrimTo(pool: CUmemoryPool, _keep: usize) -> CUresult {
    alive(|| valid(pool.addr() == POOL))
}

/// Frees device memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(at: CUdeviceptr) -> CUresult {
    alive(|| capture::unsafe_call().and_then(|()| free(at, MemoryKind::Device)))
}

/// Frees device memory in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(at: CUdeviceptr, stream: CUstream) -> CUresult {
    current(|| stream::find(stream)?.not_captured().and_then(|()| free(at, MemoryKind::Device)))
}

/// Allocates pinned memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    at: *mut *mut c_void,
    len: usize,
    flags: c_uint,
) -> CUresult {
    current(|| {
        valid(!at.is_null() && flags <= HOST_FLAGS)?;
        capture::unsafe_call()?;
        // SAFETY: room for an address.
        unsafe {
            put(at, ptr::with_exposed_provenance_mut(allocate(len, MemoryKind::Host)? as usize))
        }
    })
}

/// Allocates pinned memory without flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(at: *mut *mut c_void, len: usize) -> CUresult {
    // SAFETY: the same promise.
    unsafe { cuMemHostAlloc(at, len, 0) }
}

/// Frees pinned memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(at: *mut c_void) -> CUresult {
    alive(|| capture::unsafe_call().and_then(|()| free(at.addr() as u64, MemoryKind::Host)))
}

/// Free and total device memory in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    current(|| {
        let all = device::device()?.memory;
        // SAFETY: room for two numbers.
        unsafe { put(free, all.saturating_sub(MEMORY.used())).and_then(|()| put(total, all)) }
    })
}
