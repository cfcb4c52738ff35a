//! Emulated device memory: host memory with a table of allocations, for bounds checks.
use std::{
    alloc::{Layout, alloc, dealloc},
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

/// Alignment of allocations in bytes, as the driver's.
const ALIGN: usize = 256;
/// Fill byte of new memory: NaN in every float type, so that reads of uninitialised memory show.
const FRESH: u8 = 0xff;

/// The kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Device memory.
    Device,
    /// Pinned host memory, which kernels can access.
    Host,
}

#[derive(Clone, Copy)]
struct Allocation {
    len: usize,
    layout: Layout,
    kind: MemoryKind,
}

/// All allocations, by address.
#[derive(Default)]
pub struct Allocations {
    by_address: RwLock<BTreeMap<u64, Allocation>>,
}

/// The allocations of the process.
pub static MEMORY: Allocations = Allocations { by_address: RwLock::new(BTreeMap::new()) };

impl Allocations {
    /// Allocates `len` bytes, at least one. None: out of host memory.
    pub fn allocate(&self, len: usize, kind: MemoryKind) -> Option<u64> {
        let layout =
            Layout::from_size_align(len.max(1).checked_next_multiple_of(ALIGN)?, ALIGN).ok()?;
        // SAFETY: the size is not 0.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            return None;
        }
        // SAFETY: just allocated with this size.
        unsafe { at.write_bytes(FRESH, layout.size()) };
        self.by_address
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(at as u64, Allocation { len: len.max(1), layout, kind });
        Some(at as u64)
    }
    /// Frees the allocation that starts at an address. False: there is none.
    pub fn free(&self, at: u64) -> bool {
        let Some(allocation) =
            self.by_address.write().unwrap_or_else(PoisonError::into_inner).remove(&at)
        else {
            return false;
        };
        // SAFETY: allocated above with this layout, and no longer in the list.
        unsafe { dealloc(at as *mut u8, allocation.layout) };
        true
    }
    /// The allocation that contains an address: start, size in bytes, kind.
    pub fn find(&self, at: u64) -> Option<(u64, usize, MemoryKind)> {
        let by_address = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        let (first, allocation) = by_address.range(..=at).next_back()?;
        (at - first < allocation.len as u64).then_some((*first, allocation.len, allocation.kind))
    }
    /// Allocated device memory in bytes.
    pub fn used(&self) -> usize {
        let by_address = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        by_address.values().filter(|p| p.kind == MemoryKind::Device).map(|p| p.layout.size()).sum()
    }
}
