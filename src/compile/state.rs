//! Per-function state: the program cache and the history, shared by all calls and the background
//! compiler.
use super::{Remark, Settings, Topic, later::Queue, plan::History, remark, specialise::Entry};
use crate::{
    Error,
    lowering::{Stopped, driver::compile::CompileError},
    runtime::entries::Entries,
    tensor::{Segments, lock},
};
use std::{
    panic::Location,
    sync::{
        Arc, LazyLock, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// State learned from calls.
#[derive(Default)]
pub(super) struct State {
    pub entries: Entries<Entry, History>,
    pub remarks: Mutex<Vec<Remark>>,
    /// Whether the recompilation limit was reported.
    pub warned: AtomicBool,
    /// Whether a compilation was cancelled or timed out; no more are started then.
    pub stopped: AtomicBool,
    /// Calls that ran op by op.
    pub eager: AtomicU64,
    /// Programs of a function with graph breaks.
    pub segments: Mutex<Option<Arc<Segments>>>,
    /// The background compilation queue.
    queue: Mutex<Option<Arc<Queue>>>,
}

/// Maximum number of remarks kept per function.
const REMARKS: usize = 1000;

static FUNCTIONS: LazyLock<Mutex<Vec<Weak<State>>>> = LazyLock::new(Mutex::default);

impl State {
    /// Creates a state, registered for [`reset`].
    pub fn new() -> Arc<State> {
        let state = Arc::new(State::default());
        let mut all = lock(&FUNCTIONS);
        all.retain(|s| s.strong_count() > 0);
        all.push(Arc::downgrade(&state));
        state
    }
    pub fn reset(&self) {
        self.entries.reset();
        lock(&self.remarks).clear();
        *lock(&self.segments) = None;
        self.warned.store(false, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
        self.drop_work();
    }
    fn drop_work(&self) {
        if let Some(queue) = lock(&self.queue).take() {
            queue.drop_work();
        }
    }
    pub fn remark(&self, remark: Remark) {
        remark.tell();
        let mut all = lock(&self.remarks);
        if all.len() < REMARKS {
            all.push(remark);
        }
    }
    /// Records a cancelled compilation: no more are started.
    pub fn stop(&self, function: &str, why: Stopped, place: String) {
        if self.stopped.swap(true, Ordering::Relaxed) {
            return;
        }
        let message = format!(
            "{why}; calls that have no program run op by op from now on. reset() begins anew"
        );
        self.remark(Remark { topic: Topic::CacheLimit, function: function.into(), message, place });
    }
    /// The background compilation queue.
    pub fn queue(
        self: &Arc<State>,
        settings: &Settings,
        place: &Location<'_>,
    ) -> Option<Arc<Queue>> {
        if !settings.is_asynchronous() {
            return None;
        }
        let make = || {
            // The thread may outlive the function.
            let (state, function, place) =
                (Arc::downgrade(self), settings.name.clone(), remark::place(place));
            let tell = move |e: &Error| {
                let Some(state) = state.upgrade() else { return };
                match e {
                    Error::Compile(CompileError::Stopped(why)) => {
                        state.stop(&function, *why, place.clone())
                    }
                    e => {
                        let message =
                            format!("a program was not made, and its calls run op by op: {e}");
                        state.remark(Remark {
                            topic: Topic::Asynchronous,
                            function: function.clone(),
                            message,
                            place: place.clone(),
                        });
                    }
                }
            };
            Queue::new(&settings.machine.stop, Box::new(tell))
        };
        Some(lock(&self.queue).get_or_insert_with(make).clone())
    }
}

/// Cancels queued compilations of a dropped function.
impl Drop for State {
    fn drop(&mut self) {
        self.drop_work();
    }
}

/// Discards all programs of all functions, and all cached single-op programs.
pub fn reset() {
    let all: Vec<Arc<State>> = lock(&FUNCTIONS).iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|s| s.reset());
    crate::tensor::reset();
}
