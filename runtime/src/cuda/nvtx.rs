//! NVTX ranges, if the library is found.
use cudarc::nvtx::sys;
use std::{ffi::CStr, sync::OnceLock};

/// A range on the calling thread, popped on drop.
pub struct Range(());

/// Pushes a range. None: `libnvToolsExt` is missing.
pub fn range(name: &CStr) -> Option<Range> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens and closes a library; cudarc would panic without it.
    if !*PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return None;
    }
    // SAFETY: the name is read before this returns.
    unsafe { sys::nvtxRangePushA(name.as_ptr()) };
    Some(Range(()))
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: pops what `range` pushed, on the same thread: no range leaves the function that
        // made it.
        unsafe { sys::nvtxRangePop() };
    }
}
