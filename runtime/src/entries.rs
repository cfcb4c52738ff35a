//! The in-memory compile cache of a function: many readers, one compiling thread.
//!
//! A reader holds the lock only to clone an `Arc`, also while another thread compiles, which takes
//! seconds. If several threads miss on the same key, one compiles and the others wait; hits never
//! wait. The tests run every interleaving of a few threads.
#[cfg(test)]
use shuttle::sync::{Arc, Mutex, RwLock};
use std::sync::PoisonError;
#[cfg(not(test))]
use std::sync::{Arc, Mutex, RwLock};

/// The entries to keep, and the new one, which is appended.
pub type NewEntry<E> = (Vec<Arc<E>>, E);

/// The cache, and the state `H` that only the compiling thread uses.
pub struct Entries<E, H> {
    all: RwLock<Arc<Vec<Arc<E>>>>,
    compiling: Mutex<H>,
}

impl<E, H: Default> Default for Entries<E, H> {
    fn default() -> Self {
        Entries { all: RwLock::new(Arc::new(vec![])), compiling: Mutex::new(H::default()) }
    }
}

impl<E, H: Default> Entries<E, H> {
    /// A snapshot of the entries.
    pub fn all(&self) -> Arc<Vec<Arc<E>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// The first entry that matches.
    pub fn find(&self, fits: impl Fn(&E) -> bool) -> Option<Arc<E>> {
        self.all().iter().find(|e| fits(e)).cloned()
    }
    /// The first entry that matches, looked up under the compile lock. On a miss, `make` returns
    /// the entries to keep and the new one, or `None` for no new one. Err: that of `make`; the cache is
    /// unchanged.
    pub fn find_or_compile<X>(
        &self,
        fits: impl Fn(&E) -> bool,
        make: impl FnOnce(&mut H, &[Arc<E>]) -> Result<Option<NewEntry<E>>, X>,
    ) -> Result<Option<Arc<E>>, X> {
        let mut compiling = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have compiled it meanwhile.
        let before = self.all();
        if let Some(found) = before.iter().find(|e| fits(e)) {
            return Ok(Some(found.clone()));
        }
        let Some((mut kept, new)) = make(&mut compiling, &before)? else { return Ok(None) };
        let new = Arc::new(new);
        kept.push(new.clone());
        self.set(kept);
        Ok(Some(new))
    }
    /// Drops all entries, after a compilation in progress.
    pub fn reset(&self) {
        let mut compiling = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(vec![]);
        *compiling = H::default();
    }
    fn set(&self, all: Vec<Arc<E>>) {
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::{check_dfs, check_random, thread};

    type List = Entries<u32, Vec<u32>>;

    /// An entry for a number; records what was made.
    fn get(e: &List, n: u32) -> Arc<u32> {
        let fits = |have: &u32| *have == n;
        let made = e.find(fits).map_or_else(
            || {
                let make = |history: &mut Vec<u32>, before: &[Arc<u32>]| {
                    history.push(n);
                    thread::yield_now();
                    Ok::<_, ()>(Some((before.to_vec(), n)))
                };
                e.find_or_compile(fits, make)
            },
            |found| Ok(Some(found)),
        );
        made.expect("no error").expect("an entry")
    }

    fn threads(numbers: &'static [u32]) -> impl Fn() + Send + Sync {
        move || {
            let e = Arc::new(List::default());
            let all: Vec<_> = numbers
                .iter()
                .map(|n| {
                    let e = e.clone();
                    thread::spawn(move || get(&e, *n))
                })
                .collect();
            let got: Vec<Arc<u32>> = all.into_iter().map(|t| t.join().expect("no panic")).collect();
            for (have, want) in got.iter().zip(numbers) {
                assert_eq!(**have, *want);
                assert!(
                    e.find(|n| n == want).is_some_and(|found| Arc::ptr_eq(&found, have)),
                    "two entries of {want}"
                );
            }
            let mut distinct: Vec<u32> = numbers.to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(e.all().len(), distinct.len(), "each entry is made once");
        }
    }

    #[test]
    fn two_threads_make_one_entry_in_every_order() {
        check_dfs(threads(&[7, 7]), None);
    }

    #[test]
    fn many_threads_make_each_entry_once() {
        check_random(threads(&[1, 2, 1, 3, 2, 1]), 2000);
    }

    #[test]
    fn a_reset_leaves_nothing_half_made() {
        let run = || {
            let e = Arc::new(List::default());
            let (a, b) = (e.clone(), e.clone());
            let makes = thread::spawn(move || get(&a, 1));
            let resets = thread::spawn(move || b.reset());
            assert_eq!(*makes.join().expect("no panic"), 1);
            resets.join().expect("no panic");
            let history = e.compiling.lock().expect("a lock").clone();
            // The history has all that the cache holds.
            assert_eq!(e.all().iter().map(|n| **n).collect::<Vec<_>>(), history);
        };
        check_dfs(run, None);
    }

    #[test]
    fn an_error_changes_nothing() {
        let run = || {
            let e = List::default();
            get(&e, 1);
            assert_eq!(
                e.find_or_compile(|n| *n == 2, |_, _| Err::<Option<(Vec<_>, u32)>, &str>("no"))
                    .err(),
                Some("no")
            );
            assert_eq!(e.find_or_compile(|n| *n == 2, |_, _| Ok::<_, ()>(None)), Ok(None));
            assert_eq!(e.all().len(), 1);
        };
        check_random(run, 1);
    }
}
