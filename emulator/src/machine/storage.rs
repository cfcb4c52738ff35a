//! Memory of a CTA, and the parts of its addresses.

/// Generic shared addresses have this bit; below it are the CTA's rank in the cluster plus 1 (0:
/// the thread's own CTA) and the offset.
pub const SHARED: u64 = 1 << 56;
/// Generic local addresses have this bit.
pub const LOCAL: u64 = 1 << 57;
/// Bits of an offset in shared memory.
pub const OFFSET_BITS: u32 = 24;

/// The last allocation found, as a cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct CachedAllocation {
    pub(super) first: u64,
    pub(super) behind: u64,
    /// Whether it is recorded that the launch writes there.
    pub(super) written: bool,
}

/// Bytes aligned to 1024, as the 128-byte swizzle requires.
pub struct Aligned {
    storage: Vec<u128>,
    skip: usize,
    len: usize,
}

impl Aligned {
    /// `len` bytes, all of this value.
    pub fn new(len: usize, fill: u8) -> Aligned {
        let storage = vec![u128::from_ne_bytes([fill; 16]); len.div_ceil(16) + 64];
        let skip = storage.as_ptr().cast::<u8>().align_offset(1024);
        Aligned { storage, skip, len }
    }
    /// All bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the room has 1024 bytes more than `len`, and any bytes are u8.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.storage.as_mut_ptr().cast::<u8>().add(self.skip),
                self.len,
            )
        }
    }
}
