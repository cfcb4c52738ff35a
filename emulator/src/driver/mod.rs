//! The functions of `libcuda` that kiln calls, itself or through cudarc, for one card that is not
//! there.
//!
//! What is asked for is done before the function returns, which is an order that streams allow.
//! Handles are numbers that are never used again, so that those of what is gone are refused. What a
//! kernel may not do is an error of everything that comes after it, as on a card, and is said on
//! stderr once.
//!
//! Numbers of enumerations that callers ask by are taken as numbers, since a caller may know more
//! of them than cudarc does.
#![allow(non_snake_case)]
mod capture;
mod card;
mod context;
mod copies;
mod errors;
mod events;
mod function;
mod graph;
mod launch;
mod link;
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

/// What a function answers, for `?`.
type Done<T = ()> = Result<T, CUresult>;

/// Whatever the driver is in; nothing unwinds into the caller.
fn answer(f: impl FnOnce() -> Done) -> CUresult {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(e)) => e,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// For what needs a driver that has been started, and no fault.
fn alive(f: impl FnOnce() -> Done) -> CUresult {
    answer(|| context::alive().and_then(|()| f()))
}

/// For what needs a context of the calling thread besides.
fn current(f: impl FnOnce() -> Done) -> CUresult {
    answer(|| context::alive().and_then(|()| context::current()).and_then(|()| f()))
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null or has room.
unsafe fn put<T>(to: *mut T, value: T) -> Done {
    if to.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so it has room; C promises no alignment that Rust would have to believe.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// INVALID_VALUE unless so.
fn valid(so: bool) -> Done {
    if so { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// A panic while it was held has left nothing half done that matters.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
