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
    /// Where conditions and sizes are copied to.
    pub(super) pinned: Option<Pinned>,
    pub(super) parts: Vec<PartState>,
}

/// What a call caches for one of the programs.
pub(super) struct PartState {
    pub(super) arena: DeviceBuffer,
    pub(super) plans: LruCache<LaunchPlan>,
    pub(super) at: Addresses,
    pub(super) events: Vec<Event>,
}

/// Pinned memory of [`Pinned::BYTES`].
pub(super) struct Pinned(pub(super) *mut u8);
// SAFETY: driver memory that this owns.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) const BYTES: usize = 8;
}

impl Drop for Pinned {
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
