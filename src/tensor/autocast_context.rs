//! The contexts of [`autocast`](super::autocast()) that a thread is in.
use crate::capture::autocast::Autocast;
use std::cell::RefCell;

thread_local! {
    /// The contexts of this thread, innermost last; `None` disables the outer ones.
    static CONTEXTS: RefCell<Vec<Option<Autocast>>> = const { RefCell::new(vec![]) };
}

/// Leaves a context, also when a function panics.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        CONTEXTS.with_borrow_mut(Vec::pop);
    }
}

/// Calls a function in a context.
pub(super) fn within<R>(context: Option<Autocast>, f: impl FnOnce() -> R) -> R {
    CONTEXTS.with_borrow_mut(|all| all.push(context));
    let _leave = Leave;
    f()
}

/// Whether ops of this thread convert their arguments.
pub(crate) fn is_autocast() -> bool {
    current().is_some()
}

/// The context of this thread.
pub(super) fn current() -> Option<Autocast> {
    CONTEXTS.with_borrow(|all| all.last().copied().flatten())
}
