//! Batches that threads make ahead, taken in their order.
use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Numbered results, made by several threads and taken in order.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// How many.
    count: usize,
    /// How many may be made ahead of the one that is taken next.
    ahead: usize,
}

struct State<T> {
    /// The next to be made, and the next to be taken.
    next: usize,
    taken: usize,
    made: BTreeMap<usize, T>,
    closed: bool,
}

impl<T> Queue<T> {
    pub fn new(count: usize, ahead: usize) -> Queue<T> {
        let state = State { next: 0, taken: 0, made: BTreeMap::new(), closed: false };
        Queue { state: Mutex::new(state), changed: Condvar::new(), count, ahead: ahead.max(1) }
    }
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
    /// The number of the next result to make; waits until there is room. `None`: there are no more.
    pub fn claim(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if state.closed || state.next == self.count {
                return None;
            }
            if state.next < state.taken + self.ahead {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.wait(state);
        }
    }
    /// Adds a result that was claimed.
    pub fn add(&self, number: usize, made: T) {
        self.lock().made.insert(number, made);
        self.changed.notify_all();
    }
    /// The next result in order; waits for it. `None`: there are no more.
    pub fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.closed || state.taken == self.count {
                return None;
            }
            let number = state.taken;
            if let Some(made) = state.made.remove(&number) {
                state.taken += 1;
                self.changed.notify_all();
                return Some(made);
            }
            state = self.wait(state);
        }
    }
    /// Lets all threads end.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    #[test]
    fn results_come_in_order_and_not_too_far_ahead() {
        let (queue, most) = (Arc::new(Queue::new(50, 4)), Arc::new(AtomicUsize::new(0)));
        let taken = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (queue, most, taken) = (queue.clone(), most.clone(), taken.clone());
                thread::spawn(move || {
                    while let Some(i) = queue.claim() {
                        most.fetch_max(i - taken.load(Ordering::SeqCst).min(i), Ordering::SeqCst);
                        queue.add(i, i);
                    }
                })
            })
            .collect();
        for want in 0..50 {
            assert_eq!(queue.take(), Some(want));
            taken.fetch_add(1, Ordering::SeqCst);
        }
        assert_eq!(queue.take(), None);
        threads.into_iter().for_each(|t| t.join().expect("a thread"));
        // A claim may see the count of taken results one behind.
        assert!(most.load(Ordering::SeqCst) <= 5, "{most:?}");
    }

    #[test]
    fn a_closed_queue_ends_who_waits() {
        let queue = Arc::new(Queue::<()>::new(9, 1));
        assert_eq!(queue.claim(), Some(0));
        let waiting = thread::spawn({
            let queue = queue.clone();
            move || (queue.claim(), queue.take())
        });
        queue.close();
        assert_eq!(waiting.join().expect("a thread"), (None, None));
    }
}
