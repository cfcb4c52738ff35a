//! The thread pool behind `omp.parallel`, in place of an OpenMP runtime.
//!
//! * A parallel region's team is on the stack of the thread that forks it; no memory is
//!   allocated.
//! * Several application threads may fork at once: each claims idle workers, and runs alone if
//!   there are none.
//! * Nested regions are serialised.
//! * A team may be smaller than requested, so results must not depend on its size.
//! * After `fork(2)` the child has no workers; its first region starts them again. `fork(2)` inside
//!   a region is not supported.
//! * Regions can run on the threads of another OpenMP runtime of the process (`shared`), which has
//!   a team for each application thread, and stacks of its own size.
//! * Bodies are `extern "C"`, so a Rust panic in one aborts.
//!
//! One pool per process: the entry points that compiled code calls take no context.
mod omp;
mod shared;
mod wait;
mod workers;

pub use omp::symbols;
pub use shared::{OpenMp, Parallel};

use std::{
    cell::Cell,
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicU32, Ordering::*},
};
use wait::{publish, wait_while_equal};

/// The outlined body of a region (kmpc microtask): thread id, bound thread id (unused), captures.
pub type Body = unsafe extern "C" fn(*const i32, *const i32, *mut c_void);

/// Default spin count before a waiting thread sleeps: about 40 µs, longer than the serial code
/// between two regions.
pub const DEFAULT_SPINS: u32 = 2000;
/// Largest team.
pub const MAX_THREADS: usize = workers::MAX;

static THREADS: AtomicU32 = AtomicU32::new(1);
static SPINS: AtomicU32 = AtomicU32::new(DEFAULT_SPINS);

/// Avoids false sharing: two cache lines, which the prefetcher reads as a pair.
#[repr(align(128))]
struct CachePadded<T>(T);

/// One region's team. Members do not touch it after they report completion, so the forking thread
/// may free it.
struct Team {
    /// Known to its members once they run.
    size: AtomicU32,
    body: Body,
    captures: *mut c_void,
    arrived: CachePadded<AtomicU32>,
    phase: CachePadded<AtomicU32>,
    sleepers: AtomicU32,
}

impl Team {
    fn new(size: u32, body: Body, captures: *mut c_void) -> Team {
        Team {
            size: AtomicU32::new(size),
            body,
            captures,
            arrived: CachePadded(AtomicU32::new(0)),
            phase: CachePadded(AtomicU32::new(0)),
            sleepers: AtomicU32::new(0),
        }
    }
}

/// A thread's OpenMP state.
#[derive(Clone, Copy)]
struct ThreadState {
    team: *const Team,
    id: u32,
    num_threads: u32,
}

const SERIAL: ThreadState = ThreadState { team: ptr::null(), id: 0, num_threads: 0 };
thread_local! { static STATE: Cell<ThreadState> = const { Cell::new(SERIAL) }; }

/// The process's pool. Its functions may be called from any thread at any time.
#[derive(Debug)]
pub struct Pool;

impl Pool {
    /// Sets the team size of later regions, including the calling thread. The first region that
    /// needs workers starts them. Lowering the number leaves the others asleep.
    pub fn configure(threads: usize) {
        THREADS.store(threads.clamp(1, MAX_THREADS) as u32, Release);
    }
    /// Sets the spin count before a waiting thread sleeps. More spins make regions start faster and
    /// keep a core busy while idle.
    pub fn set_spins(spins: u32) {
        SPINS.store(spins, Relaxed);
    }
    /// Runs later regions on the threads of an OpenMP runtime that the process has, or on the
    /// pool's own; returns whether on the runtime's. A forked child has its own for good.
    ///
    /// # Safety
    /// The functions are of one runtime, which stays loaded.
    pub unsafe fn share(openmp: Option<OpenMp>) -> bool {
        Pool::expect_forks();
        shared::set(openmp)
    }
    /// Makes children that this process forks start anew, as the first region does.
    pub fn expect_forks() {
        workers::handle_forks();
    }
    /// The largest team that a region gets.
    pub fn threads() -> usize {
        THREADS.load(Acquire) as usize
    }
    /// Stops the workers, after regions in progress; a later region starts them again. Required
    /// before this code is unloaded. A no-op inside a region, which cannot wait for itself.
    pub fn shutdown() {
        if STATE.get().team.is_null() {
            workers::stop();
        }
    }
    /// Calls `f(id, size)` on every thread of a team, which may be smaller than configured.
    pub fn run<F: Fn(usize, usize) + Sync>(f: F) {
        unsafe extern "C" fn body<F: Fn(usize, usize) + Sync>(
            _: *const i32,
            _: *const i32,
            captures: *mut c_void,
        ) {
            let (id, size) = thread_and_size();
            // SAFETY: `captures` is the closure below, which outlives the region.
            unsafe { (*captures.cast::<F>())(id as usize, size as usize) }
        }
        // SAFETY: the body takes exactly this pointer, and `F` may be called from several threads.
        unsafe { region(body::<F>, (&raw const f).cast_mut().cast(), true) }
    }
    /// Team barrier; a no-op outside a region.
    pub fn barrier() {
        barrier()
    }
}

/// Forks a team, runs the body on it, and joins.
///
/// # Safety
/// `body` may be called with `captures` from several threads at once.
unsafe fn region(body: Body, captures: *mut c_void, parallel: bool) {
    let me = STATE.get();
    let limit = THREADS.load(Acquire);
    let want = if me.num_threads > 0 { me.num_threads.min(limit) } else { limit };
    let forks = parallel && me.team.is_null() && want > 1;
    if let Some(openmp) = shared::current().filter(|_| forks) {
        // A requested team size applies to one region.
        STATE.set(ThreadState { num_threads: 0, ..me });
        // SAFETY: the caller's promise.
        return unsafe { openmp.region(body, captures, want) };
    }
    let claimed = if forks { workers::claim(want as usize - 1) } else { workers::NONE };
    let team = Team::new(1 + claimed.count(), body, captures);
    for (id, worker) in (1..).zip(claimed.iter()) {
        worker.start(&team, id);
    }
    STATE.set(ThreadState { team: &team, id: 0, num_threads: 0 });
    // SAFETY: the caller's promise.
    unsafe { body(&0, &0, captures) };
    // A requested team size (`num_threads`) applies to one region.
    STATE.set(ThreadState { num_threads: 0, ..me });
    for worker in claimed.iter() {
        worker.join();
    }
    claimed.release();
}

/// Thread id and team size.
#[inline]
fn thread_and_size() -> (u32, u32) {
    let me = STATE.get();
    // SAFETY: a thread's team is set only while its region runs.
    if me.team.is_null() { (0, 1) } else { (me.id, unsafe { (*me.team).size.load(Relaxed) }) }
}

#[inline]
fn barrier() {
    let me = STATE.get();
    if me.team.is_null() {
        return;
    }
    // SAFETY: a thread's team is set only while its region runs.
    let team = unsafe { &*me.team };
    let size = team.size.load(Relaxed);
    if size == 1 {
        return;
    }
    let phase = team.phase.0.load(Relaxed);
    if team.arrived.0.fetch_add(1, AcqRel) == size - 1 {
        // Before the phase: no thread arrives at the next barrier earlier.
        team.arrived.0.store(0, Relaxed);
        publish(&team.phase.0, phase.wrapping_add(1), &team.sleepers);
    } else {
        wait_while_equal(&team.phase.0, phase, &team.sleepers, SPINS.load(Relaxed));
    }
}

#[cfg(test)]
mod tests;
