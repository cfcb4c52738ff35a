//! The card's primary context, the only one there is. It is made once, and stays when the last of
//! those who retained it has released it.
use super::{
    Done, alive as when_alive, answer, capture, card, current as when_current, put, table::fresh,
};
use cudarc::driver::sys::{CUcontext, CUdevice, CUresult};
use std::{
    cell::Cell,
    ptr,
    sync::{
        LazyLock, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

static STARTED: AtomicBool = AtomicBool::new(false);
static RETAINED: AtomicUsize = AtomicUsize::new(0);
static HANDLE: LazyLock<usize> = LazyLock::new(fresh);
/// What a kernel did that no kernel may: everything is refused from there on.
static FAULT: OnceLock<CUresult> = OnceLock::new();

thread_local! {
    /// The thread's context, 0 if none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// From `cuInit` on.
pub fn start() {
    STARTED.store(true, Ordering::Release);
}

/// Err: `cuInit` was not called.
pub fn started() -> Done {
    if STARTED.load(Ordering::Acquire) { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_INITIALIZED) }
}

/// Err: not started, or a kernel has gone wrong.
pub fn alive() -> Done {
    started()?;
    FAULT.get().map_or(Ok(()), |fault| Err(*fault))
}

/// Err: the calling thread has no context.
pub fn current() -> Done {
    if CURRENT.get() == 0 { Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) } else { Ok(()) }
}

/// The context.
pub fn handle() -> CUcontext {
    ptr::without_provenance_mut(*HANDLE)
}

/// Notes what went wrong; the first is it. It is said here, since callers hear of it later and
/// without the place.
pub fn fault(error: CUresult, what: &dyn std::fmt::Display) {
    if FAULT.set(error).is_ok() {
        eprintln!("kiln-emulator: {what}");
    }
}

/// Whether something went wrong.
pub fn faulted() -> bool {
    FAULT.get().is_some()
}

/// The primary context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    when_alive(|| {
        if device != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        card::card()?;
        // SAFETY: room for a handle.
        unsafe { put(context, handle()) }?;
        RETAINED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// One of those who retained it needs it no longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult {
    answer(|| {
        started()?;
        if device != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        let less =
            RETAINED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        less.map(drop).map_err(|_| CUresult::CUDA_ERROR_INVALID_CONTEXT)
    })
}

/// Gives the calling thread a context, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
    answer(|| {
        started()?;
        if !context.is_null() && context != handle() {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        CURRENT.set(context.addr());
        Ok(())
    })
}

/// The calling thread's context, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult {
    // SAFETY: room for a handle.
    answer(|| {
        started().and_then(|()| unsafe { put(context, ptr::without_provenance_mut(CURRENT.get())) })
    })
}

/// Waits for all that the context was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> CUresult {
    when_current(capture::none_under_way)
}
