//! The device's primary context, the only one. It outlives its last release.
use super::{
    CudaResult, alive as when_alive, answer, capture, current as when_current, device, put,
    table::fresh,
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
/// The sticky error of a faulting kernel: all later calls fail with it.
static FAULT: OnceLock<CUresult> = OnceLock::new();

thread_local! {
    /// The thread's context, 0 if none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Marks the driver initialised.
pub fn start() {
    STARTED.store(true, Ordering::Release);
}

/// Err: `cuInit` was not called.
pub fn started() -> CudaResult {
    if STARTED.load(Ordering::Acquire) { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_INITIALIZED) }
}

/// Err: not initialised, or a sticky error.
pub fn alive() -> CudaResult {
    started()?;
    FAULT.get().map_or(Ok(()), |fault| Err(*fault))
}

/// Err: no current context on the calling thread.
pub fn current() -> CudaResult {
    if CURRENT.get() == 0 { Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) } else { Ok(()) }
}

/// The context.
pub fn handle() -> CUcontext {
    ptr::without_provenance_mut(*HANDLE)
}

/// Records a sticky error; the first one wins. It is printed here, since callers see it later,
/// without its location.
pub fn fault(error: CUresult, what: &dyn std::fmt::Display) {
    if FAULT.set(error).is_ok() {
        eprintln!("kiln-emulator: {what}");
    }
}

/// Whether there is a sticky error.
pub fn faulted() -> bool {
    FAULT.get().is_some()
}

/// Retains the primary context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    when_alive(|| {
        if device != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        device::device()?;
        // SAFETY: room for a handle.
        unsafe { put(context, handle()) }?;
        RETAINED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// Releases the primary context.
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

/// Sets the calling thread's current context.
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

/// The calling thread's current context, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult {
    // SAFETY: room for a handle.
    answer(|| {
        started().and_then(|()| unsafe { put(context, ptr::without_provenance_mut(CURRENT.get())) })
    })
}

/// Waits for all work of the context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> CUresult {
    when_current(capture::no_active_capture)
}
