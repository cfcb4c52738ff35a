//! Per-function state: the program cache and the history, shared by all calls and the background
//! compiler.
use super::{
    Remark, Settings, Topic, background::CompileQueue, entry::Entry, remark,
    specialisation::History,
};
use crate::{
    Error,
    lowering::{CancellationError, driver::compile::CompileError},
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
pub(super) struct FunctionState {
    pub entries: Entries<Entry, History>,
    pub remarks: Mutex<Vec<Remark>>,
    /// Whether the recompilation limit was reported.
    pub warned: AtomicBool,
    /// Whether a compilation was cancelled or timed out; no more are started then.
    pub cancelled: AtomicBool,
    /// Calls that ran op by op.
    pub eager: AtomicU64,
    /// Programs of a function with graph breaks.
    pub segments: Mutex<Option<Arc<Segments>>>,
    /// The background compilation queue.
    queue: Mutex<Option<Arc<CompileQueue>>>,
}

/// Maximum number of remarks kept per function.
const REMARKS: usize = 1000;

static FUNCTIONS: LazyLock<Mutex<Vec<Weak<FunctionState>>>> = LazyLock::new(Mutex::default);

impl FunctionState {
    /// Creates a state, registered for [`reset`].
    pub fn new() -> Arc<FunctionState> {
        let state = Arc::new(FunctionState::default());
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
        self.cancelled.store(false, Ordering::Relaxed);
        self.cancel_all();
    }
    fn cancel_all(&self) {
        if let Some(queue) = lock(&self.queue).take() {
            queue.cancel_all();
        }
    }
    pub fn remark(&self, remark: Remark) {
        remark.emit();
        let mut all = lock(&self.remarks);
        if all.len() < REMARKS {
            all.push(remark);
        }
    }
    /// Records a cancelled compilation: no more are started.
    pub fn record_cancellation(&self, function: &str, why: CancellationError, location: String) {
        if self.cancelled.swap(true, Ordering::Relaxed) {
            return;
        }
        let message = format!(
            "{why}; calls that have no program run op by op from now on. reset() begins anew"
        );
        self.remark(Remark {
            topic: Topic::CacheLimit,
            function: function.into(),
            message,
            location,
        });
    }
    /// The background compilation queue.
    pub fn queue(
        self: &Arc<FunctionState>,
        settings: &Settings,
        location: &Location<'_>,
    ) -> Option<Arc<CompileQueue>> {
        if !settings.is_asynchronous() {
            return None;
        }
        let make = || {
            // The thread may outlive the function.
            let (state, function, location) =
                (Arc::downgrade(self), settings.name.clone(), remark::location(location));
            let on_failure = move |e: &Error| {
                let Some(state) = state.upgrade() else { return };
                match e {
                    Error::Compile(CompileError::Cancelled(why)) => {
                        state.record_cancellation(&function, *why, location.clone())
                    }
                    e => {
                        let message =
                            format!("a program was not made, and its calls run op by op: {e}");
                        state.remark(Remark {
                            topic: Topic::Asynchronous,
                            function: function.clone(),
                            message,
                            location: location.clone(),
                        });
                    }
                }
            };
            CompileQueue::new(&settings.options.cancellation, Box::new(on_failure))
        };
        Some(lock(&self.queue).get_or_insert_with(make).clone())
    }
}

/// Cancels queued compilations of a dropped function.
impl Drop for FunctionState {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

/// Discards all programs of all functions, and all cached single-op programs.
pub fn reset() {
    let all: Vec<Arc<FunctionState>> = lock(&FUNCTIONS).iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|s| s.reset());
    crate::tensor::reset();
}
