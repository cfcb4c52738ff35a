//! Memory of the card, and pinned memory of the host.
use super::{Done, alive, capture, card, current, lock, put, stream, valid};
use crate::allocations::{Kind, MEMORY};
use cudarc::driver::sys::{CUdeviceptr, CUresult, CUstream};
use std::{
    ffi::{c_uint, c_void},
    ptr,
    sync::Mutex,
};

/// Held from looking how much there is to having taken it.
static COUNTING: Mutex<()> = Mutex::new(());
/// All flags of `cuMemHostAlloc`; what they ask for is so for any memory here.
const HOST_FLAGS: c_uint = 7;

fn allocate(len: usize, kind: Kind) -> Done<u64> {
    valid(len > 0)?;
    let none = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let _counting = lock(&COUNTING);
    if kind == Kind::Device
        && MEMORY.used().checked_add(len).is_none_or(|n| n > card::card().map_or(0, |c| c.memory))
    {
        return Err(none);
    }
    MEMORY.allocate(len, kind).ok_or(none)
}

fn free(at: u64, kind: Kind) -> Done {
    let _counting = lock(&COUNTING);
    valid(
        MEMORY.around(at).is_some_and(|(first, _, of)| first == at && of == kind)
            && MEMORY.free(at),
    )
}

/// Memory of the card.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(at: *mut CUdeviceptr, len: usize) -> CUresult {
    current(|| {
        valid(!at.is_null())?;
        capture::unsafe_call()?;
        // SAFETY: room for an address.
        unsafe { put(at, allocate(len, Kind::Device)?) }
    })
}

/// Memory of the card, in the order of a stream. No stream that is captured has any.
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
        unsafe { put(at, allocate(len, Kind::Device)?) }
    })
}

/// Gives memory of the card back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(at: CUdeviceptr) -> CUresult {
    alive(|| capture::unsafe_call().and_then(|()| free(at, Kind::Device)))
}

/// The same in the order of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(at: CUdeviceptr, stream: CUstream) -> CUresult {
    current(|| stream::find(stream)?.not_captured().and_then(|()| free(at, Kind::Device)))
}

/// Pinned memory.
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
        unsafe { put(at, ptr::with_exposed_provenance_mut(allocate(len, Kind::Host)? as usize)) }
    })
}

/// Pinned memory, without flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(at: *mut *mut c_void, len: usize) -> CUresult {
    // SAFETY: the same promise.
    unsafe { cuMemHostAlloc(at, len, 0) }
}

/// Gives pinned memory back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(at: *mut c_void) -> CUresult {
    alive(|| capture::unsafe_call().and_then(|()| free(at.addr() as u64, Kind::Host)))
}

/// Bytes of the card's memory that are free, and all of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    current(|| {
        let all = card::card()?.memory;
        // SAFETY: room for two numbers.
        unsafe { put(free, all.saturating_sub(MEMORY.used())).and_then(|()| put(total, all)) }
    })
}
