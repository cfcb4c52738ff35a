//! Ending a compilation before it is done: from another thread, or when its time is over.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A wish that a compilation end early. Clones share it. It is heard before every pass and every
/// kernel, so what ends late ends by one kernel's code generation.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    /// That of whoever it belongs to.
    parent: Option<Arc<AtomicBool>>,
    until: Option<Instant>,
}

/// Why a compilation ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// [`Stop::cancel`] was called.
    #[error("the compilation was cancelled")]
    Cancelled,
    /// [`Stop::within`] is over.
    #[error("the compilation took longer than its time budget")]
    Late,
}

impl Stop {
    /// One that nobody has asked for yet.
    pub fn new() -> Stop {
        Stop::default()
    }
    /// Ends the compilations that were given this, or a clone of it; those that start later, too.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
    /// The same, which also ends what is not done in this time from now on.
    pub fn within(&self, time: Duration) -> Stop {
        Stop { until: Instant::now().checked_add(time), ..self.clone() }
    }
    /// One that ends with this one, and may end alone. Of one that has a parent, it is that one's
    /// child.
    pub fn child(&self) -> Stop {
        Stop {
            cancelled: Arc::default(),
            parent: Some(self.parent.clone().unwrap_or_else(|| self.cancelled.clone())),
            until: self.until,
        }
    }
    /// Err: it is time to end.
    pub fn check(&self) -> Result<(), Stopped> {
        match self.until {
            _ if self.cancelled.load(Ordering::Relaxed) => Err(Stopped::Cancelled),
            _ if self.parent.as_ref().is_some_and(|p| p.load(Ordering::Relaxed)) => {
                Err(Stopped::Cancelled)
            }
            Some(until) if Instant::now() >= until => Err(Stopped::Late),
            _ => Ok(()),
        }
    }
}
