//! Objects behind handles.
use super::Done;
use cudarc::driver::sys::CUresult;
use std::{
    collections::BTreeMap,
    marker::PhantomData,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The first is beyond 0, 1 and 2, which stand for default streams.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

/// A number that no other handle has, of any kind.
pub fn fresh() -> usize {
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}

/// All live objects of a kind, `H` being what the driver's header calls it.
pub struct Table<T, H> {
    live: RwLock<BTreeMap<usize, Arc<T>>>,
    kind: PhantomData<fn(H)>,
}

impl<T, H> Table<T, H> {
    /// None.
    pub const fn new() -> Self {
        Table { live: RwLock::new(BTreeMap::new()), kind: PhantomData }
    }
    /// One more.
    pub fn add(&self, object: T) -> *mut H {
        let handle = fresh();
        self.live.write().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(object));
        std::ptr::without_provenance_mut(handle)
    }
    /// The object of a handle.
    pub fn get(&self, handle: *mut H) -> Done<Arc<T>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.get(&handle.addr()).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
    /// The same, and the handle is no more.
    pub fn take(&self, handle: *mut H) -> Done<Arc<T>> {
        let taken =
            self.live.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr());
        taken.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}
