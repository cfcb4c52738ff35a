//! The state of one call: device buffers, pinned chunks, plans. A program has as many as there were
//! concurrent calls, up to [`MAX_STATES`]; further calls wait. A state caches its memory until the
//! program is dropped or another call runs out of memory.
use super::{
    CudaError, Device,
    arguments::Residency,
    control_state::ControlState,
    event::{Event, StreamKey},
    launch::Addresses,
    lru::LruCache,
    memory::DeviceBuffer,
    plan::LaunchPlan,
    staging::Staging,
    stream::Stream,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Concurrent calls of a program, each with a state.
pub const MAX_STATES: usize = 8;
/// Plans, and CUDA graphs, that a state caches.
pub const MAX_PLANS: usize = 16;

/// See the module.
pub struct CallState {
    device: Arc<Device>,
    /// The arena.
    pub arena: DeviceBuffer,
    /// Copies of inputs that kernels cannot read in place.
    pub inputs: Vec<DeviceBuffer>,
    /// Outputs that kernels cannot write in place.
    pub outputs: Vec<DeviceBuffer>,
    /// Pinned memory.
    pub staging: Staging,
    /// Plans and their graphs, an LRU cache.
    pub plans: LruCache<LaunchPlan>,
    /// For control flow.
    pub control_state: ControlState,
    /// Timing events.
    pub events: Vec<Event>,
    /// Addresses known to be in this device's memory.
    pub known_addresses: Vec<u64>,
    /// How inputs and outputs reach the kernels.
    pub residency: (Vec<Residency>, Vec<Residency>),
    /// The addresses that kernels use.
    pub at: Addresses,
    /// Recorded after the last call.
    done: Event,
    /// The stream of the last call.
    last: Option<StreamKey>,
    /// The stream of calls without one of the caller's.
    own_stream: StreamKey,
}

impl CallState {
    fn new(device: &Arc<Device>, inputs: usize, outputs: usize) -> Result<CallState, CudaError> {
        let none = |n: usize| (0..n).map(|_| DeviceBuffer::none(device)).collect::<Vec<_>>();
        Ok(CallState {
            device: device.clone(),
            arena: DeviceBuffer::none(device),
            inputs: none(inputs),
            outputs: none(outputs),
            staging: Staging::new(device),
            plans: LruCache::new(MAX_PLANS),
            control_state: ControlState::default(),
            events: vec![],
            known_addresses: vec![],
            residency: Default::default(),
            at: Addresses::default(),
            done: Event::new(device)?,
            last: None,
            own_stream: StreamKey::query(device, device.new_stream()?)?,
        })
    }
    /// The stream for a call: the caller's, else its own. It is ordered after the state's last
    /// call.
    pub fn begin(&mut self, key: Option<StreamKey>) -> Result<Stream, CudaError> {
        let key = key.unwrap_or(self.own_stream);
        if self.last != Some(key) {
            if !self.device.owns(key.stream)? {
                return Err(CudaError::Stream {
                    reason: "is another GPU's or another context's than the program's",
                });
            }
            if self.last.is_some() {
                self.done.stream_wait(&self.device, key.stream)?;
            }
            self.last = Some(key);
        }
        Ok(key.stream)
    }
    /// Records the event after all that the call enqueued.
    pub fn end(&mut self, stream: Stream) -> Result<(), CudaError> {
        self.staging.close(stream)?;
        self.done.record(&self.device, stream)
    }
}

impl Drop for CallState {
    fn drop(&mut self) {
        // Nothing in use may be freed; after a fault nothing is in use.
        if let Ok(_current) = self.device.enter() {
            let _ = self.done.wait(&self.device);
            self.own_stream.stream.destroy();
        }
    }
}

/// A program's states.
pub struct States {
    device: Arc<Device>,
    inputs: usize,
    outputs: usize,
    all: Mutex<All>,
    returned: Condvar,
}

#[derive(Default)]
struct All {
    free: Vec<CallState>,
    /// States in all, idle or in use.
    total: usize,
}

/// The state that a call gets.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Free(usize),
    New,
    Wait,
}

/// Prefers a state last used on the same stream, then one whose call has completed, then a new one,
/// then one whose call is in flight, which the stream waits for. `over` is queried only where it
/// matters.
fn choose(
    free: &[Option<StreamKey>],
    key: Option<StreamKey>,
    over: impl Fn(usize) -> bool,
    total: usize,
) -> Choice {
    let same = |last: &Option<StreamKey>| key.is_some() && *last == key;
    let found = free.iter().rposition(same).or_else(|| (0..free.len()).rev().find(|i| over(*i)));
    match found {
        Some(i) => Choice::Free(i),
        None if total < MAX_STATES => Choice::New,
        None if !free.is_empty() => Choice::Free(0),
        None => Choice::Wait,
    }
}

impl States {
    /// For a program with that many inputs and outputs.
    pub fn new(device: &Arc<Device>, inputs: usize, outputs: usize) -> States {
        States {
            device: device.clone(),
            inputs,
            outputs,
            all: Mutex::default(),
            returned: Condvar::new(),
        }
    }
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Takes a state for a call on this stream, or on the state's own.
    pub fn acquire(&self, key: Option<StreamKey>) -> Result<CallState, CudaError> {
        let mut all = self.lock();
        loop {
            let last: Vec<Option<StreamKey>> = all.free.iter().map(|s| s.last).collect();
            match choose(&last, key, |i| all.free[i].done.is_complete(), all.total) {
                Choice::Free(i) => return Ok(all.free.remove(i)),
                Choice::Wait => {
                    all = self.returned.wait(all).unwrap_or_else(PoisonError::into_inner)
                }
                Choice::New => {
                    all.total += 1;
                    drop(all);
                    return CallState::new(&self.device, self.inputs, self.outputs)
                        .inspect_err(|_| self.lock().total -= 1);
                }
            }
        }
    }
    /// Returns a state; its work may still be in flight.
    pub fn release(&self, state: CallState) {
        self.lock().free.push(state);
        self.returned.notify_one();
    }
    /// Frees all idle states, after synchronising with them. Returns whether there were any.
    pub fn trim(&self) -> bool {
        let mut all = self.lock();
        let free = std::mem::take(&mut all.free);
        all.total -= free.len();
        drop(all);
        self.returned.notify_all();
        !free.is_empty()
    }
    /// Bytes of arenas and values of idle states.
    pub fn arena_bytes(&self) -> usize {
        self.lock().free.iter().map(|s| s.arena.len() + s.control_state.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_the_state_that_needs_the_least_waiting() {
        let stream = |n: usize| Some(StreamKey { stream: Stream(n as _), id: n as u64 });
        let never = |_: usize| false;
        assert_eq!(choose(&[], stream(3), never, 0), Choice::New);
        assert_eq!(choose(&[stream(4), stream(3)], stream(3), never, 2), Choice::Free(1));
        assert_eq!(choose(&[stream(4), stream(5)], stream(3), |i| i == 0, 2), Choice::Free(0));
        assert_eq!(choose(&[stream(4), stream(5)], stream(3), never, 2), Choice::New);
        assert_eq!(choose(&[stream(4), stream(5)], stream(3), never, MAX_STATES), Choice::Free(0));
        assert_eq!(choose(&[], stream(3), never, MAX_STATES), Choice::Wait);
        // Without a caller's stream, any completed state will do.
        assert_eq!(choose(&[None, stream(5)], None, |i| i == 1, 2), Choice::Free(1));
    }
}
