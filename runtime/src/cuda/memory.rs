//! Device buffers. Allocation is stream-ordered if the device supports it (`cuMemAllocAsync` from
//! the default pool, which other libraries share), else synchronous.
use super::{CudaError, Device, stream::Stream};
use cudarc::driver::{result, sys};
use std::sync::Arc;

/// A device buffer. A user on another stream than that of [`DeviceBuffer::ensure`] must order the
/// two streams.
pub struct DeviceBuffer {
    device: Arc<Device>,
    at: sys::CUdeviceptr,
    len: usize,
}

impl DeviceBuffer {
    /// An empty buffer.
    pub fn none(device: &Arc<Device>) -> DeviceBuffer {
        DeviceBuffer { device: device.clone(), at: 0, len: 0 }
    }
    /// The device address, aligned to 256 bytes.
    pub fn address(&self) -> u64 {
        self.at
    }
    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Grows it to at least `len` bytes, and at least one. Growing frees the old allocation first
    /// and loses the contents. `what` and `planned` describe it in the error.
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
        // SAFETY: a fresh allocation; the device's context is current.
        match unsafe {
            if self.device.stream_ordered {
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
    /// Frees it, ordered after the stream's work so far.
    pub fn free(&mut self, stream: Stream) {
        if self.at != 0 {
            // SAFETY: allocated by `ensure`; its uses precede on the stream, as users promise.
            let _ = unsafe {
                if self.device.stream_ordered {
                    result::free_async(self.at, stream.0)
                } else {
                    result::free_sync(self.at)
                }
            };
        }
        (self.at, self.len) = (0, 0);
    }
}

/// Keeps what the default pool's users free for their next allocations: by default the pool returns
/// it at each synchronisation, and allocating anew takes milliseconds. Nothing without pools.
pub fn keep_freed(device: &Device) -> Result<(), CudaError> {
    let Some(pool) = device.default_pool()? else { return Ok(()) };
    let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    let mut bytes = u64::MAX;
    // SAFETY: a live pool, and an attribute of 64 bits.
    unsafe { sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut bytes).cast()) }
        .result()
        .map_err(device.error("setting what a memory pool keeps"))
}

/// Returns what the default pool keeps and nobody uses.
pub fn release_freed(device: &Device) -> Result<(), CudaError> {
    let Some(pool) = device.default_pool()? else { return Ok(()) };
    // SAFETY: a live pool.
    unsafe { sys::cuMemPoolTrimTo(pool, 0) }
        .result()
        .map_err(device.error("trimming a memory pool"))
}

/// Copies device to device.
pub fn copy_on_device(
    device: &Device,
    to: u64,
    from: u64,
    len: usize,
    stream: Stream,
) -> Result<(), CudaError> {
    // SAFETY: both sides hold that many bytes, as the callers of a program promise and its plan
    // says.
    unsafe { result::memcpy_dtod_async(to, from, len, stream.0) }
        .map_err(device.error("copying on the GPU"))
}

impl Drop for DeviceBuffer {
    /// Its uses have completed.
    fn drop(&mut self) {
        if self.at != 0
            && let Ok(_current) = self.device.enter()
        {
            self.free(self.device.stream());
        }
    }
}
