//! The pool is per process, so tests that count its threads are serialised.
use super::*;
use std::sync::{Mutex, MutexGuard, atomic::AtomicUsize};

pub fn serially() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn team() -> usize {
    let count = AtomicUsize::new(0);
    Pool::run(|id, size| {
        assert!(id < size);
        count.fetch_add(1, Relaxed);
    });
    count.load(Relaxed)
}

#[test]
fn teams_have_the_configured_size() {
    let _one = serially();
    for threads in [1, 2, 4, 3, 1, 2] {
        Pool::configure(threads);
        for _ in 0..200 {
            assert_eq!(team(), threads);
        }
    }
    Pool::configure(0);
    assert_eq!((Pool::threads(), team()), (1, 1));
}

#[test]
fn more_than_one_word_of_workers() {
    let _one = serially();
    Pool::configure(70);
    assert_eq!(team(), 70);
    Pool::shutdown();
    Pool::configure(2);
    assert_eq!(team(), 2);
}

#[test]
fn barriers_order_phases() {
    let _one = serially();
    for threads in 1..=4 {
        for spins in [0, DEFAULT_SPINS] {
            Pool::set_spins(spins);
            Pool::configure(threads);
            let slots: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            Pool::run(|id, size| {
                for round in 1..=300 {
                    slots[id].store(round, Relaxed);
                    Pool::barrier();
                    assert!(slots[..size].iter().all(|s| s.load(Relaxed) == round));
                    Pool::barrier();
                }
            });
        }
    }
    Pool::set_spins(DEFAULT_SPINS);
}

#[test]
fn inner_regions_run_alone() {
    let _one = serially();
    Pool::configure(3);
    let count = AtomicUsize::new(0);
    Pool::run(|_, _| {
        let outer = thread_and_size();
        Pool::run(|id, size| {
            assert_eq!((id, size), (0, 1));
            Pool::barrier();
            count.fetch_add(1, Relaxed);
        });
        assert_eq!(thread_and_size(), outer);
    });
    assert_eq!(count.load(Relaxed), 3);
    assert_eq!(thread_and_size(), (0, 1));
}

#[test]
fn application_threads_share_the_workers() {
    let _one = serially();
    Pool::configure(4);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for round in 0..300 {
                    let data: Vec<AtomicUsize> = (0..64).map(|_| AtomicUsize::new(0)).collect();
                    Pool::run(|id, size| {
                        data.iter().skip(id).step_by(size).for_each(|d| {
                            d.fetch_add(round, Relaxed);
                        });
                        Pool::barrier();
                        assert!(data.iter().all(|d| d.load(Relaxed) == round));
                    });
                }
            });
        }
    });
}

#[test]
fn shutdown_is_not_the_end() {
    let _one = serially();
    Pool::configure(3);
    assert_eq!(team(), 3);
    Pool::run(|_, _| Pool::shutdown());
    Pool::shutdown();
    Pool::shutdown();
    assert_eq!(team(), 3);
}

#[test]
#[cfg(target_os = "linux")]
fn a_forked_child_has_its_own_workers() {
    let _one = serially();
    Pool::configure(3);
    assert_eq!(team(), 3);
    assert!(in_a_child(|| team() == 3));
    assert_eq!(team(), 3);
}

/// Whether `holds` does in a forked child.
#[cfg(target_os = "linux")]
fn in_a_child(holds: impl Fn() -> bool) -> bool {
    // SAFETY: the child calls nothing that another thread of the parent could hold locked, and
    // leaves by _exit.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(if holds() { 42 } else { 1 });
        }
        let mut status = 0;
        libc::waitpid(pid, &mut status, 0);
        libc::WEXITSTATUS(status) == 42
    }
}

/// An OpenMP runtime of plain threads, which gives one thread fewer than asked for.
unsafe extern "C" fn parallel(
    body: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
    threads: u32,
    _flags: u32,
) {
    TEAM.with(|t| t.set((0, threads as i32 - 1)));
    let data = data as usize;
    std::thread::scope(|scope| {
        for id in 1..threads as i32 - 1 {
            scope.spawn(move || {
                TEAM.with(|t| t.set((id, threads as i32 - 1)));
                // SAFETY: the test's region may run on any thread.
                unsafe { body(data as *mut c_void) }
            });
        }
        // SAFETY: as above.
        unsafe { body(data as *mut c_void) }
    });
}

thread_local! { static TEAM: Cell<(i32, i32)> = const { Cell::new((0, 1)) }; }

extern "C" fn thread_num() -> i32 {
    TEAM.get().0
}

extern "C" fn num_threads() -> i32 {
    TEAM.get().1
}

#[test]
fn regions_run_on_the_threads_of_another_runtime() {
    let _one = serially();
    Pool::configure(4);
    assert!(shared());
    let slots: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
    Pool::run(|id, size| {
        assert_eq!(size, 3);
        for round in 1..=100 {
            slots[id].store(round, Relaxed);
            Pool::barrier();
            assert!(slots.iter().all(|s| s.load(Relaxed) == round));
            Pool::barrier();
        }
    });
    assert!(slots.iter().all(|s| s.load(Relaxed) == 100));
    assert_eq!(thread_and_size(), (0, 1));
    assert!(!unshared());
    assert_eq!(team(), 4);
}

fn shared() -> bool {
    // SAFETY: the functions are of one runtime, the one above.
    unsafe { Pool::share(Some(OpenMp { parallel, thread_num, num_threads })) }
}

fn unshared() -> bool {
    // SAFETY: the pool's own workers.
    unsafe { Pool::share(None) }
}

#[test]
#[cfg(target_os = "linux")]
fn a_forked_child_shares_no_threads() {
    let _one = serially();
    Pool::configure(4);
    assert!(shared());
    assert!(in_a_child(|| team() == 4 && !shared() && team() == 4));
    assert_eq!(team(), 3);
    unshared();
}

/// Prints median times in nanoseconds; run it in a release build.
#[test]
#[ignore = "measures"]
fn cost_of_a_region() {
    let _one = serially();
    let median = |f: &dyn Fn()| {
        let once = || {
            let start = std::time::Instant::now();
            (0..2000).for_each(|_| f());
            start.elapsed().as_nanos() as f64 / 2000.0
        };
        let mut all: Vec<f64> = std::iter::repeat_with(once).take(21).collect();
        all.sort_by(f64::total_cmp);
        all[10]
    };
    for threads in [1, 2] {
        Pool::configure(threads);
        let region = median(&|| Pool::run(|_, _| ()));
        let barriers = median(&|| Pool::run(|_, _| (0..100).for_each(|_| Pool::barrier())));
        println!(
            "{threads} threads: region {region:.0} ns, barrier {:.0} ns",
            (barriers - region) / 100.0
        );
    }
    let asleep = || {
        std::thread::sleep(std::time::Duration::from_millis(2));
        let start = std::time::Instant::now();
        Pool::run(|_, _| ());
        start.elapsed().as_nanos()
    };
    let mut all: Vec<u128> = std::iter::repeat_with(asleep).take(101).collect();
    all.sort_unstable();
    println!("2 threads: region after 2 ms of sleep {} ns", all[50]);
}
