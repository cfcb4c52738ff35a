//! Waiting: spin, then sleep on a futex.
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Loads before the first pause instruction: a barrier between busy threads takes less than one
/// pause.
const EAGER_SPINS: u32 = 64;

/// Waits until `word` is not `old`. `sleepers` tells the other side to call futex wake.
#[inline]
pub fn wait_while_equal(word: &AtomicU32, old: u32, sleepers: &AtomicU32, spins: u32) {
    for _ in 0..EAGER_SPINS {
        if word.load(Acquire) != old {
            return;
        }
    }
    for _ in 0..spins {
        if word.load(Acquire) != old {
            return;
        }
        std::hint::spin_loop();
    }
    // Increment, then load again; `publish` stores, then loads `sleepers`. All four are SeqCst, so
    // at least one side sees the other.
    sleepers.fetch_add(1, SeqCst);
    while word.load(SeqCst) == old {
        sleep(word, old);
    }
    sleepers.fetch_sub(1, SeqCst);
}

/// Stores a new value and wakes the threads that wait on the old one.
#[inline]
pub fn publish(word: &AtomicU32, value: u32, sleepers: &AtomicU32) {
    word.store(value, SeqCst);
    if sleepers.load(SeqCst) != 0 {
        wake(word);
    }
}

#[cfg(target_os = "linux")]
fn sleep(word: &AtomicU32, old: u32) {
    // SAFETY: the word outlives the call, and the kernel compares it with `old` before it sleeps.
    unsafe {
        let forever = std::ptr::null::<libc::timespec>();
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            old,
            forever,
        );
    }
}

#[cfg(target_os = "linux")]
fn wake(word: &AtomicU32) {
    // SAFETY: a wake only looks the address up; nothing is read through it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        );
    }
}

#[cfg(not(target_os = "linux"))]
fn sleep(_: &AtomicU32, _: u32) {
    std::thread::yield_now();
}

#[cfg(not(target_os = "linux"))]
fn wake(_: &AtomicU32) {}
