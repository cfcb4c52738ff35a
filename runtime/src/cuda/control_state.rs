//! What a control-flow call keeps between calls.
use super::{
    event::Event, launch::Addresses, lru::LruCache, memory::DeviceBuffer, plan::LaunchPlan,
};
use cudarc::driver::result;

/// What a control-flow call caches beside the rest of its state.
#[derive(Default)]
pub struct ControlState {
    /// Device buffers of values, with the reference count of each.
    pub(super) values: Vec<DeviceBuffer>,
    /// Pinned byte that conditions are copied to.
    pub(super) flag: Option<Flag>,
    pub(super) parts: Vec<PartState>,
}

/// What a call caches for one of the programs.
pub(super) struct PartState {
    pub(super) arena: DeviceBuffer,
    pub(super) plans: LruCache<LaunchPlan>,
    pub(super) at: Addresses,
    pub(super) events: Vec<Event>,
}

/// A byte of pinned memory.
pub(super) struct Flag(pub(super) *mut u8);
// SAFETY: driver memory that this owns.
unsafe impl Send for Flag {}

impl Drop for Flag {
    fn drop(&mut self) {
        // SAFETY: allocated by the driver; the copies to it have completed.
        let _ = unsafe { result::free_host(self.0.cast()) };
    }
}

impl ControlState {
    /// Bytes of device memory for values and for the programs' arenas.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(DeviceBuffer::len).sum::<usize>()
            + self.parts.iter().map(|p| p.arena.len()).sum::<usize>()
    }
}
