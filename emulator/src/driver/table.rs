//! Handle tables.
use super::CudaResult;
use cudarc::driver::sys::CUresult;
use std::{
    collections::BTreeMap,
    marker::PhantomData,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Handles 0, 1 and 2 are default streams.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

/// A handle that no object of any kind has had.
pub fn fresh() -> usize {
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}

/// All live objects of a kind; `H` is the driver header's handle type.
pub struct Table<T, H> {
    live: RwLock<BTreeMap<usize, Arc<T>>>,
    kind: PhantomData<fn(H)>,
}

impl<T, H> Table<T, H> {
    /// An empty table.
    pub const fn new() -> Self {
        Table { live: RwLock::new(BTreeMap::new()), kind: PhantomData }
    }
    /// Adds an object.
    pub fn add(&self, object: T) -> *mut H {
        let handle = fresh();
        self.live.write().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(object));
        std::ptr::without_provenance_mut(handle)
    }
    /// The object of a handle.
    pub fn get(&self, handle: *mut H) -> CudaResult<Arc<T>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.get(&handle.addr()).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
    /// Removes the object of a handle and returns it.
    pub fn take(&self, handle: *mut H) -> CudaResult<Arc<T>> {
        let taken =
            self.live.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
        taken.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}
