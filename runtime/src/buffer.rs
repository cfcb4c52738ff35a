//! Reusable host memory: arenas, packed weights.
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    borrow::Cow,
    ptr::NonNull,
};

/// Alignment in bytes: a cache line, and the widest vector.
const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;
/// From this size in bytes, a buffer is its own mapping and asks for huge pages.
const MAPPED_FROM: usize = 4 << 20;

/// Allocation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: {} for {what}", asked(*.bytes))]
pub struct OutOfMemory {
    /// Bytes asked for; `None` if they overflow 64 bits.
    pub bytes: Option<usize>,
    /// What they are for.
    pub what: Cow<'static, str>,
}

fn asked(bytes: Option<usize>) -> String {
    bytes.map_or("more bytes than an address space has".into(), |n| format!("{n} bytes"))
}

impl OutOfMemory {
    /// For this many bytes; `None` if they overflow.
    pub fn new(bytes: Option<usize>, what: impl Into<Cow<'static, str>>) -> OutOfMemory {
        OutOfMemory { bytes, what: what.into() }
    }
    /// Sets what the memory was for.
    pub fn of(self, what: impl Into<Cow<'static, str>>) -> OutOfMemory {
        OutOfMemory { what: what.into(), ..self }
    }
}

/// An empty vector with capacity for `count` elements. Unlike `Vec::with_capacity`, fails with an
/// error.
pub fn vec_of<T>(count: usize, what: impl FnOnce() -> String) -> Result<Vec<T>, OutOfMemory> {
    let mut all = vec![];
    match all.try_reserve_exact(count) {
        Ok(()) => Ok(all),
        Err(_) => Err(OutOfMemory::new(count.checked_mul(size_of::<T>()), what())),
    }
}

/// Zero-initialised bytes at a fixed address, aligned to 64 B, or to 2 MiB (huge pages) if large.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Empty,
    Heap(Layout),
    /// Base and length of the mapping, which begins before the aligned start.
    Mapped(*mut u8, usize),
}

// SAFETY: a buffer owns its memory; nothing in it is tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read, except through the raw pointer, whose users give their own
// guarantees.
unsafe impl Sync for Buffer {}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::new()
    }
}

impl Buffer {
    /// An empty buffer, which allocates nothing.
    pub const fn new() -> Buffer {
        // An aligned address that is never dereferenced.
        let start = unsafe { NonNull::new_unchecked(std::ptr::without_provenance_mut(LINE)) };
        Buffer { start, len: 0, kind: Kind::Empty }
    }
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Result<Buffer, OutOfMemory> {
        match len {
            0 => Ok(Buffer::new()),
            _ if len >= MAPPED_FROM => map(len),
            _ => heap(len),
        }
    }
    /// Grows the buffer to at least `len` bytes. A large enough one keeps address and contents.
    /// Otherwise both change, and the old memory is freed first, so that the two never coexist.
    pub fn ensure(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len > self.len {
            *self = Buffer::new();
            *self = Buffer::zeroed(len)?;
        }
        Ok(())
    }
    /// Pointer to the first byte.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes; the lifetime is the buffer's.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.kind {
            Kind::Empty => {}
            // SAFETY: allocated with this layout.
            Kind::Heap(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            // SAFETY: mapped with this address and length.
            Kind::Mapped(base, len) => unsafe {
                libc::munmap(base.cast(), len);
            },
        }
    }
}

fn heap(len: usize) -> Result<Buffer, OutOfMemory> {
    let none = || OutOfMemory::new(Some(len), "a buffer");
    let layout = Layout::from_size_align(len, LINE).map_err(|_| none())?;
    // SAFETY: the layout is not empty.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(none)?;
    Ok(Buffer { start, len, kind: Kind::Heap(layout) })
}

fn map(len: usize) -> Result<Buffer, OutOfMemory> {
    let none = || OutOfMemory::new(Some(len), "a buffer");
    let whole =
        len.checked_add(HUGE_PAGE).filter(|n| *n <= isize::MAX as usize).ok_or_else(none)?;
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private mapping at an address that the kernel chooses.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), whole, access, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(none());
    }
    let base = base.cast::<u8>();
    let skip = base.addr().next_multiple_of(HUGE_PAGE) - base.addr();
    // SAFETY: less than HUGE_PAGE, so `len` bytes remain inside the mapping.
    let start = unsafe { base.add(skip) };
    #[cfg(target_os = "linux")]
    // SAFETY: a range inside the mapping. If the kernel refuses, only speed is lost.
    unsafe {
        libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE);
    }
    let start = NonNull::new(start).ok_or_else(none)?;
    Ok(Buffer { start, len, kind: Kind::Mapped(base, whole) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_and_zeros() {
        for len in [0, 1, 63, 4096, MAPPED_FROM - 1, MAPPED_FROM, MAPPED_FROM + 12345] {
            let mut b = Buffer::zeroed(len).expect("memory");
            let align = if len >= MAPPED_FROM { HUGE_PAGE } else { LINE };
            assert_eq!((b.len(), b.as_mut_ptr().addr() % align), (len, 0));
            assert!(b.bytes().iter().all(|x| *x == 0));
            b.bytes_mut().fill(7);
        }
    }

    #[test]
    fn what_is_large_enough_stays() {
        let mut b = Buffer::zeroed(1000).expect("memory");
        b.bytes_mut()[999] = 5;
        let at = b.as_mut_ptr();
        b.ensure(500).expect("memory");
        assert_eq!((b.as_mut_ptr(), b.len(), b.bytes()[999]), (at, 1000, 5));
        b.ensure(8 << 20).expect("memory");
        assert_eq!((b.len(), b.bytes()[999]), (8 << 20, 0));
    }

    #[test]
    fn too_much_is_an_error() {
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let e = Buffer::zeroed(bytes).expect_err("refused").of("an arena");
            assert_eq!(e, OutOfMemory::new(Some(bytes), "an arena"));
            assert_eq!(e.to_string(), format!("out of memory: {bytes} bytes for an arena"));
        }
        let e = vec_of::<u64>(usize::MAX, || "positions".into()).expect_err("refused");
        let text = "out of memory: more bytes than an address space has for positions";
        assert_eq!(e.to_string(), text);
        let mut b = Buffer::zeroed(10).expect("memory");
        assert!(b.ensure(1 << 60).is_err());
        assert!(b.is_empty());
    }
}
