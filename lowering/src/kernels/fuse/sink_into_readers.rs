//! Moves the end of a kernel into the only kernel that reads it, where the values that it is
//! computed from are stored anyway.
use crate::kernels::{
    class::Class,
    fuse::group::{Grouping, Kind, LoopSpan, MOST_NODES},
    op_facts::element_bytes,
};
use kiln_dialects::ir::Value;
use std::collections::{BTreeMap, BTreeSet};

impl Grouping<'_> {
    /// Visits contractions with their epilogues, and pointwise kernels. A node joins what it reads
    /// before its readers are assigned, which may wait for a reduction.
    pub(super) fn sink_into_readers(&mut self) {
        for g in 0..self.groups.len() {
            let sinks = matches!(self.groups[g].kind, Kind::Contract | Kind::Pointwise);
            if self.groups[g].merged || !sinks {
                continue;
            }
            while self.sink_ends(g) {}
        }
    }

    /// Moves ends of a kernel, those with one reader together: what they share has no other readers
    /// then. Returns whether any has moved, so that there may be new ends.
    fn sink_ends(&mut self, g: usize) -> bool {
        let mut ends: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for n in self.groups[g].nodes.iter().copied() {
            if let Some(into) = self.only_reader(n, g) {
                ends.entry(into).or_default().insert(n);
            }
        }
        let mut moved = false;
        for (into, ends) in ends {
            let single = |n: &usize| BTreeSet::from([*n]);
            moved |= self.sink(&ends, g, into)
                || ends.len() > 1 && ends.iter().rev().any(|n| self.sink(&single(n), g, into));
        }
        moved
    }

    /// Moves nodes that kernel `into` alone reads, with what only they are computed from, if that
    /// spares memory. Returns whether it has.
    fn sink(&mut self, ends: &BTreeSet<usize>, g: usize, into: usize) -> bool {
        let Some(moved) = self.computed_from_stored(ends, g) else { return false };
        let all: Vec<usize> = moved.iter().copied().collect();
        let fits = moved.len() < self.groups[g].nodes.len()
            && self.within(&[&self.groups[into].nodes, &all], MOST_NODES);
        if fits {
            self.move_nodes(&moved, g, into);
        }
        fits
    }

    /// The nodes that read a value, also through ops that are no nodes; `None` if it is returned.
    fn readers(&self, v: Value) -> Option<BTreeSet<usize>> {
        let (mut all, mut stack) = (BTreeSet::new(), vec![v]);
        while let Some(v) = stack.pop() {
            for (user, _) in v.uses() {
                let results = user.results();
                if results.is_empty() {
                    return None;
                }
                match results.iter().find_map(|r| self.graph.node_of.get(r)) {
                    Some(m) => drop(all.insert(*m)),
                    None => stack.extend(results),
                }
            }
        }
        Some(all)
    }

    /// The kernel over the same loops that alone reads node `n` of kernel `g`, where it computes.
    fn only_reader(&self, n: usize, g: usize) -> Option<usize> {
        let node = &self.graph.nodes[n];
        if node.class != Class::Pointwise || self.forms[n] != LoopSpan::Full {
            return None;
        }
        let readers = self.readers(node.value)?;
        let into = self.group_of[*readers.first()?];
        let group = &self.groups[into];
        let fits = into != g
            && matches!(group.kind, Kind::Pointwise | Kind::Rows)
            && group.dims == self.groups[g].dims;
        let in_place = |m: &usize| {
            let reader = &self.graph.nodes[*m];
            let full = match reader.class {
                Class::Reduce => true,
                Class::Pointwise => self.forms[*m] == LoopSpan::Full,
                _ => false,
            };
            let mut own = reader.leaves.iter().filter(|l| self.graph.base(l.value) == node.value);
            full && own.all(|l| {
                self.graph.node_of.contains_key(&l.value) && self.reads_in_place(l, &reader.loops())
            })
        };
        (fits && readers.iter().all(|m| self.group_of[*m] == into && in_place(m))).then_some(into)
    }

    /// Nodes `ends` with those of kernel `g` that nothing else reads, down to values that are stored
    /// anyway; `None` if others would have to be stored, or if storing `ends` costs less.
    fn computed_from_stored(&self, ends: &BTreeSet<usize>, g: usize) -> Option<BTreeSet<usize>> {
        let full = |v: Value| {
            self.graph.count(self.graph.facts.dims(v)) >= self.graph.count(&self.groups[g].dims)
        };
        let (mut moved, mut read) = (ends.clone(), BTreeSet::new());
        let (mut bytes, last) = (0, ends.last()?);
        let before = self.groups[g].nodes.iter().rev().copied().filter(|m| m <= last);
        for m in before {
            if read.contains(&m) && !moved.contains(&m) {
                let readers = self.readers(self.graph.nodes[m].value);
                let stored =
                    readers.as_ref().is_none_or(|all| all.iter().any(|r| self.group_of[*r] != g));
                if stored {
                    bytes += element_bytes(self.graph.nodes[m].value);
                    continue;
                }
                let alone = readers.is_some_and(|all| all.is_subset(&moved));
                if !alone || self.graph.nodes[m].class != Class::Pointwise {
                    return None;
                }
                moved.insert(m);
            }
            if moved.contains(&m) {
                for leaf in &self.graph.nodes[m].leaves {
                    let base = self.graph.base(leaf.value);
                    match self.graph.node_of.get(&base).filter(|r| self.group_of[**r] == g) {
                        Some(r) => drop(read.insert(*r)),
                        None if full(base) => bytes += element_bytes(base),
                        None => {}
                    }
                }
            }
        }
        // They would be written and read.
        let stored: usize = ends.iter().map(|n| element_bytes(self.graph.nodes[*n].value)).sum();
        (bytes <= 2 * stored).then_some(moved)
    }

    fn move_nodes(&mut self, moved: &BTreeSet<usize>, from: usize, into: usize) {
        for n in moved {
            let sources: Vec<usize> = self.sources(*n);
            self.group_of[*n] = into;
            let dependencies = &mut self.groups[into].dependencies;
            dependencies.extend(sources.into_iter().filter(|s| *s != into));
        }
        let why = moved.last().map(|n| {
            let (name, product) = (self.name(self.graph.nodes[*n].value), self.first_name(from));
            format!("{name} not with {product}: this kernel alone reads it, and what it is computed from is stored anyway")
        });
        self.groups[from].nodes.retain(|n| !moved.contains(n));
        let group = &mut self.groups[into];
        group.nodes.extend(moved);
        group.nodes.sort_unstable();
        group.reasons.extend(why);
    }
}
