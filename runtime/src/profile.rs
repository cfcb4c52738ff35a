//! Times of launches on the host. Compiled code calls [`SYMBOL`] before the first launch and after
//! each. The argument array's second word points to the call's [`Profile`]; it is 0 if the call is
//! not profiled, and then the calls do nothing.
use crate::Pool;
use std::{
    ffi::c_void,
    time::{Duration, Instant},
};

/// The hook that compiled code calls: `void f(Profile*, i64 launches_over, i64 tid)`.
pub const SYMBOL: &str = "kiln_launches_over";

/// Completion times of one call's launches.
#[derive(Debug)]
pub struct Profile {
    last: Instant,
    times: Vec<Duration>,
    runs: Vec<usize>,
}

impl Profile {
    /// For a program of that many launches.
    pub fn new(launches: usize) -> Profile {
        Profile {
            last: Instant::now(),
            times: vec![Duration::ZERO; launches],
            runs: vec![1; launches],
        }
    }
    /// Of launches timed elsewhere, such as by CUDA events.
    pub(crate) fn of(times: Vec<Duration>) -> Profile {
        Profile { last: Instant::now(), runs: vec![1; times.len()], times }
    }
    /// For the launches of a control-flow program's parts, none of which has run.
    pub(crate) fn of_parts(launches: usize) -> Profile {
        Profile { runs: vec![0; launches], ..Profile::new(launches) }
    }
    /// Adds a run of a part whose launches begin at `from`.
    pub(crate) fn add(&mut self, from: usize, part: &Profile) {
        for ((time, runs), more) in
            self.times.iter_mut().zip(&mut self.runs).skip(from).zip(&part.times)
        {
            *time += *more;
            *runs += 1;
        }
    }
    /// Runs of each launch: one, or with control flow as many as its program had.
    pub fn runs(&self) -> &[usize] {
        &self.runs
    }
    /// Time of each launch, including the barrier after it, summed over its runs.
    pub fn times(&self) -> &[Duration] {
        &self.times
    }
    fn over(&mut self, launches: usize) {
        let now = Instant::now();
        if let Some(time) = launches.checked_sub(1).and_then(|i| self.times.get_mut(i)) {
            *time = now - self.last;
        }
        self.last = now;
    }
}

/// The hook's name and address, for a linker.
pub fn symbols() -> Vec<(&'static str, *const c_void)> {
    vec![(SYMBOL, launches_over as *const c_void)]
}

/// Ends with a barrier, so that a launch is over on all threads. Only thread 0 writes, and nothing
/// else accesses the profile during a call.
unsafe extern "C" fn launches_over(profile: *mut Profile, launches: i64, tid: i64) {
    if profile.is_null() {
        return;
    }
    Pool::barrier();
    if tid == 0 {
        // SAFETY: the program's caller passes its own profile and waits for the call.
        unsafe { &mut *profile }.over(launches as usize);
    }
}
