//! A few things that were used last.

/// At most `most` things, the one used last at the end.
pub struct Recent<T> {
    most: usize,
    all: Vec<T>,
}

impl<T> Recent<T> {
    /// Nothing yet.
    pub fn new(most: usize) -> Recent<T> {
        Recent { most, all: vec![] }
    }
    /// Makes the one that is looked for the last used one. Whether there is one.
    pub fn find(&mut self, is: impl Fn(&T) -> bool) -> bool {
        let found = self.all.iter().rposition(is);
        found.inspect(|at| self.all[*at..].rotate_left(1)).is_some()
    }
    /// One more, as the last used one; the one that was not used for longest goes if there are too
    /// many.
    pub fn add(&mut self, one: T) {
        if self.all.len() == self.most {
            self.all.remove(0);
        }
        self.all.push(one);
    }
    /// The last used one.
    pub fn last(&mut self) -> Option<&mut T> {
        self.all.last_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut r = Recent::new(3);
        (1..=3).for_each(|i| r.add(i));
        assert!(r.find(|i| *i == 1));
        assert_eq!(r.last(), Some(&mut 1));
        r.add(4);
        assert!(!r.find(|i| *i == 2));
        assert_eq!(r.all, [3, 1, 4]);
        assert!(r.find(|i| *i == 3));
        assert_eq!(r.all, [1, 4, 3]);
    }
}
