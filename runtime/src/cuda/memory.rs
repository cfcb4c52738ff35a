//! Memory of a card. It is allocated and freed in the order of a stream where the card can
//! (`cuMemAllocAsync`, the card's own pool, which other libraries share), else at once.
use super::{CudaError, Device, stream::Stream};
use cudarc::driver::{result, sys};
use std::sync::Arc;

/// Bytes on a card. Whoever uses them on another stream than that of [`Memory::ensure`] orders the
/// two.
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
    /// The address, a multiple of 256.
    pub fn address(&self) -> u64 {
        self.at
    }
    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Makes it at least `len` bytes and never nothing; what was there is lost when it grows, and
    /// goes first. `what` and `planned` are for the error.
    pub fn ensure(
        &mut self,
        len: usize,
        stream: Stream,
        what: &dyn Fn() -> String,
        planned: &dyn Fn() -> String,
    ) -> Result<(), CudaError> {
        let len = len.max(256);
        if self.len >= len {
            return Ok(());
        }
        self.free(stream);
        // SAFETY: a fresh allocation; the card is the thread's.
        match unsafe {
            if self.device.ordered {
                result::malloc_async(stream.0, len)
            } else {
                result::malloc_sync(len)
            }
        } {
            Ok(at) => (self.at, self.len) = (at, len),
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let (free, total) = result::mem_get_info().unwrap_or_default();
                return Err(CudaError::Memory {
                    asked: len,
                    what: what(),
                    free,
                    total,
                    planned: planned(),
                });
            }
            Err(e) => return Err(self.device.error("allocating memory")(e)),
        }
        Ok(())
    }
    /// Gives it back, behind what the stream has been given.
    pub fn free(&mut self, stream: Stream) {
        if self.at != 0 {
            // SAFETY: allocated by `ensure`; whatever uses it comes before on the stream, as the
            // users promise.
            let _ = unsafe {
                if self.device.ordered {
                    result::free_async(self.at, stream.0)
                } else {
                    result::free_sync(self.at)
                }
            };
        }
        (self.at, self.len) = (0, 0);
    }
}

/// Copies from one place of the card to another.
pub fn copy_on_card(
    device: &Device,
    to: u64,
    from: u64,
    len: usize,
    stream: Stream,
) -> Result<(), CudaError> {
    // SAFETY: that many bytes are at both places, as the callers of a program promise and as its
    // plan says.
    unsafe { result::memcpy_dtod_async(to, from, len, stream.0) }
        .map_err(device.error("copying on the GPU"))
}

impl Drop for Memory {
    /// What used it has been waited for.
    fn drop(&mut self) {
        if self.at != 0
            && let Ok(_current) = self.device.enter()
        {
            self.free(self.device.stream());
        }
    }
}
