//! Memory of a card.
use super::{CudaError, Device, driver};
use cudarc::driver::{result, sys};
use std::sync::Arc;

/// Bytes on a card; freed with it.
pub struct Memory {
    device: Arc<Device>,
    at: sys::CUdeviceptr,
    len: usize,
}

impl Memory {
    /// No bytes.
    pub fn none(device: &Arc<Device>) -> Memory {
        Memory { device: device.clone(), at: 0, len: 0 }
    }
    /// The address.
    pub fn address(&self) -> u64 {
        self.at
    }
    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Makes it at least `len` bytes and never nothing; what was there is lost when it grows, and goes first. `what` and `planned` are for the error.
    pub fn ensure(&mut self, len: usize, what: &str, planned: &dyn Fn() -> String) -> Result<(), CudaError> {
        let len = len.max(256);
        if self.len >= len {
            return Ok(());
        }
        self.free();
        // SAFETY: a fresh allocation; the card is bound by the caller.
        match unsafe { result::malloc_sync(len) } {
            Ok(at) => (self.at, self.len) = (at, len),
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let (free, total) = result::mem_get_info().unwrap_or_default();
                return Err(CudaError::Memory { asked: len, what: what.into(), free, total, planned: planned() });
            }
            Err(e) => return Err(driver("allocating memory")(e)),
        }
        Ok(())
    }
    /// Copies bytes there, in the order of the device's stream.
    pub fn write(&self, bytes: &[u8]) -> Result<(), CudaError> {
        if bytes.is_empty() {
            return Ok(());
        }
        debug_assert!(bytes.len() <= self.len);
        // SAFETY: that many bytes are there, and pageable memory has been read when the call returns.
        unsafe { result::memcpy_htod_async(self.at, bytes, self.device.stream.cu_stream()) }.map_err(driver("copying to the GPU"))
    }
    /// Copies bytes from there, in the order of the device's stream; they are there once it has been waited for.
    pub fn read(&self, bytes: &mut [u8]) -> Result<(), CudaError> {
        if bytes.is_empty() {
            return Ok(());
        }
        debug_assert!(bytes.len() <= self.len);
        // SAFETY: that many bytes are there; the caller waits for the stream before the borrow ends.
        unsafe { result::memcpy_dtoh_async(bytes, self.at, self.device.stream.cu_stream()) }.map_err(driver("copying from the GPU"))
    }
    fn free(&mut self) {
        if self.at != 0 {
            // SAFETY: allocated by `ensure`; nothing that is still running reads it, since calls wait for their stream.
            let _ = self.device.bind().is_ok() && unsafe { result::free_sync(self.at) }.is_ok();
        }
        (self.at, self.len) = (0, 0);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.free();
    }
}
