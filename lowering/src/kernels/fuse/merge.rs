//! Merges a kernel of pointwise ops, or of reductions along rows, into one that reads it.
use crate::kernels::{
    class::Class,
    fuse::group::{Grouping, Kind, LoopSpan, MOST_NODES, row_loops},
    graph::Leaf,
};
use kiln_dialects::sym::known_product;

/// Most nodes that move from another kernel into a contraction's epilogue.
pub(super) const MOST_MOVED: usize = 8;

/// Most elements of a reduction whose kernel computes another, too: larger ones want the memory's
/// rate for themselves.
const MOST_MET: i64 = 1 << 20;

impl Grouping<'_> {
    /// Merges a pointwise kernel into a reader over the same loops, or into one that only inserts
    /// its values into a larger tensor; reductions along rows into a kernel that reads these rows,
    /// too; and what reductions of another kernel meet.
    pub(super) fn merge(&mut self, from: usize, into: usize) {
        let (a, b) = (&self.groups[from], &self.groups[into]);
        let kinds = a.kind == Kind::Pointwise
            && matches!(b.kind, Kind::Pointwise | Kind::Rows | Kind::Contract | Kind::Scan);
        let reads_all = || {
            let read = self.read_in_place(into);
            self.read_in_place(from).iter().all(|v| read.contains(v))
        };
        let rows = [a.kind, b.kind] == [Kind::Rows; 2] && a.reduced == b.reduced && reads_all();
        let meets = self.meets_results(from, into);
        let small = (b.kind != Kind::Contract || a.nodes.len() <= MOST_MOVED)
            && self.within(&[&a.nodes, &b.nodes], MOST_NODES);
        let placed =
            a.kind == Kind::Pointwise && b.nodes.iter().any(|n| self.inserts_result_of(*n, from));
        if !small || a.merged || !(placed || meets || (kinds || rows) && a.dims == b.dims) {
            return;
        }
        // Any other path between the two would make the merged kernel depend on itself.
        if b.dependencies.iter().any(|g| *g != from && self.depends_on(*g, from)) {
            return;
        }
        let in_place = placed
            || meets
            || b.nodes.iter().all(|m| {
                let node = &self.graph.nodes[*m];
                node.leaves
                    .iter()
                    .filter(|l| self.kernel_of(self.graph.base(l.value)) == Some(from))
                    .all(|l| {
                        // A contraction rereads its operands, whatever its loops.
                        let full = match node.class {
                            Class::Contract | Class::Attention | Class::Single => false,
                            Class::Reduce | Class::Scan => true,
                            Class::Pointwise => self.forms[*m] == LoopSpan::Full,
                        };
                        let Some(value) = self.graph.node_of.get(&l.value) else { return false };
                        match self.forms[*value] {
                            LoopSpan::Full => full && self.reads_in_place(l, &node.loops()),
                            LoopSpan::Reduced => self.reads_row_in_place(l, *m, &b.reduced),
                        }
                    })
            });
        if !in_place {
            return;
        }
        if meets && a.kind == Kind::Pointwise {
            self.groups[from].nodes.iter().for_each(|n| self.forms[*n] = LoopSpan::Reduced);
        }
        self.absorb(from, into);
    }

    /// Whether a kernel of reductions reads another's values where it has reduced, and nowhere else:
    /// those of pointwise ops, or of a few reductions over the same loops.
    fn meets_results(&self, from: usize, into: usize) -> bool {
        let (a, b) = (&self.groups[from], &self.groups[into]);
        let alike = match (a.kind, b.kind) {
            (Kind::Pointwise, Kind::Rows | Kind::Reduce) => {
                let stay = b.row_dims();
                a.dims == stay && stay != b.dims
            }
            (Kind::Reduce, Kind::Reduce) => {
                a.dims == b.dims
                    && a.reduced == b.reduced
                    && known_product(&a.dims).is_some_and(|n| n <= MOST_MET)
            }
            _ => false,
        };
        let of_row = |v: &usize| a.kind == Kind::Pointwise || self.forms[*v] == LoopSpan::Reduced;
        let read = |l: &&Leaf| self.kernel_of(self.graph.base(l.value)) == Some(from);
        alike
            && b.nodes.iter().all(|m| {
                let node = &self.graph.nodes[*m];
                node.leaves.iter().filter(read).all(|l| {
                    self.forms[*m] == LoopSpan::Reduced
                        && self.graph.node_of.get(&l.value).is_some_and(of_row)
                        && self.reads_row_in_place(l, *m, &b.reduced)
                })
            })
    }

    /// Whether pointwise node `m` reads a row's value at the row that it computes.
    fn reads_row_in_place(&self, leaf: &Leaf, m: usize, reduced: &[usize]) -> bool {
        let node = &self.graph.nodes[m];
        let loops = match self.forms[m] {
            LoopSpan::Full => row_loops(node.loops(), reduced),
            LoopSpan::Reduced => node.loops(),
        };
        node.class == Class::Pointwise && self.reads_in_place(leaf, &loops)
    }

    /// Moves the nodes of a kernel into another, which must not make the merged one depend on itself.
    pub(super) fn absorb(&mut self, from: usize, into: usize) {
        let moved = std::mem::take(&mut self.groups[from].nodes);
        let before = std::mem::take(&mut self.groups[from].dependencies);
        self.groups[from].merged = true;
        moved.iter().for_each(|m| self.group_of[*m] = into);
        let group = &mut self.groups[into];
        group.nodes.extend(moved);
        group.nodes.sort_unstable();
        group.dependencies.extend(before);
        group.dependencies.remove(&from);
        group.dependencies.remove(&into);
        for g in &mut self.groups {
            if g.dependencies.remove(&from) {
                g.dependencies.insert(into);
            }
        }
        self.groups[into].dependencies.remove(&into);
    }
}
