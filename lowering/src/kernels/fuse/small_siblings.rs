//! Kernels of so few elements that a launch takes longer than they do. Two that wait for the same
//! kernels become one, such as the rotary embeddings of a token's queries and keys. All that wait
//! for none and compute single elements become a few, such as the counters of batch norms and the
//! steps of an optimizer.
use crate::kernels::{
    class::Class,
    fuse::{
        group::{Grouping, Kind},
        siblings::{MOST_DISTANCE, MOST_RESULTS},
    },
};
use kiln_dialects::{ops::OpKind, sym::known_product};

/// Most elements of a result.
const MOST_ELEMENTS: i64 = 1 << 16;

impl Grouping<'_> {
    /// Merges such kernels, in program order, whatever their loops.
    pub(super) fn merge_small_siblings(&mut self) {
        for late in 0..self.groups.len() {
            if !self.is_small(late) {
                continue;
            }
            let near = self.groups[..late].iter().enumerate().rev().map(|(g, _)| g);
            let found = near
                .take_while(|g| self.distance(*g, late).is_none_or(|n| n <= MOST_DISTANCE))
                .find(|early| self.is_small(*early) && self.wait_alike(*early, late));
            if let Some(early) = found {
                self.absorb_sibling(late, early);
            }
        }
    }

    /// Merges the kernels that compute one element of each result from arguments alone, wherever
    /// they are.
    pub(super) fn merge_single_elements(&mut self) {
        self.merge_in_order(usize::MAX, |all, g| {
            let group = &all.groups[g];
            !group.merged && all.has_single_elements(g) && group.dependencies.is_empty()
        });
    }

    /// Whether a kernel computes one element of each result.
    pub(super) fn has_single_elements(&self, g: usize) -> bool {
        self.groups[g].kind == Kind::Pointwise && self.groups[g].dims.is_empty()
    }

    /// Whether it has nothing but elementwise loops, over few elements each.
    fn is_small(&self, g: usize) -> bool {
        let group = &self.groups[g];
        let simple = |n: &usize| {
            let node = &self.graph.nodes[*n];
            let places = || {
                let kind = node.value.def().and_then(|op| op.kind());
                matches!(kind, Some(OpKind::Concat | OpKind::InsertSlice))
            };
            known_product(self.graph.facts.dims(node.value)).is_some_and(|n| n <= MOST_ELEMENTS)
                && match node.class {
                    Class::Pointwise => true,
                    Class::Single => places(),
                    _ => false,
                }
        };
        !group.merged
            && matches!(group.kind, Kind::Pointwise | Kind::Single)
            && !group.dependencies.is_empty()
            && group.nodes.iter().all(simple)
    }

    /// Whether two kernels can start at the same time, and one can compute what both do.
    fn wait_alike(&self, early: usize, late: usize) -> bool {
        self.groups[early].dependencies == self.groups[late].dependencies
            && self.results(early) + self.results(late) <= MOST_RESULTS
            && self.are_independent(early, late)
    }
}
