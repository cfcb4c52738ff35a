//! The `__kmpc_*` entry points that MLIR's translation of the omp dialect calls. Kernels call none
//! of them; host functions call those of `omp.parallel` and `omp.barrier`. The others support
//! work-sharing loops.
use super::{Body, STATE, ThreadState, barrier, region, thread_and_size};
use std::ffi::c_void;

/// Names and addresses, for a linker.
pub fn symbols() -> Vec<(&'static str, *const c_void)> {
    vec![
        ("__kmpc_global_thread_num", global_thread_num as *const c_void),
        ("__kmpc_push_num_threads", push_num_threads as *const c_void),
        ("__kmpc_fork_call", fork_call as *const c_void),
        ("__kmpc_fork_call_if", fork_call_if as *const c_void),
        ("__kmpc_barrier", explicit_barrier as *const c_void),
        ("__kmpc_single", single as *const c_void),
        ("__kmpc_end_single", nothing as *const c_void),
        ("__kmpc_for_static_init_4u", for_static_init_4u as *const c_void),
        ("__kmpc_for_static_init_8u", for_static_init_8u as *const c_void),
        ("__kmpc_for_static_fini", nothing as *const c_void),
        ("omp_get_thread_num", get_thread_num as *const c_void),
        ("omp_get_num_threads", get_num_threads as *const c_void),
    ]
}

extern "C" fn global_thread_num(_ident: *const c_void) -> i32 {
    thread_and_size().0 as i32
}

extern "C" fn push_num_threads(_ident: *const c_void, _gtid: i32, n: i32) {
    STATE.set(ThreadState { num_threads: n.max(0) as u32, ..STATE.get() });
}

/// Variadic in C. MLIR passes at most one argument, a pointer to all captures; on x86-64 and
/// AArch64 Linux it is in the register of a fourth fixed parameter.
unsafe extern "C" fn fork_call(
    _ident: *const c_void,
    _argc: i32,
    body: Body,
    captures: *mut c_void,
) {
    // SAFETY: the translation outlines a body that takes this pointer and may run on any thread.
    unsafe { region(body, captures, true) }
}

unsafe extern "C" fn fork_call_if(
    _ident: *const c_void,
    _argc: i32,
    body: Body,
    condition: i32,
    captures: *mut c_void,
) {
    // SAFETY: as in `fork_call`.
    unsafe { region(body, captures, condition != 0) }
}

extern "C" fn explicit_barrier(_ident: *const c_void, _gtid: i32) {
    barrier()
}

extern "C" fn single(_ident: *const c_void, _gtid: i32) -> i32 {
    (thread_and_size().0 == 0) as i32
}

extern "C" fn nothing(_ident: *const c_void, _gtid: i32) {}

extern "C" fn get_thread_num() -> i32 {
    thread_and_size().0 as i32
}

extern "C" fn get_num_threads() -> i32 {
    thread_and_size().1 as i32
}

/// `schedule(static, chunk)` (`kmp_sch_static_chunked`); every other schedule gets balanced chunks.
const STATIC_CHUNKED: i32 = 33;

macro_rules! static_init {
    ($name:ident, $t:ty) => {
        /// MLIR passes lb 0, ub = trip count - 1 (which wraps for 0) and step 1, and runs `ub - lb
        /// + 1` iterations without comparing the two.
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $name(
            _ident: *const c_void,
            _gtid: i32,
            schedule: i32,
            last: *mut i32,
            lb: *mut $t,
            ub: *mut $t,
            stride: *mut $t,
            step: $t,
            chunk: $t,
        ) {
            let (id, size) = thread_and_size();
            let (id, size) = (id as $t, size as $t);
            // SAFETY: the translation passes pointers to four locals of the calling function.
            let (last, lb, ub, stride) = unsafe { (&mut *last, &mut *lb, &mut *ub, &mut *stride) };
            let trips = ub.wrapping_sub(*lb).wrapping_add(1);
            if schedule == STATIC_CHUNKED && chunk > 0 {
                // The caller clamps the upper bound and advances by the stride.
                *stride = chunk.wrapping_mul(size).wrapping_mul(step);
                *lb = lb.wrapping_add(id.wrapping_mul(chunk));
                *ub = lb.wrapping_add(chunk - 1);
                *last = (trips != 0 && (trips - 1) / chunk % size == id) as i32;
                return;
            }
            *stride = trips;
            if id >= trips {
                // Empty by either test: lb > ub, and ub - lb + 1 == 0.
                (*last, *lb, *ub) = (0, 1, 0);
                return;
            }
            let (each, more) = (trips / size, trips % size);
            *lb = lb.wrapping_add(id * each + id.min(more));
            *ub = lb.wrapping_add(each - (id >= more) as $t);
            *last = (id == size - 1 || (each == 0 && id + 1 == trips)) as i32;
        }
    };
}
static_init!(for_static_init_4u, u32);
static_init!(for_static_init_8u, u64);

#[cfg(test)]
mod tests {
    use super::super::{Pool, tests::serially};
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::*};

    #[test]
    fn static_loops_run_every_index_once() {
        let _one = serially();
        for threads in 1..=4 {
            Pool::configure(threads);
            for trips in 0..40u64 {
                for (schedule, chunk) in [(34, 0), (STATIC_CHUNKED, 4)] {
                    let hits: Vec<AtomicU32> = (0..trips).map(|_| AtomicU32::new(0)).collect();
                    let lasts = AtomicU32::new(0);
                    Pool::run(|_, _| {
                        let (mut last, mut lb, mut ub, mut stride) =
                            (0, 0, trips.wrapping_sub(1), 1);
                        let null = std::ptr::null();
                        // SAFETY: pointers to live variables.
                        unsafe {
                            for_static_init_8u(
                                null,
                                0,
                                schedule,
                                &mut last,
                                &mut lb,
                                &mut ub,
                                &mut stride,
                                1,
                                chunk,
                            )
                        };
                        lasts.fetch_add(last as u32, Relaxed);
                        if schedule == 34 {
                            (0..ub.wrapping_sub(lb).wrapping_add(1)).for_each(|i| {
                                hits[(lb + i) as usize].fetch_add(1, Relaxed);
                            });
                        } else {
                            while lb < trips {
                                (lb..=ub.min(trips - 1)).for_each(|i| {
                                    hits[i as usize].fetch_add(1, Relaxed);
                                });
                                (lb, ub) = (lb + stride, ub + stride);
                            }
                        }
                    });
                    assert!(
                        hits.iter().all(|h| h.load(Relaxed) == 1),
                        "{threads} threads, {trips} trips, chunk {chunk}: {hits:?}"
                    );
                    assert_eq!(
                        lasts.load(Relaxed),
                        (trips > 0) as u32,
                        "{threads} threads, {trips} trips, chunk {chunk}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_request_for_threads_is_good_for_one_region() {
        let _one = serially();
        Pool::configure(3);
        let sizes = || {
            let seen = AtomicU32::new(0);
            Pool::run(|_, size| seen.store(size as u32, Relaxed));
            seen.load(Relaxed)
        };
        push_num_threads(std::ptr::null(), 0, 2);
        assert_eq!((sizes(), sizes()), (2, 3));
        push_num_threads(std::ptr::null(), 0, 100);
        assert_eq!(sizes(), 3, "no more than configured");
    }
}
