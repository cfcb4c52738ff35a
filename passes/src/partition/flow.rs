//! Minimum cuts: Dinic's algorithm for maximum flows (1970).
use std::collections::VecDeque;

/// More than all bytes of a program.
pub(super) const INFINITE: u64 = u64::MAX / 4;

struct Edge {
    to: usize,
    /// What the edge can take yet.
    left: u64,
}

/// A network; edge `i ^ 1` is the reverse of edge `i`.
pub(super) struct Network {
    edges: Vec<Edge>,
    from: Vec<Vec<usize>>,
}

impl Network {
    pub(super) fn new() -> Network {
        Network { edges: vec![], from: vec![] }
    }
    pub(super) fn node(&mut self) -> usize {
        self.from.push(vec![]);
        self.from.len() - 1
    }
    pub(super) fn edge(&mut self, from: usize, to: usize, capacity: u64) {
        for (from, to, left) in [(from, to, capacity), (to, from, 0)] {
            self.from[from].push(self.edges.len());
            self.edges.push(Edge { to, left });
        }
    }

    /// The nodes after the minimum cut that is nearest to the sink. Err: nothing separates the two.
    pub(super) fn cut(mut self, source: usize, sink: usize) -> Result<Vec<bool>, &'static str> {
        let mut flow = 0u64;
        while let Some(levels) = self.levels(source, sink) {
            let mut next = vec![0; self.from.len()];
            while let Some(more) = self.augment(source, sink, &levels, &mut next) {
                flow = flow.saturating_add(more);
                if flow >= INFINITE {
                    return Err("needs a value that can neither be saved nor recomputed");
                }
            }
        }
        let mut after = vec![false; self.from.len()];
        let mut queue = VecDeque::from([sink]);
        after[sink] = true;
        while let Some(n) = queue.pop_front() {
            for i in &self.from[n] {
                let (before, open) = (self.edges[*i].to, self.edges[*i ^ 1].left > 0);
                if open && !after[before] {
                    after[before] = true;
                    queue.push_back(before);
                }
            }
        }
        Ok(after)
    }
    /// Distances from the source; `None` if it does not reach the sink.
    fn levels(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.from.len()];
        levels[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(n) = queue.pop_front() {
            for e in self.from[n].iter().map(|i| &self.edges[*i]) {
                if e.left > 0 && levels[e.to] == usize::MAX {
                    levels[e.to] = levels[n] + 1;
                    queue.push_back(e.to);
                }
            }
        }
        (levels[sink] != usize::MAX).then_some(levels)
    }
    /// Sends flow along one shortest path; iterative, since a graph may be deep.
    fn augment(
        &mut self,
        source: usize,
        sink: usize,
        levels: &[usize],
        next: &mut [usize],
    ) -> Option<u64> {
        let (mut path, mut at): (Vec<usize>, usize) = (vec![], source);
        while at != sink {
            let Some(i) = self.from[at].get(next[at]).copied() else {
                // A dead end: back by one edge, which is not retried.
                let i = path.pop()?;
                at = self.edges[i ^ 1].to;
                next[at] += 1;
                continue;
            };
            let e = &self.edges[i];
            if e.left > 0 && levels[e.to] == levels[at] + 1 {
                path.push(i);
                at = e.to;
            } else {
                next[at] += 1;
            }
        }
        let most = path.iter().map(|i| self.edges[*i].left).min()?;
        for i in path {
            self.edges[i].left -= most;
            self.edges[i ^ 1].left = self.edges[i ^ 1].left.saturating_add(most);
        }
        Some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(nodes: usize, edges: &[(usize, usize, u64)]) -> Network {
        let mut n = Network::new();
        for _ in 0..nodes {
            n.node();
        }
        edges.iter().for_each(|(a, b, c)| n.edge(*a, *b, *c));
        n
    }

    /// The least capacity of all cuts, tried one by one.
    fn least(nodes: usize, edges: &[(usize, usize, u64)]) -> u64 {
        let cut = |after: usize| {
            let is_after = |n: usize| n == 1 || (n > 1 && after >> (n - 2) & 1 == 1);
            let crossing = edges.iter().filter(|(a, b, _)| !is_after(*a) && is_after(*b));
            crossing.map(|(_, _, c)| c).sum::<u64>()
        };
        (0..1 << (nodes - 2)).map(cut).min().unwrap()
    }

    #[test]
    fn cuts_are_least() {
        let mut state = 7u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let nodes = 3 + random(6) as usize;
            let edges: Vec<(usize, usize, u64)> = (0..random(24))
                .map(|_| (random(nodes as u64) as usize, random(nodes as u64) as usize, random(9)))
                .filter(|(a, b, _)| a != b)
                .collect();
            let after = network(nodes, &edges).cut(0, 1).unwrap();
            assert!(!after[0] && after[1]);
            let crossing = edges.iter().filter(|(a, b, _)| !after[*a] && after[*b]);
            let found: u64 = crossing.map(|(_, _, c)| c).sum();
            assert_eq!(found, least(nodes, &edges), "{edges:?}");
        }
    }

    #[test]
    fn of_equal_cuts_the_last_is_taken() {
        let after = network(4, &[(0, 2, 3), (2, 3, 3), (3, 1, 3)]).cut(0, 1).unwrap();
        assert_eq!(after, [false, true, false, false]);
    }

    #[test]
    fn what_cannot_be_cut_is_an_error() {
        assert!(network(2, &[(0, 1, INFINITE)]).cut(0, 1).is_err());
    }
}
