//! Times of single launches. Compiled code calls [`SYMBOL`] before the first launch and behind
//! every one; the argument array's second word is the call's [`Profile`], or 0 if it has none, and
//! then nothing happens.
use crate::Pool;
use std::{
    ffi::c_void,
    time::{Duration, Instant},
};

/// The function that compiled code calls: `void f(Profile*, i64 launches_over, i64 tid)`.
pub const SYMBOL: &str = "kiln_launches_over";

/// When each launch of one call was over.
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
    /// Of launches that were timed elsewhere.
    pub(crate) fn of(times: Vec<Duration>) -> Profile {
        Profile { last: Instant::now(), runs: vec![1; times.len()], times }
    }
    /// For the launches of programs that control flow calls, none of which has run.
    pub(crate) fn of_parts(launches: usize) -> Profile {
        Profile { runs: vec![0; launches], ..Profile::new(launches) }
    }
    /// A part has run, whose launches these are from there on.
    pub(crate) fn add(&mut self, from: usize, part: &Profile) {
        for ((time, runs), more) in
            self.times.iter_mut().zip(&mut self.runs).skip(from).zip(&part.times)
        {
            *time += *more;
            *runs += 1;
        }
    }
    /// How often each launch ran: once, or in control flow as often as its program was called.
    pub fn runs(&self) -> &[usize] {
        &self.runs
    }
    /// The time of each launch, with the barrier behind it; of all its runs.
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

/// The name and the address for a linker.
pub fn symbols() -> Vec<(&'static str, *const c_void)> {
    vec![(SYMBOL, launches_over as *const c_void)]
}

/// The threads of a team meet first, so that a launch is over on all of them. Only the first one
/// writes, and nobody else holds the profile during a call.
unsafe extern "C" fn launches_over(profile: *mut Profile, launches: i64, tid: i64) {
    if profile.is_null() {
        return;
    }
    Pool::barrier();
    if tid == 0 {
        // SAFETY: the caller of the program passes its own profile and waits for the call.
        unsafe { &mut *profile }.over(launches as usize);
    }
}
