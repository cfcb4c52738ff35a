//! Cancelling a compilation: from another thread, or by a time budget.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Cancellation token, shared by its clones. It is polled before every pass and every kernel, so
/// the latency is at most one kernel's code generation.
#[derive(Clone, Debug, Default)]
pub struct CancellationToken {
    cancelled: Arc<AtomicBool>,
    /// The cancellation flag of the parent token.
    parent: Option<Arc<AtomicBool>>,
    deadline: Option<Instant>,
}

/// Why a compilation ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CancellationError {
    /// [`CancellationToken::cancel`] was called.
    #[error("the compilation was cancelled")]
    Cancelled,
    /// The time budget of [`CancellationToken::with_timeout`] is used up.
    #[error("the compilation took longer than its time budget")]
    TimedOut,
}

impl CancellationToken {
    /// A token that is not cancelled.
    pub fn new() -> CancellationToken {
        CancellationToken::default()
    }
    /// Cancels the compilations that have this token or a clone of it, including those that start
    /// later.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
    /// The same token with a time budget that starts now.
    pub fn with_timeout(&self, time: Duration) -> CancellationToken {
        CancellationToken { deadline: Instant::now().checked_add(time), ..self.clone() }
    }
    /// A child token: cancelled with this one, or on its own. A child's child has the same parent.
    pub fn child(&self) -> CancellationToken {
        CancellationToken {
            cancelled: Arc::default(),
            parent: Some(self.parent.clone().unwrap_or_else(|| self.cancelled.clone())),
            deadline: self.deadline,
        }
    }
    /// Err: the compilation has to end.
    pub fn check(&self) -> Result<(), CancellationError> {
        match self.deadline {
            _ if self.cancelled.load(Ordering::Relaxed) => Err(CancellationError::Cancelled),
            _ if self.parent.as_ref().is_some_and(|p| p.load(Ordering::Relaxed)) => {
                Err(CancellationError::Cancelled)
            }
            Some(deadline) if Instant::now() >= deadline => Err(CancellationError::TimedOut),
            _ => Ok(()),
        }
    }
}
