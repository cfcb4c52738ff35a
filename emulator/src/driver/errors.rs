//! Error names and descriptions, as the driver's.
use super::{answer, put};
use cudarc::driver::sys::CUresult;
use std::{
    ffi::{c_char, c_uint},
    ptr,
};

/// An error with its name and description, both NUL-terminated.
type ErrorText = (CUresult, &'static str, &'static str);

macro_rules! errors {
    ($($name:ident: $text:literal,)*) => { &[$((CUresult::$name, concat!(stringify!($name), "\0"), concat!($text, "\0"))),*] };
}

/// All errors that the emulator returns.
const ERRORS: &[ErrorText] = errors! {
    CUDA_SUCCESS: "no error",
    CUDA_ERROR_INVALID_VALUE: "invalid argument",
    CUDA_ERROR_OUT_OF_MEMORY: "out of memory",
    CUDA_ERROR_NOT_INITIALIZED: "initialization error",
    CUDA_ERROR_NO_DEVICE: "no CUDA-capable device is detected",
    CUDA_ERROR_INVALID_DEVICE: "invalid device ordinal",
    CUDA_ERROR_INVALID_IMAGE: "device kernel image is invalid",
    CUDA_ERROR_INVALID_CONTEXT: "invalid device context",
    CUDA_ERROR_INVALID_PTX: "a PTX JIT compilation failed",
    CUDA_ERROR_INVALID_HANDLE: "invalid resource handle",
    CUDA_ERROR_ILLEGAL_STATE: "the operation cannot be performed in the present state",
    CUDA_ERROR_NOT_FOUND: "named symbol not found",
    CUDA_ERROR_ILLEGAL_ADDRESS: "an illegal memory access was encountered",
    CUDA_ERROR_LAUNCH_TIMEOUT: "the launch timed out and was terminated",
    CUDA_ERROR_ILLEGAL_INSTRUCTION: "an illegal instruction was encountered",
    CUDA_ERROR_MISALIGNED_ADDRESS: "misaligned address",
    CUDA_ERROR_LAUNCH_FAILED: "unspecified launch failure",
    CUDA_ERROR_NOT_SUPPORTED: "operation not supported",
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: "operation not permitted when stream is capturing",
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: "operation failed due to a previous error during capture",
    CUDA_ERROR_STREAM_CAPTURE_MERGE: "operation would result in a merge of separate capture sequences",
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: "capture was not ended in the same stream as it began",
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED: "capturing stream has unjoined work",
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION: "dependency created on uncaptured work in another stream",
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: "operation would make the legacy stream depend on a capturing blocking stream",
    CUDA_ERROR_CAPTURED_EVENT: "operation not permitted on an event last recorded in a capturing stream",
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: "attempt to terminate a thread-local capture sequence from another thread",
    CUDA_ERROR_INVALID_CLUSTER_SIZE: "cluster misconfiguration",
    CUDA_ERROR_UNKNOWN: "unknown error",
};

/// Writes a text of an error, or null for an unknown one.
///
/// # Safety
/// As [`put`].
unsafe fn write_text(
    error: c_uint,
    to: *mut *const c_char,
    of: impl Fn(&ErrorText) -> &'static str,
) -> CUresult {
    answer(|| {
        let found = ERRORS.iter().find(|w| w.0 as c_uint == error);
        // SAFETY: the caller's promise.
        unsafe { put(to, found.map_or(ptr::null(), |w| of(w).as_ptr().cast())) }?;
        found.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    })
}

/// An error's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: c_uint, to: *mut *const c_char) -> CUresult {
    // SAFETY: room for the address.
    unsafe { write_text(error, to, |w| w.1) }
}

/// An error's description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: c_uint, to: *mut *const c_char) -> CUresult {
    // SAFETY: room for the address.
    unsafe { write_text(error, to, |w| w.2) }
}
