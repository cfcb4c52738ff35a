//! What a control-flow call keeps between calls.
use super::{
    Device, event::Event, launch::Addresses, lru::LruCache, memory::DeviceBuffer, plan::LaunchPlan,
};
use cudarc::driver::result;
use std::sync::Arc;

/// What a control-flow call caches beside the rest of its state.
#[derive(Default)]
pub struct ControlState {
    /// Device buffers of values, with the reference count of each.
    pub(super) values: Vec<DeviceBuffer>,
    /// Where conditions and sizes are copied to.
    pub(super) pinned: Option<Pinned>,
    pub(super) parts: Vec<PartState>,
    /// Workspace of a library's calls.
    library: Option<DeviceBuffer>,
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
    /// Workspace of a library's calls, empty at first.
    pub(super) fn scratch(&mut self, device: &Arc<Device>) -> &mut DeviceBuffer {
        self.library.get_or_insert_with(|| DeviceBuffer::none(device))
    }
    /// Bytes of device memory for values and for the programs' arenas.
    pub fn bytes(&self) -> usize {
        self.values.iter().chain(&self.library).map(DeviceBuffer::len).sum::<usize>()
            + self.parts.iter().map(|p| p.arena.len()).sum::<usize>()
    }
}
