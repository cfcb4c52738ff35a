//! CUDA graphs of calls in the caller's memory whose addresses recur. A caching allocator gives an
//! iteration of a loop the addresses of the one before, so that the launch of one graph replaces
//! those of its kernels. Where a few results lie elsewhere, such as a loss that the caller keeps,
//! the nodes of the kernels that use them are patched.
use super::{launch::Addresses, lru::LruCache};

/// Fewest launches of a program that a graph replaces.
pub const LEAST_LAUNCHES: usize = 3;
/// One launch of this many may have other addresses for a graph to be patched, which costs about
/// half as much as a launch.
const PATCHED_SHARE: usize = 4;
/// The call at similar addresses at which their graph is instantiated. Instantiating takes as long
/// as a few calls, and the first iterations of a loop often have addresses of their own.
const INSTANTIATED_AT: u32 = 3;
/// Graphs of a plan, such as those of a loop that uses two sets of buffers in turn.
const GRAPHS: usize = 4;
/// Addresses without a graph whose calls are counted.
const COUNTED: usize = 8;
/// Replays after which instantiating a graph has paid off.
const PAYS: u32 = 8;
/// Graphs of fewer replays that may be evicted until a plan makes no more.
const WASTED: u32 = 8;

/// What a call is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'g, G> {
    /// Launch this graph.
    Replay(&'g G),
    /// Patch this graph, which holds these addresses otherwise, and launch it.
    Patch(&'g G, Addresses),
    /// Instantiate a graph, launch it, and [`Replays::add`] it.
    Instantiate,
    /// Launch each kernel.
    Launch,
}

/// The graphs `G` of a plan by the addresses that they hold.
pub struct Replays<G> {
    graphs: LruCache<Recorded<G>>,
    counted: LruCache<(Addresses, u32)>,
    wasted: u32,
}

struct Recorded<G> {
    at: Addresses,
    graph: G,
    replays: u32,
}

impl<G> Default for Replays<G> {
    fn default() -> Replays<G> {
        Replays { graphs: LruCache::new(GRAPHS), counted: LruCache::new(COUNTED), wasted: 0 }
    }
}

impl<G> Replays<G> {
    /// What a call with these addresses is to do. `launches` are the plan's, of which `moved` have
    /// other parameters with one set of addresses than with another.
    pub fn next(
        &mut self,
        at: &Addresses,
        launches: usize,
        moved: impl Fn(&Addresses, &Addresses) -> usize,
    ) -> Next<'_, G> {
        let similar = |of: &Addresses| moved(of, at) * PATCHED_SHARE <= launches;
        let known = self.graphs.find(|r| r.at == *at);
        if known || self.graphs.find(|r| similar(&r.at)) {
            let Some(found) = self.graphs.last() else { return Next::Launch };
            found.replays = found.replays.saturating_add(1);
            if known {
                return Next::Replay(&found.graph);
            }
            return Next::Patch(&found.graph, std::mem::replace(&mut found.at, at.clone()));
        }
        if self.wasted >= WASTED {
            return Next::Launch;
        }
        if !self.counted.find(|(counted, _)| similar(counted)) {
            self.counted.add((at.clone(), 0));
        }
        let Some((counted, calls)) = self.counted.last() else { return Next::Launch };
        counted.clone_from(at);
        *calls += 1;
        if *calls < INSTANTIATED_AT {
            return Next::Launch;
        }
        *calls = 0;
        Next::Instantiate
    }

    /// Keeps a graph that holds these addresses.
    pub fn add(&mut self, at: Addresses, graph: G) {
        let evicted = self.graphs.add(Recorded { at, graph, replays: 0 });
        self.wasted += u32::from(evicted.is_some_and(|r| r.replays < PAYS));
    }

    /// Drops all graphs and makes no more: the driver refused one.
    pub fn stop(&mut self) {
        *self = Replays { wasted: WASTED, ..Replays::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(arena: u64) -> Addresses {
        Addresses { arena, inputs: vec![1, 2], outputs: vec![3] }
    }

    /// All eight launches use the arena, one the result.
    fn moved(from: &Addresses, to: &Addresses) -> usize {
        if from.arena == to.arena { usize::from(from.outputs != to.outputs) } else { 8 }
    }

    /// Calls with these addresses: r of a replay, p of a patch, i of a new graph, l of launches.
    /// A graph is its arena's address.
    fn calls(replays: &mut Replays<u64>, all: impl IntoIterator<Item = Addresses>) -> String {
        let one = |at: Addresses| match replays.next(&at, 8, moved) {
            Next::Replay(graph) => {
                assert_eq!(*graph, at.arena, "a graph of other addresses");
                'r'
            }
            Next::Patch(graph, held) => {
                assert_eq!((*graph, held.arena), (at.arena, at.arena));
                assert_ne!(held, at);
                'p'
            }
            Next::Instantiate => {
                replays.add(at.clone(), at.arena);
                'i'
            }
            Next::Launch => 'l',
        };
        all.into_iter().map(one).collect()
    }

    fn run(replays: &mut Replays<u64>, arenas: impl IntoIterator<Item = u64>) -> String {
        calls(replays, arenas.into_iter().map(at))
    }

    #[test]
    fn addresses_that_recur_have_a_graph() {
        let mut replays = Replays::default();
        assert_eq!(run(&mut replays, [7; 5]), "llirr");
        assert_eq!(run(&mut replays, [8, 7, 8, 7, 8, 7, 8]), "lrlrirr");
    }

    #[test]
    fn a_result_that_moves_is_patched() {
        let mut replays = Replays::default();
        let result = |k: u64| Addresses { outputs: vec![k], ..at(7) };
        assert_eq!(calls(&mut replays, (0..6).map(result)), "llippp");
        assert_eq!(calls(&mut replays, [5, 5, 6].map(result)), "rrp");
    }

    #[test]
    fn addresses_that_do_not_recur_have_none() {
        assert!(!run(&mut Replays::default(), 0..1000).contains('i'));
    }

    #[test]
    fn graphs_that_do_not_pay_end() {
        let mut replays = Replays::default();
        let moving = run(&mut replays, (0..300).map(|k| k / 3));
        let graphs = moving.matches('i').count();
        assert_eq!(graphs, GRAPHS + WASTED as usize);
        assert!(moving.ends_with("lll"));
    }

    #[test]
    fn a_loop_of_long_phases_goes_on() {
        let mut replays = Replays::default();
        let phases = run(&mut replays, (0..2000).map(|k| k / 20));
        assert_eq!(phases.matches('i').count(), 100);
    }

    #[test]
    fn after_a_refusal_there_are_none() {
        let mut replays = Replays::default();
        run(&mut replays, [7; 4]);
        replays.stop();
        assert_eq!(run(&mut replays, [7; 5]), "lllll");
    }
}
