//! The worker threads: a fixed table of slots, and a bit mask of the idle ones.
use super::{
    CachePadded, SERIAL, SPINS, STATE, THREADS, Team, ThreadState, publish, wait_while_equal,
};
use std::{
    ptr,
    sync::{
        Once,
        atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    },
    thread::JoinHandle,
};

const WORDS: usize = 4;
/// Most workers: one bit each. The barrier is centralised, so larger teams would mostly wait.
pub const MAX: usize = WORDS * 64;
const STACK: usize = 8 << 20;

static SLOTS: [Slot; MAX] = [const { Slot::new() }; MAX];
static IDLE: [CachePadded<AtomicU64>; WORDS] = [const { CachePadded(AtomicU64::new(0)) }; WORDS];
/// Number of slots with a running thread.
static STARTED: AtomicU32 = AtomicU32::new(0);
/// A spin lock for starting and stopping workers. Never waited for inside a region, and cleared in
/// a forked child, so it is not a Mutex.
static LOCK: AtomicU32 = AtomicU32::new(0);

/// A worker's mailbox.
#[repr(align(128))]
pub struct Slot {
    /// Changes when there is a team to join.
    go: AtomicU32,
    /// Equals `go` when the worker has left the team.
    done: CachePadded<AtomicU32>,
    sleeping: AtomicU32,
    opener_sleeping: AtomicU32,
    id: AtomicU32,
    /// Null tells the worker to exit.
    team: AtomicPtr<Team>,
    handle: AtomicPtr<JoinHandle<()>>,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            go: AtomicU32::new(0),
            done: CachePadded(AtomicU32::new(0)),
            sleeping: AtomicU32::new(0),
            opener_sleeping: AtomicU32::new(0),
            id: AtomicU32::new(0),
            team: AtomicPtr::new(ptr::null_mut()),
            handle: AtomicPtr::new(ptr::null_mut()),
        }
    }
    /// Dispatches the worker to a team. The caller has claimed it.
    pub fn start(&self, team: *const Team, id: u32) {
        self.team.store(team.cast_mut(), Relaxed);
        self.id.store(id, Relaxed);
        publish(&self.go, self.go.load(Relaxed).wrapping_add(1), &self.sleeping);
    }
    /// Waits until the worker has left the team.
    pub fn join(&self) {
        let left = self.go.load(Relaxed);
        wait_while_equal(
            &self.done.0,
            left.wrapping_sub(1),
            &self.opener_sleeping,
            SPINS.load(Relaxed),
        );
    }
}

fn work(slot: &'static Slot) {
    let mut seen = 0;
    loop {
        wait_while_equal(&slot.go, seen, &slot.sleeping, SPINS.load(Relaxed));
        seen = slot.go.load(Acquire);
        let team = slot.team.load(Relaxed);
        if team.is_null() {
            return;
        }
        let id = slot.id.load(Relaxed);
        STATE.set(ThreadState { team, id, num_threads: 0 });
        // SAFETY: the forking thread keeps the team until this worker is done, and promised that
        // the body may run here.
        unsafe { ((*team).body)(&(id as i32), &0, (*team).captures) };
        STATE.set(SERIAL);
        publish(&slot.done.0, seen, &slot.opener_sleeping);
    }
}

/// Claimed workers, as a bit mask.
#[derive(Clone, Copy)]
pub struct Claimed([u64; WORDS]);

/// No workers.
pub const NONE: Claimed = Claimed([0; WORDS]);

impl Claimed {
    /// Their number.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }
    /// Their slots.
    pub fn iter(&self) -> impl Iterator<Item = &'static Slot> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(&SLOTS[word * 64 + bit])
            })
        })
    }
    /// Marks them idle; all have been joined.
    pub fn release(&self) {
        for (idle, bits) in IDLE.iter().zip(self.0) {
            if bits != 0 {
                idle.0.fetch_or(bits, Release);
            }
        }
    }
}

/// Claims up to `want` idle workers, starting missing ones first.
pub fn claim(want: usize) -> Claimed {
    if (STARTED.load(Acquire) as usize) < want.min(MAX) {
        start();
    }
    let (mut claimed, mut want) = (NONE, want as u32);
    for (idle, claimed) in IDLE.iter().zip(&mut claimed.0) {
        let mut free = idle.0.load(Relaxed);
        while free != 0 && want > 0 {
            let mut rest = free;
            for _ in 0..want.min(64) {
                rest &= rest.wrapping_sub(1);
            }
            match idle.0.compare_exchange_weak(free, rest, Acquire, Relaxed) {
                Ok(_) => {
                    *claimed = free & !rest;
                    want -= claimed.count_ones();
                    break;
                }
                Err(now) => free = now,
            }
        }
    }
    claimed
}

/// Makes forked children start anew.
pub fn handle_forks() {
    static FORK: Once = Once::new();
    FORK.call_once(|| {
        // SAFETY: the handler only stores to atomics, which is async-signal-safe.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Starts workers up to the configured number. If another thread is doing so, or the system
/// refuses, teams are smaller.
fn start() {
    handle_forks();
    if LOCK.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
        return;
    }
    let (have, want) = (STARTED.load(Acquire) as usize, THREADS.load(Acquire) as usize - 1);
    for (i, slot) in SLOTS.iter().enumerate().take(want).skip(have) {
        for word in [&slot.go, &slot.done.0, &slot.sleeping, &slot.opener_sleeping] {
            word.store(0, Relaxed);
        }
        let thread = std::thread::Builder::new().name(format!("kiln-{}", i + 1)).stack_size(STACK);
        let handle = match thread.spawn(move || work(slot)) {
            Ok(handle) => handle,
            Err(e) => {
                tracing::warn!(target: "kiln::pool", started = i, wanted = want, "no further worker thread: {e}");
                break;
            }
        };
        slot.handle.store(Box::into_raw(Box::new(handle)), Release);
        STARTED.store(i as u32 + 1, Release);
        IDLE[i / 64].0.fetch_or(1 << (i % 64), Release);
    }
    LOCK.store(0, Release);
}

/// Stops all workers.
pub fn stop() {
    while LOCK.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
        std::thread::yield_now();
    }
    let count = STARTED.load(Acquire) as usize;
    let mut taken = NONE;
    while (taken.count() as usize) < count {
        for (idle, taken) in IDLE.iter().zip(&mut taken.0) {
            *taken |= idle.0.swap(0, AcqRel);
        }
        std::thread::yield_now();
    }
    for slot in &SLOTS[..count] {
        slot.start(ptr::null(), 0);
        let handle = slot.handle.swap(ptr::null_mut(), AcqRel);
        if !handle.is_null() {
            // SAFETY: it came from Box::into_raw in `start`, and the swap made this thread its only
            // owner.
            let ended = unsafe { Box::from_raw(handle) }.join();
            debug_assert!(ended.is_ok(), "workers do not unwind");
        }
    }
    STARTED.store(0, Release);
    LOCK.store(0, Release);
}

/// A forked child has none of the parent's threads. Their handles are leaked: freeing is not
/// async-signal-safe.
extern "C" fn in_child() {
    super::shared::in_child();
    IDLE.iter().for_each(|w| w.0.store(0, Relaxed));
    SLOTS.iter().for_each(|s| s.handle.store(ptr::null_mut(), Relaxed));
    STARTED.store(0, Relaxed);
    LOCK.store(0, Relaxed);
}
