//! Executable memory: written first, then protected section by section.
use super::error::LinkError;
use std::ptr;

/// Granularity of protection, in bytes.
pub const PAGE: usize = 4096;

/// A segment of the mapping, by its protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Read and execute.
    LinkedCode,
    /// Read-only.
    Constants,
    /// Read and write.
    Data,
}

impl Segment {
    pub const COUNT: usize = 3;
}

/// One mapping, so that PC-relative references reach all of it.
#[derive(Debug)]
pub struct Memory {
    base: *mut u8,
    bytes: usize,
    /// The segments' start offsets, then the end.
    starts: [usize; Segment::COUNT + 1],
}
// SAFETY: once sealed, it is code, and data that calls synchronise as any other.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(sizes: [usize; Segment::COUNT]) -> Result<Memory, LinkError> {
        let mut starts = [0; Segment::COUNT + 1];
        for (i, size) in sizes.iter().enumerate() {
            starts[i + 1] = starts[i] + size.next_multiple_of(PAGE);
        }
        let bytes = starts[Segment::COUNT].max(PAGE);
        // SAFETY: a new mapping.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(LinkError::Memory {
                bytes,
                reason: std::io::Error::last_os_error().to_string(),
            });
        }
        Ok(Memory { base: base.cast(), bytes, starts })
    }
    /// The address of an offset in a segment.
    pub fn address(&self, segment: Segment, offset: usize) -> u64 {
        self.base.expose_provenance() as u64 + (self.starts[segment as usize] + offset) as u64
    }
    /// Writes bytes; they must not exceed the segment.
    pub fn put(&mut self, segment: Segment, offset: usize, bytes: &[u8]) {
        let (start, end) = (self.starts[segment as usize], self.starts[segment as usize + 1]);
        let room = (end - start).saturating_sub(offset);
        // SAFETY: within the mapping, which is writable until it is sealed.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base.add(start + offset.min(end - start)),
                bytes.len().min(room),
            )
        };
    }
    /// Makes code executable and read-only, and constants read-only.
    pub fn seal(&mut self) -> Result<(), LinkError> {
        for (segment, protection) in [
            (Segment::LinkedCode, libc::PROT_READ | libc::PROT_EXEC),
            (Segment::Constants, libc::PROT_READ),
        ] {
            let (start, end) = (self.starts[segment as usize], self.starts[segment as usize + 1]);
            // SAFETY: whole pages of this mapping.
            if end > start
                && unsafe { libc::mprotect(self.base.add(start).cast(), end - start, protection) }
                    != 0
            {
                return Err(LinkError::Memory {
                    bytes: end - start,
                    reason: std::io::Error::last_os_error().to_string(),
                });
            }
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}
