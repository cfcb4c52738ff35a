//! Emulated device memory: host memory with a table of allocations, for bounds checks.
use std::{
    alloc::{Layout, alloc, dealloc},
    cell::Cell,
    collections::BTreeMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
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

struct Allocation {
    len: usize,
    layout: Layout,
    kind: MemoryKind,
    /// The number of the last launch that wrote to it.
    written: AtomicU64,
}

thread_local! {
    /// The number of the last launch of a thread.
    static LAST: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// A launch's number, and that of its thread's launch before it.
#[derive(Clone, Copy, Debug)]
pub struct LaunchOrder {
    number: u64,
    before: u64,
}

/// All allocations, by address.
#[derive(Default)]
pub struct Allocations {
    by_address: RwLock<BTreeMap<u64, Allocation>>,
    /// Launches so far.
    launches: AtomicU64,
}

/// The allocations of the process.
pub static MEMORY: Allocations =
    Allocations { by_address: RwLock::new(BTreeMap::new()), launches: AtomicU64::new(1) };

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
        self.by_address.write().unwrap_or_else(PoisonError::into_inner).insert(
            at as u64,
            Allocation { len: len.max(1), layout, kind, written: AtomicU64::new(0) },
        );
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
    /// Numbers a launch of the calling thread.
    pub fn launch(&self) -> LaunchOrder {
        let number = self.launches.fetch_add(1, Ordering::Relaxed);
        LaunchOrder { number, before: LAST.replace(number) }
    }
    /// Records that a launch writes at an address.
    pub fn record_write(&self, at: u64, launch: LaunchOrder) {
        let by_address = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, allocation)) = by_address.range(..=at).next_back() {
            allocation.written.store(launch.number, Ordering::Relaxed);
        }
    }
    /// Whether a launch, or the one before it, has written to the allocation of an address.
    pub fn is_in_flux(&self, at: u64, launch: LaunchOrder) -> bool {
        let by_address = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        let found = by_address.range(..=at).next_back();
        found.is_some_and(|(_, a)| {
            [launch.number, launch.before].contains(&a.written.load(Ordering::Relaxed))
        })
    }
    /// Allocated device memory in bytes.
    pub fn used(&self) -> usize {
        let by_address = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
        by_address.values().filter(|p| p.kind == MemoryKind::Device).map(|p| p.layout.size()).sum()
    }
}
