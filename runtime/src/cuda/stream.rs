//! CUDA streams.
use cudarc::driver::{result, sys};
use std::ffi::c_void;

/// A `CUstream`, the same as a `cudaStream_t`, not owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub(super) sys::CUstream);
// SAFETY: the driver's handles are tied to no thread.
unsafe impl Send for Stream {}
unsafe impl Sync for Stream {}

impl Stream {
    /// The legacy default stream, which synchronises with all blocking streams.
    pub const DEFAULT: Stream = Stream(std::ptr::null_mut());

    /// Wraps a stream of any library.
    ///
    /// # Safety
    /// It is a `CUstream` (1 and 2: legacy and per-thread default stream) that lives until the
    /// calls on it have completed.
    pub unsafe fn from_raw(stream: *mut c_void) -> Stream {
        Stream(stream.cast())
    }
    /// Destroys a stream of kiln's own.
    pub(super) fn destroy(self) {
        // SAFETY: created by the device and destroyed once; the driver frees it when its work has
        // completed.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}
