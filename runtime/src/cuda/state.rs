//! What one call at a time uses: memory, pinned pieces, plans. There are as many as calls were
//! under way at once, up to [`MOST`]; further calls wait for one. Each keeps what it has until the
//! program goes, or until another finds no memory.
use super::{
    CudaError, Device,
    arguments::Way,
    control::Between,
    memory::Memory,
    plan::{Addresses, Plan},
    recent::Recent,
    staging::Staging,
    stream::{Event, Lane, Stream},
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Calls of a program that have memory of their own.
pub const MOST: usize = 8;
/// Combinations of sizes that a state knows launches, and graphs, for.
pub const PLANS: usize = 16;

/// See the module.
pub struct State {
    device: Arc<Device>,
    /// Memory between kernels.
    pub arena: Memory,
    /// Copies of arguments that the kernels cannot read where they lie.
    pub inputs: Vec<Memory>,
    /// Results that the kernels cannot write where they belong.
    pub outputs: Vec<Memory>,
    /// Pinned memory.
    pub staging: Staging,
    /// Plans, and their graphs.
    pub plans: Recent<Plan>,
    /// Of a program of programs.
    pub between: Between,
    /// Recorded around launches.
    pub events: Vec<Event>,
    /// Addresses that are known to be this card's.
    pub known: Vec<u64>,
    /// How the call's arguments and results get to and from the kernels, and where these find them.
    pub ways: (Vec<Way>, Vec<Way>),
    /// See `ways`.
    pub at: Addresses,
    /// Behind the last call.
    done: Event,
    /// The stream of the last call.
    last: Option<Lane>,
    /// For calls without a stream of their caller's.
    own: Lane,
}

impl State {
    fn new(device: &Arc<Device>, inputs: usize, outputs: usize) -> Result<State, CudaError> {
        let none = |n: usize| (0..n).map(|_| Memory::none(device)).collect::<Vec<_>>();
        Ok(State {
            device: device.clone(),
            arena: Memory::none(device),
            inputs: none(inputs),
            outputs: none(outputs),
            staging: Staging::new(device),
            plans: Recent::new(PLANS),
            between: Between::default(),
            events: vec![],
            known: vec![],
            ways: Default::default(),
            at: Addresses::default(),
            done: Event::new(device)?,
            last: None,
            own: Lane::of(device, device.new_stream()?)?,
        })
    }
    /// The stream for a call: the caller's if there is one, else its own. Whatever the last call
    /// did comes before on it.
    pub fn begin(&mut self, lane: Option<Lane>) -> Result<Stream, CudaError> {
        let lane = lane.unwrap_or(self.own);
        if self.last != Some(lane) {
            if !self.device.owns(lane.stream)? {
                return Err(CudaError::Stream {
                    reason: "is another GPU's or another context's than the program's",
                });
            }
            if self.last.is_some() {
                self.done.hold(&self.device, lane.stream)?;
            }
            self.last = Some(lane);
        }
        Ok(lane.stream)
    }
    /// A call has given the stream all that it has.
    pub fn end(&mut self, stream: Stream) -> Result<(), CudaError> {
        self.staging.close(stream)?;
        self.done.record(&self.device, stream)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Nothing may be freed that is in use; after a fault nothing is.
        if let Ok(_current) = self.device.enter() {
            let _ = self.done.wait(&self.device);
            self.own.stream.destroy();
        }
    }
}

/// The states of a program.
pub struct States {
    device: Arc<Device>,
    inputs: usize,
    outputs: usize,
    all: Mutex<All>,
    given: Condvar,
}

#[derive(Default)]
struct All {
    free: Vec<State>,
    /// How many there are, with those that calls have.
    made: usize,
}

/// What a call gets.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Free(usize),
    New,
    Wait,
}

/// One that was last used on the same stream needs no waiting; then one whose call is over; then a
/// new one; then one whose call is under way, which the stream waits for. `over` is asked only
/// where it matters.
fn choose(
    free: &[Option<Lane>],
    lane: Option<Lane>,
    over: impl Fn(usize) -> bool,
    made: usize,
) -> Choice {
    let same = |last: &Option<Lane>| lane.is_some() && *last == lane;
    let found = free.iter().rposition(same).or_else(|| (0..free.len()).rev().find(|i| over(*i)));
    match found {
        Some(i) => Choice::Free(i),
        None if made < MOST => Choice::New,
        None if !free.is_empty() => Choice::Free(0),
        None => Choice::Wait,
    }
}

impl States {
    /// Of a program with so many arguments and results.
    pub fn new(device: &Arc<Device>, inputs: usize, outputs: usize) -> States {
        States {
            device: device.clone(),
            inputs,
            outputs,
            all: Mutex::default(),
            given: Condvar::new(),
        }
    }
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// One for a call on this stream, or on its own.
    pub fn take(&self, lane: Option<Lane>) -> Result<State, CudaError> {
        let mut all = self.lock();
        loop {
            let last: Vec<Option<Lane>> = all.free.iter().map(|s| s.last).collect();
            match choose(&last, lane, |i| all.free[i].done.over(), all.made) {
                Choice::Free(i) => return Ok(all.free.remove(i)),
                Choice::Wait => all = self.given.wait(all).unwrap_or_else(PoisonError::into_inner),
                Choice::New => {
                    all.made += 1;
                    drop(all);
                    return State::new(&self.device, self.inputs, self.outputs)
                        .inspect_err(|_| self.lock().made -= 1);
                }
            }
        }
    }
    /// The call is over as far as the host is concerned.
    pub fn give(&self, state: State) {
        self.lock().free.push(state);
        self.given.notify_one();
    }
    /// Frees all that no call has, after waiting for what they did. Whether there were any.
    pub fn trim(&self) -> bool {
        let mut all = self.lock();
        let free = std::mem::take(&mut all.free);
        all.made -= free.len();
        drop(all);
        self.given.notify_all();
        !free.is_empty()
    }
    /// Bytes of memory between kernels, and between programs, of states that no call has.
    pub fn arena_bytes(&self) -> usize {
        self.lock().free.iter().map(|s| s.arena.len() + s.between.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_the_state_that_needs_the_least_waiting() {
        let stream = |n: usize| Some(Lane { stream: Stream(n as _), id: n as u64 });
        let never = |_: usize| false;
        assert_eq!(choose(&[], stream(3), never, 0), Choice::New);
        assert_eq!(choose(&[stream(4), stream(3)], stream(3), never, 2), Choice::Free(1));
        assert_eq!(choose(&[stream(4), stream(5)], stream(3), |i| i == 0, 2), Choice::Free(0));
        assert_eq!(choose(&[stream(4), stream(5)], stream(3), never, 2), Choice::New);
        assert_eq!(choose(&[stream(4), stream(5)], stream(3), never, MOST), Choice::Free(0));
        assert_eq!(choose(&[], stream(3), never, MOST), Choice::Wait);
        // Without a stream of the caller's any that is over will do.
        assert_eq!(choose(&[None, stream(5)], None, |i| i == 1, 2), Choice::Free(1));
    }
}
