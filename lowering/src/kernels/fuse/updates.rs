//! Updates of many tensors, as an optimizer's step has. Kernels whose results nothing but the caller
//! reads, and that wait for single elements alone, become a few of several loop nests each, as
//! PyTorch's `multi_tensor_apply` does: a launch takes longer than the update of a bias.
use crate::kernels::{
    class::Class,
    fuse::group::{Grouping, Kind},
};
use kiln_dialects::{ir::Value, sym::known_product};
use std::collections::HashSet;

/// Most arguments of a kernel, in parameters of 4 KiB.
const MOST_POINTERS: usize = 256;

/// Most tensors that a kernel updates: each has code of its own.
const MOST_UPDATES: usize = 24;

impl Grouping<'_> {
    /// Merges such kernels.
    pub(super) fn merge_updates(&mut self) {
        let read = self.read_by_other_kernels();
        self.merge_in_order(MOST_UPDATES, |all, g| all.is_update(g, &read));
    }

    /// Merges the chosen kernels with those before them, at most so many into one.
    pub(super) fn merge_in_order(&mut self, most: usize, chosen: impl Fn(&Self, usize) -> bool) {
        let mut into: Option<(usize, usize)> = None;
        for g in 0..self.groups.len() {
            if !chosen(self, g) {
                continue;
            }
            let fits = |(i, count): &(usize, usize)| {
                *count < most
                    && self.pointers(*i) + self.pointers(g) <= MOST_POINTERS
                    && !self.depends_on(*i, g)
                    && !self.depends_on(g, *i)
            };
            into = match into.filter(fits) {
                Some((i, count)) => {
                    self.append(g, i);
                    Some((i, count + 1))
                }
                None => Some((g, 1)),
            };
        }
    }

    /// The values that a kernel other than their own reads.
    fn read_by_other_kernels(&self) -> HashSet<Value> {
        let mut read = HashSet::new();
        for (n, node) in self.graph.nodes.iter().enumerate() {
            let bases = node.leaves.iter().map(|leaf| self.graph.base(leaf.value));
            read.extend(bases.filter(|v| self.kernel_of(*v) != self.group_of.get(n).copied()));
        }
        read
    }

    /// Whether a kernel is elementwise, of static sizes, and only the caller reads its results.
    fn is_update(&self, g: usize, read: &HashSet<Value>) -> bool {
        let group = &self.groups[g];
        !group.merged
            && group.kind == Kind::Pointwise
            && !group.dims.is_empty()
            && known_product(&group.dims).is_some()
            && group.dependencies.iter().all(|d| self.has_single_elements(*d))
            && group.nodes.iter().all(|n| {
                let node = &self.graph.nodes[*n];
                node.class == Class::Pointwise && !self.copies(*n) && !read.contains(&node.value)
            })
    }

    /// The arguments of a kernel: tensors that it reads, and results.
    fn pointers(&self, g: usize) -> usize {
        let nodes = self.groups[g].nodes.iter().map(|n| &self.graph.nodes[*n]);
        let leaves = nodes.flat_map(|n| &n.leaves).map(|leaf| self.graph.base(leaf.value));
        let read: HashSet<Value> = leaves.filter(|v| self.kernel_of(*v) != Some(g)).collect();
        read.len() + self.results(g)
    }

    /// Moves a kernel behind the nodes of one that does not depend on it: what each computes stays
    /// together.
    fn append(&mut self, from: usize, into: usize) {
        let (first, then) = (self.groups[into].nodes.clone(), self.groups[from].nodes.clone());
        self.absorb_sibling(from, into);
        self.groups[into].nodes = [first, then].concat();
    }
}
