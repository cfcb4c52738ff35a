//! What a function has learned from calls, shared by all of these and by the thread that compiles
//! for it.
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

/// What is learned from calls.
#[derive(Default)]
pub(super) struct State {
    pub entries: Entries<Entry, History>,
    pub remarks: Mutex<Vec<Remark>>,
    /// Whether the limit has been told.
    pub warned: AtomicBool,
    /// Whether a compilation was ended early, so that no more are begun.
    pub stopped: AtomicBool,
    /// Calls that ran op by op.
    pub eager: AtomicU64,
    /// Programs of a function that reads values.
    pub segments: Mutex<Option<Arc<Segments>>>,
    /// What another thread makes.
    queue: Mutex<Option<Arc<Queue>>>,
}

/// How many remarks of a function are kept.
const REMARKS: usize = 1000;

static FUNCTIONS: LazyLock<Mutex<Vec<Weak<State>>>> = LazyLock::new(Mutex::default);

impl State {
    /// One that [`reset`] knows.
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
    /// A compilation has been ended: no more are begun.
    pub fn stop(&self, function: &str, why: Stopped, place: String) {
        if self.stopped.swap(true, Ordering::Relaxed) {
            return;
        }
        let message = format!(
            "{why}; calls that have no program run op by op from now on. reset() begins anew"
        );
        self.remark(Remark { topic: Topic::CacheLimit, function: function.into(), message, place });
    }
    /// Where another thread makes programs.
    pub fn queue(
        self: &Arc<State>,
        settings: &Settings,
        place: &Location<'_>,
    ) -> Option<Arc<Queue>> {
        if !settings.is_asynchronous() {
            return None;
        }
        let make = || {
            // The thread may be at work when nobody has the function any more.
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

/// What is being made for a function that nobody has any more is not made.
impl Drop for State {
    fn drop(&mut self) {
        self.drop_work();
    }
}

/// Forgets all programs of all functions, and all ops that have run at once.
pub fn reset() {
    let all: Vec<Arc<State>> = lock(&FUNCTIONS).iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|s| s.reset());
    crate::tensor::reset();
}
