//! Asynchronous copies between host and device, through a ring of four pinned chunks. Pageable
//! memory cannot be copied asynchronously. The ring bounds pinned memory for copies of any size;
//! the copy of a small tensor returns before it has completed.
use super::{CudaError, Device, event::Event, stream::Stream};
use crate::Pool;
use cudarc::driver::{result, sys};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes of a chunk.
const CHUNK: usize = 4 << 20;
/// Chunks in the ring.
const CHUNKS: usize = 4;
/// Alignment of tensors in a chunk, in bytes.
const CHUNK_ALIGN: usize = 256;
/// From this size on several threads copy between pageable memory and a chunk: one thread does not
/// saturate memory bandwidth.
const PARALLEL_COPY: usize = 1 << 20;
/// Below this, `cuPointerGetAttribute` costs more than direct access to pinned memory saves.
const PIN_QUERY_MIN: usize = 64 << 10;

/// Pinned memory of a call.
pub struct Staging {
    device: Arc<Device>,
    chunks: Vec<Chunk>,
    /// The chunk that is being filled, and its fill level.
    current: usize,
    used: usize,
}

struct Chunk {
    at: *mut u8,
    /// Recorded after the last copy from or to it.
    done: Event,
}
// SAFETY: driver memory that the chunk owns.
unsafe impl Send for Chunk {}

impl Chunk {
    fn new(device: &Device) -> Result<Chunk, CudaError> {
        let done = Event::new(device)?;
        // SAFETY: a fresh allocation, freed below.
        let at = unsafe { result::malloc_host(CHUNK, 0) }
            .map_err(device.error("allocating pinned memory"))?;
        Ok(Chunk { at: at.cast(), done })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated by the driver; the copies have completed. A driver that refuses has
        // given up the process's work.
        let _ = unsafe { result::free_host(self.at.cast()) };
    }
}

/// Space in pinned memory for one copy.
struct Span {
    chunk: usize,
    at: *mut u8,
    len: usize,
}

impl Staging {
    /// Allocates nothing yet.
    pub fn new(device: &Arc<Device>) -> Staging {
        Staging { device: device.clone(), chunks: vec![], current: 0, used: 0 }
    }

    /// Space for up to `len` bytes. A full chunk is closed with an event on the stream. `opened` is
    /// called with a chunk whose copies have completed, before its memory is reused.
    fn span(
        &mut self,
        len: usize,
        stream: Stream,
        opened: &mut dyn FnMut(usize),
    ) -> Result<Span, CudaError> {
        // Leaves a remainder that would split a tensor into small copies.
        if self.used > 0 && CHUNK - self.used < len.min(CHUNK / 4) {
            self.close(stream)?;
        }
        if self.used == 0 {
            if self.current == self.chunks.len() {
                let chunk = Chunk::new(&self.device)?;
                self.chunks.push(chunk);
            }
            self.chunks[self.current].done.wait(&self.device)?;
            opened(self.current);
        }
        let len = len.min(CHUNK - self.used);
        // SAFETY: inside the chunk.
        let at = unsafe { self.chunks[self.current].at.add(self.used) };
        let span = Span { chunk: self.current, at, len };
        self.used = (self.used + len).next_multiple_of(CHUNK_ALIGN).min(CHUNK);
        Ok(span)
    }

    /// Records the chunk's event, after which it is reused.
    pub fn close(&mut self, stream: Stream) -> Result<(), CudaError> {
        if self.used > 0 {
            self.chunks[self.current].done.record(&self.device, stream)?;
            (self.current, self.used) = ((self.current + 1) % CHUNKS, 0);
        }
        Ok(())
    }

    /// Copies bytes to the device. They have been read when this returns, unless the caller `waits`
    /// for the stream before they change.
    pub fn upload(
        &mut self,
        to: u64,
        bytes: &[u8],
        stream: Stream,
        waits: bool,
    ) -> Result<(), CudaError> {
        let device = self.device.clone();
        let copy = |to: u64, bytes: &[u8]| {
            // SAFETY: the device buffer has room, and the bytes live until the copy completes: a
            // chunk's by its event, others by the caller's wait.
            unsafe { result::memcpy_htod_async(to, bytes, stream.0) }
                .map_err(device.error("copying to the GPU"))
        };
        if waits && bytes.len() >= PIN_QUERY_MIN && pinned(bytes.as_ptr()) {
            return copy(to, bytes);
        }
        let mut done = 0;
        while done < bytes.len() {
            let span = self.span(bytes.len() - done, stream, &mut |_| ())?;
            // SAFETY: the space is this call's alone.
            let staged = unsafe { std::slice::from_raw_parts_mut(span.at, span.len) };
            copy_bytes(staged, &bytes[done..done + span.len]);
            copy(to + done as u64, staged)?;
            done += span.len;
        }
        Ok(())
    }

