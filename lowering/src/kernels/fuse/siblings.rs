//! Merges kernels that read one tensor and do not depend on each other: horizontal fusion.
use crate::kernels::{
    class::Class,
    fuse::group::{Grouping, Kind, LoopSpan, MOST_NODES},
    graph::Leaf,
};
use kiln_dialects::ir::Value;
use std::collections::HashMap;

/// Most results of a merged kernel: each is a stream of stores, and a value in a register.
pub(super) const MOST_RESULTS: usize = 4;

/// Most nodes between two kernels. What the later one computes lives from the earlier one on, so
/// that distant ones would need memory for longer.
pub(super) const MOST_DISTANCE: usize = 32;

impl Grouping<'_> {
    /// Merges kernels that read a tensor at the same indices, in program order.
    pub(super) fn merge_siblings(&mut self) {
        let mut first: HashMap<Value, Vec<usize>> = HashMap::new();
        for g in 0..self.groups.len() {
            if self.groups[g].merged || !self.may_have_siblings(g) {
                continue;
            }
            let read = self.read_in_place(g);
            let found = read.iter().filter_map(|v| first.get(v)).flatten().copied();
            let sibling = found.filter(|s| *s != g).find(|s| self.are_siblings(*s, g));
            let into = match sibling {
                None => g,
                Some(s) => {
                    // A reduction's kernel takes pointwise ones, not vice versa.
                    let pointwise = self.groups[g].kind == Kind::Pointwise;
                    let (from, into) = if pointwise { (g, s) } else { (s, g) };
                    self.absorb_sibling(from, into);
                    first.values_mut().flatten().filter(|r| **r == from).for_each(|r| *r = into);
                    into
                }
            };
            for v in read {
                let all = first.entry(v).or_default();
                if !all.contains(&into) {
                    all.push(into);
                }
            }
        }
    }

    /// Whether it is a loop nest that stores what it computes where it computes it.
    fn may_have_siblings(&self, g: usize) -> bool {
        let group = &self.groups[g];
        matches!(group.kind, Kind::Pointwise | Kind::Rows | Kind::Reduce)
            && !group.dims.is_empty()
            && group.nodes.iter().all(|n| {
                matches!(self.graph.nodes[*n].class, Class::Pointwise | Class::Reduce)
                    && !self.copies(*n)
            })
    }

    /// Whether a node's value is computed elsewhere, and stored here.
    pub(super) fn copies(&self, n: usize) -> bool {
        self.slice_source(n).is_some() || self.previous_slice_kernel(n).is_some()
    }

    /// The stored tensors that a kernel reads at the indices of all of its loops, in order.
    pub(super) fn read_in_place(&self, g: usize) -> Vec<Value> {
        let reduces = self.groups[g].kind == Kind::Reduce;
        let mut all = vec![];
        for n in &self.groups[g].nodes {
            let node = &self.graph.nodes[*n];
            if node.class == Class::Pointwise && self.forms[*n] != LoopSpan::Full {
                continue;
            }
            for leaf in &node.leaves {
                let base = self.graph.base(leaf.value);
                // Sums of parts read views of a tensor.
                let read = if reduces { base } else { leaf.value };
                if self.kernel_of(base) != Some(g)
                    && !all.contains(&read)
                    && (reduces || self.reads_in_place(leaf, &node.loops()))
                {
                    all.push(read);
                }
            }
        }
        all
    }

    /// Whether two kernels read a tensor at the same indices, whichever these are.
    fn read_alike(&self, a: usize, b: usize) -> bool {
        let nodes = |g: usize| self.groups[g].nodes.iter().map(|n| &self.graph.nodes[*n]);
        let leaves = |g: usize| nodes(g).flat_map(|n| n.leaves.iter().map(move |l| (&n.dims, l)));
        let (base, shape) =
            (|l: &Leaf| self.graph.base(l.value), |l: &Leaf| self.graph.facts.dims(l.value));
        leaves(a).any(|(dims, x)| {
            leaves(b).any(|(other, y)| {
                dims == other && base(x) == base(y) && shape(x) == shape(y) && x.at == y.at
            })
        })
    }

    /// Nodes between two kernels, unless one has been merged.
    pub(super) fn distance(&self, early: usize, late: usize) -> Option<usize> {
        let (last, first) = (self.groups[early].nodes.last()?, self.groups[late].nodes.first()?);
        Some(first.saturating_sub(*last))
    }

    fn are_siblings(&self, early: usize, late: usize) -> bool {
        let (a, b) = (&self.groups[early], &self.groups[late]);
        let near = self.distance(early, late).is_some_and(|n| n <= MOST_DISTANCE);
        near && !a.merged
            && a.dims == b.dims
            && (a.kind == Kind::Reduce) == (b.kind == Kind::Reduce)
            && (a.kind != Kind::Reduce || self.read_alike(early, late))
            && (a.kind != b.kind || a.reduced == b.reduced)
            && self.results(early) + self.results(late) <= MOST_RESULTS
            && self.are_independent(early, late)
    }

    /// Whether two kernels are small enough for one, and neither needs the other.
    pub(super) fn are_independent(&self, early: usize, late: usize) -> bool {
        self.within(&[&self.groups[early].nodes, &self.groups[late].nodes], MOST_NODES)
            && !self.depends_on(early, late)
            && !self.depends_on(late, early)
    }

    /// Moves a kernel, and why it was not fused before, into one that does not depend on it.
    pub(super) fn absorb_sibling(&mut self, from: usize, into: usize) {
        let reasons = std::mem::take(&mut self.groups[from].reasons);
        self.groups[into].reasons.extend(reasons);
        self.absorb(from, into);
    }

    /// How many values of a kernel are read outside of it.
    pub(super) fn results(&self, g: usize) -> usize {
        let nodes = self.groups[g].nodes.iter().map(|n| self.graph.nodes[*n].value);
        nodes.filter(|v| self.is_read_outside(g, *v)).count()
    }

    /// Whether another kernel reads a value, or the function returns it. What is no node, its readers
    /// compute.
    fn is_read_outside(&self, g: usize, v: Value) -> bool {
        v.uses().into_iter().any(|(user, _)| {
            let results = user.results();
            let outside = |r: Value| match self.graph.node_of.get(&r) {
                Some(n) => self.group_of[*n] != g,
                None => self.graph.views.contains(&user) || self.is_read_outside(g, r),
            };
            results.is_empty() || results.into_iter().any(outside)
        })
    }
}
