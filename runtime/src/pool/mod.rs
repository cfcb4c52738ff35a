//! The thread pool behind `omp.parallel`, where no OpenMP runtime is at hand.
//!
//! * A region opens a team on the stack of the thread that opens it; no memory is allocated.
//! * Several application threads may open regions at once: each claims idle workers, and who finds
//!   none runs alone.
//! * A region inside of a region runs alone, and so does code outside of any.
//! * A team may be smaller than asked, so results must not depend on its size.
//! * After `fork` the child has no workers; its first region starts them again. A fork from inside
//!   a region is not supported.
//! * No panic may cross a region: bodies are `extern "C"`, so a Rust panic in one aborts.
//!
//! There is one pool in a process, because the entry points that compiled code calls take no
//! context.
mod omp;
mod wait;
mod workers;

pub use omp::symbols;

use std::{
    cell::Cell,
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicU32, Ordering::*},
};
use wait::{publish, wait_while_equal};

/// The body of a region: thread id, an id that nobody reads, and the captured values.
pub type Body = unsafe extern "C" fn(*const i32, *const i32, *mut c_void);

/// How often a waiting thread looks before it sleeps, unless configured: some 40 µs, more than the
/// serial code between two regions takes.
pub const DEFAULT_SPINS: u32 = 2000;
/// The most threads that a team has.
pub const MAX_THREADS: usize = workers::MAX;

static THREADS: AtomicU32 = AtomicU32::new(1);
static SPINS: AtomicU32 = AtomicU32::new(DEFAULT_SPINS);

/// Two of them never share a cache line, nor the pair that the prefetcher reads.
#[repr(align(128))]
struct Line<T>(T);

/// One region's threads. Members touch it for the last time before they report that they are done,
/// so it outlives its uses.
struct Team {
    size: u32,
    body: Body,
    captures: *mut c_void,
    arrived: Line<AtomicU32>,
    phase: Line<AtomicU32>,
    sleepers: AtomicU32,
}

/// What a thread knows of itself.
#[derive(Clone, Copy)]
struct Me {
    team: *const Team,
    id: u32,
    asked: u32,
}

const ALONE: Me = Me { team: ptr::null(), id: 0, asked: 0 };
thread_local! { static ME: Cell<Me> = const { Cell::new(ALONE) }; }

/// The process's pool. Its functions may be called from any thread at any time.
#[derive(Debug)]
pub struct Pool;

impl Pool {
    /// Regions opened from now on get up to `threads` threads, the caller included. Workers start
    /// with the first region that needs them and stay; a smaller number later leaves the others
    /// asleep.
    pub fn configure(threads: usize) {
        THREADS.store(threads.clamp(1, MAX_THREADS) as u32, Release);
    }
    /// How often a waiting thread looks before it sleeps. More spins make the next region start
    /// faster and cost a core while nothing runs.
    pub fn set_spins(spins: u32) {
        SPINS.store(spins, Relaxed);
    }
    /// The most threads that a region gets.
    pub fn threads() -> usize {
        THREADS.load(Acquire) as usize
    }
    /// Ends the workers, waiting for regions that run; a later region starts them again. Needed
    /// before this code is unloaded. Does nothing when called from inside a region, which cannot
    /// wait for itself.
    pub fn shutdown() {
        if ME.get().team.is_null() {
            workers::stop();
        }
    }
    /// Calls `f(id, size)` on every thread of a team. As every region, it may get fewer threads
    /// than configured.
    pub fn run<F: Fn(usize, usize) + Sync>(f: F) {
        unsafe extern "C" fn body<F: Fn(usize, usize) + Sync>(
            _: *const i32,
            _: *const i32,
            captures: *mut c_void,
        ) {
            let (id, size) = who();
            // SAFETY: `captures` is the closure below, which outlives the region.
            unsafe { (*captures.cast::<F>())(id as usize, size as usize) }
        }
        // SAFETY: the body takes exactly this pointer, and `F` may be called from several threads.
        unsafe { region(body::<F>, (&raw const f).cast_mut().cast(), true) }
    }
    /// Waits until every thread of the team has come here; nothing outside a region.
    pub fn barrier() {
        barrier()
    }
}

/// Opens a team, runs the body on all of it, and waits for the last.
///
/// # Safety
/// `body` may be called with `captures` from several threads at once.
unsafe fn region(body: Body, captures: *mut c_void, parallel: bool) {
    let me = ME.get();
    let limit = THREADS.load(Acquire);
    let want = if me.asked > 0 { me.asked.min(limit) } else { limit };
    let claimed = if parallel && me.team.is_null() && want > 1 {
        workers::claim(want as usize - 1)
    } else {
        workers::NONE
    };
    let team = Team {
        size: 1 + claimed.count(),
        body,
        captures,
        arrived: Line(AtomicU32::new(0)),
        phase: Line(AtomicU32::new(0)),
        sleepers: AtomicU32::new(0),
    };
    for (id, worker) in (1..).zip(claimed.iter()) {
        worker.start(&team, id);
    }
    ME.set(Me { team: &team, id: 0, asked: 0 });
    // SAFETY: the caller's promise.
    unsafe { body(&0, &0, captures) };
    // A request for a team size is good for one region.
    ME.set(Me { asked: 0, ..me });
    for worker in claimed.iter() {
        worker.join();
    }
    claimed.release();
}

/// Thread id and team size.
#[inline]
fn who() -> (u32, u32) {
    let me = ME.get();
    // SAFETY: a thread's team is set only while its region runs.
    if me.team.is_null() { (0, 1) } else { (me.id, unsafe { (*me.team).size }) }
}

#[inline]
fn barrier() {
    let me = ME.get();
    if me.team.is_null() {
        return;
    }
    // SAFETY: a thread's team is set only while its region runs.
    let team = unsafe { &*me.team };
    if team.size == 1 {
        return;
    }
    let phase = team.phase.0.load(Relaxed);
    if team.arrived.0.fetch_add(1, AcqRel) == team.size - 1 {
        // Before the phase: nobody arrives at the next barrier earlier.
        team.arrived.0.store(0, Relaxed);
        publish(&team.phase.0, phase.wrapping_add(1), &team.sleepers);
    } else {
        wait_while_equal(&team.phase.0, phase, &team.sleepers, SPINS.load(Relaxed));
    }
}

#[cfg(test)]
mod tests;
