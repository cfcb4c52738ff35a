//! Regions on the threads of an OpenMP runtime that the process has already, in place of the pool's
//! own workers.
//!
//! Why: the threads of such a runtime spin for milliseconds after a region. Two pools on the same
//! processors wait for each other.
use super::{Body, STATE, Team, ThreadState};
use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering::*},
};

/// `GOMP_parallel` of libgomp, which libiomp5 and libomp have as well: runs a function on a team of
/// at most so many threads, and joins them.
pub type Parallel = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, u32, u32);

/// Functions of an OpenMP runtime.
#[derive(Clone, Copy, Debug)]
pub struct OpenMp {
    /// `GOMP_parallel`.
    pub parallel: Parallel,
    /// `omp_get_thread_num`.
    pub thread_num: extern "C" fn() -> i32,
    /// `omp_get_num_threads`.
    pub num_threads: extern "C" fn() -> i32,
}

/// The one in use; null for the pool's own workers. Those that were in use are kept, since regions
/// may run.
static CURRENT: AtomicPtr<OpenMp> = AtomicPtr::new(ptr::null_mut());
/// Whether this process is a forked child: its parent's threads are gone, and libgomp would wait for
/// them.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Sets whose threads later regions run on; returns whether these are the runtime's.
pub fn set(openmp: Option<OpenMp>) -> bool {
    let new = openmp.filter(|_| !FORKED.load(Relaxed));
    let new = new.map_or(ptr::null_mut(), |o| Box::into_raw(Box::new(o)));
    CURRENT.store(new, Release);
    !new.is_null()
}

/// Goes back to the pool's own workers for good.
pub fn in_child() {
    FORKED.store(true, Relaxed);
    CURRENT.store(ptr::null_mut(), Relaxed);
}

/// The runtime in use.
pub fn current() -> Option<&'static OpenMp> {
    // SAFETY: null, or leaked by `set`.
    unsafe { CURRENT.load(Acquire).as_ref() }
}

struct Region<'a> {
    openmp: &'a OpenMp,
    team: Team,
}

impl OpenMp {
    /// Forks a team of at most `want` threads, runs the body on it, and joins.
    ///
    /// # Safety
    /// As of [`super::region`].
    pub(super) unsafe fn region(&self, body: Body, captures: *mut c_void, want: u32) {
        let region = Region { openmp: self, team: Team::new(1, body, captures) };
        // SAFETY: `member` takes this pointer, and the call returns after all members have.
        unsafe { (self.parallel)(member, (&raw const region).cast_mut().cast(), want, 0) }
    }
}

/// One thread of a team.
unsafe extern "C" fn member(region: *mut c_void) {
    // SAFETY: `OpenMp::region` keeps it until all members have returned.
    let region = unsafe { &*region.cast::<Region<'_>>() };
    let (id, size) = ((region.openmp.thread_num)(), (region.openmp.num_threads)());
    // All members store the same.
    region.team.size.store(size.max(1) as u32, Relaxed);
    let before = STATE.replace(ThreadState { team: &region.team, id: id as u32, num_threads: 0 });
    // SAFETY: the promise of the forking thread.
    unsafe { (region.team.body)(&id, &0, region.team.captures) };
    STATE.set(before);
}
