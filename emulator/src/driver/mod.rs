//! The `libcuda` functions that kiln calls, itself or through cudarc, for one emulated device.
//!
//! Calls run synchronously, which stream order permits. Handles are never reused, so stale ones are
//! rejected. A kernel fault is a sticky error, as on a real device, and is printed to stderr once.
//!
//! Enumerations are taken as integers, since callers may know more values than cudarc.
#![allow(non_snake_case)]
mod capture;
mod context;
mod device;
mod errors;
mod events;
mod function;
mod graph;
mod image;
mod launch;
mod link;
mod memcpy;
mod memory;
mod module;
mod node;
mod pointers;
mod stream;
mod table;
mod tensor_map;
#[cfg(test)]
mod tests;
mod work;

use cudarc::driver::sys::CUresult;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The result of a driver call, for `?`.
type CudaResult<T = ()> = Result<T, CUresult>;

/// Runs `f` in any driver state; panics do not unwind into the caller.
fn answer(f: impl FnOnce() -> CudaResult) -> CUresult {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(e)) => e,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// For calls that need an initialised driver without a sticky error.
fn alive(f: impl FnOnce() -> CudaResult) -> CUresult {
    answer(|| context::alive().and_then(|()| f()))
}

/// For calls that also need a current context.
fn current(f: impl FnOnce() -> CudaResult) -> CUresult {
    answer(|| context::alive().and_then(|()| context::current()).and_then(|()| f()))
}

/// Writes an output parameter.
///
/// # Safety
/// `to` is null or has room.
unsafe fn put<T>(to: *mut T, value: T) -> CudaResult {
    if to.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so it has room; C promises no alignment that Rust would have to believe.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// INVALID_VALUE unless `so`.
fn valid(so: bool) -> CudaResult {
    if so { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// Ignores poisoning: no critical section leaves inconsistent state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
