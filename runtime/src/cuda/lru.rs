//! A small LRU cache.

/// At most `most` entries, the most recently used at the end.
pub struct LruCache<T> {
    capacity: usize,
    all: Vec<T>,
}

impl<T> LruCache<T> {
    /// An empty cache.
    pub fn new(most: usize) -> LruCache<T> {
        LruCache { capacity: most, all: vec![] }
    }
    /// Marks the first match as most recently used. Returns whether there is one.
    pub fn find(&mut self, is: impl Fn(&T) -> bool) -> bool {
        let found = self.all.iter().rposition(is);
        found.inspect(|at| self.all[*at..].rotate_left(1)).is_some()
    }
    /// Inserts an entry as most recently used. Evicts the least recently used one if the cache is
    /// full.
    pub fn add(&mut self, one: T) {
        if self.all.len() == self.capacity {
            self.all.remove(0);
        }
        self.all.push(one);
    }
    /// Drops all entries.
    pub fn clear(&mut self) {
        self.all.clear();
    }
    /// The most recently used entry.
    pub fn last(&mut self) -> Option<&mut T> {
        self.all.last_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut r = LruCache::new(3);
        (1..=3).for_each(|i| r.add(i));
        assert!(r.find(|i| *i == 1));
        assert_eq!(r.last(), Some(&mut 1));
        r.add(4);
        assert!(!r.find(|i| *i == 2));
        assert_eq!(r.all, [3, 1, 4]);
        assert!(r.find(|i| *i == 3));
        assert_eq!(r.all, [1, 4, 3]);
        r.clear();
        assert_eq!(r.last(), None);
    }
}
