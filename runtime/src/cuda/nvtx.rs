//! Ranges that profilers show, by NVTX's library where there is one.
use cudarc::nvtx::sys;
use std::{ffi::CStr, sync::OnceLock};

/// A range of the calling thread, which ends when this goes.
pub struct Range(());

/// Begins a range. None: there is no `libnvToolsExt`.
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
        // SAFETY: ends what `range` began, on the same thread, since a range stays in the function
        // that made it.
        unsafe { sys::nvtxRangePop() };
    }
}