    /// Copies from the device, and synchronises.
    pub fn download(
        &mut self,
        all: &mut [(u64, &mut [u8])],
        stream: Stream,
    ) -> Result<(), CudaError> {
        let outcome = self.fetch(all, stream);
        // Also after an error: copies may be in flight.
        let waited = stream.wait(&self.device);
        outcome.and(waited)
    }

    fn fetch(&mut self, all: &mut [(u64, &mut [u8])], stream: Stream) -> Result<(), CudaError> {
        let device = self.device.clone();
        let copy = |bytes: &mut [u8], from: u64| {
            // SAFETY: the device holds the bytes, and the caller synchronises before the borrow
            // ends.
            unsafe { result::memcpy_dtoh_async(bytes, from, stream.0) }
                .map_err(device.error("copying from the GPU"))
        };
        self.close(stream)?;
        let mut pending = Pending::new();
        for (from, bytes) in all.iter_mut() {
            if bytes.len() >= PIN_QUERY_MIN && pinned(bytes.as_ptr()) {
                copy(bytes, *from)?;
                continue;
            }
            let (mut from, mut rest) = (*from, &mut **bytes);
            while !rest.is_empty() {
                let span =
                    self.span(rest.len(), stream, &mut |chunk| drain(&mut pending, chunk))?;
                // SAFETY: the space is this call's alone.
                copy(unsafe { std::slice::from_raw_parts_mut(span.at, span.len) }, from)?;
                let (part, after) = rest.split_at_mut(span.len);
                pending.push_back((span.chunk, span.at.cast_const(), part));
                (from, rest) = (from + span.len as u64, after);
            }
        }
        self.close(stream)?;
        while let Some(chunk) = pending.front().map(|o| o.0) {
            self.chunks[chunk].done.wait(&self.device)?;
            drain(&mut pending, chunk);
        }
        Ok(())
    }
}

/// Downloads still in chunks, in order, with their destinations.
type Pending<'a> = VecDeque<(usize, *const u8, &'a mut [u8])>;

/// Copies a chunk's completed downloads to their destinations.
fn drain(pending: &mut Pending, chunk: usize) {
    while let Some((_, from, to)) = pending.pop_front_if(|o| o.0 == chunk) {
        // SAFETY: as many bytes as were copied there; nothing overwrites them before the chunk is
        // reopened.
        copy_bytes(to, unsafe { std::slice::from_raw_parts(from, to.len()) });
    }
}

/// Copies equal lengths, on several threads if large.
fn copy_bytes(to: &mut [u8], from: &[u8]) {
    if to.len() < PARALLEL_COPY {
        return to.copy_from_slice(from);
    }
    let all: Vec<Mutex<(&mut [u8], &[u8])>> = to
        .chunks_mut(PARALLEL_COPY / 4)
        .zip(from.chunks(PARALLEL_COPY / 4))
        .map(Mutex::new)
        .collect();
    Pool::run(|id, size| {
        for part in all.iter().skip(id).step_by(size) {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let (to, from) = &mut *part;
            to.copy_from_slice(from);
        }
    });
}

/// Whether the driver knows this memory as pinned.
fn pinned(at: *const u8) -> bool {
    use sys::{
        CUmemorytype::CU_MEMORYTYPE_HOST as HOST,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as TYPE,
    };
    let mut kind = 0u32;
    // SAFETY: writes one integer; unregistered memory is an error.
    unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), TYPE, at as u64) }.result().is_ok()
        && kind == HOST as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_threads_copy_every_byte() {
        for len in [0, 1, PARALLEL_COPY - 1, PARALLEL_COPY, 3 * PARALLEL_COPY + 17] {
            let from: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let mut to = vec![0; len];
            copy_bytes(&mut to, &from);
            assert!(to == from, "{len} bytes");
        }
    }
}
