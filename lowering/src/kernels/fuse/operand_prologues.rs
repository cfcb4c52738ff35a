//! Kernels of a few rows, such as a token's norm, that only products of few rows read: each CTA of
//! the products computes the rows itself, as a prologue, which saves a launch and its latency.
use crate::kernels::{
    class::Class,
    fuse::group::{Grouping, Kind, MOST_NODES},
    prologues::operands::{StridedOperand, UNIT},
};
use kiln_dialects::{ir::Value, sym::known_product};

/// Most elements of the rows' loops; each CTA keeps the left operand in shared memory.
const MOST_ELEMENTS: i64 = 8192;
/// Clocks in which a CTA computes its rows, besides their elements: a load, reductions, barriers.
const LATENCY: i64 = 600;
/// Instructions per clock and SM.
const RATE: i64 = 128;
/// Instructions per element besides its ops.
const ACCESS_COST: i64 = 2;

impl Grouping<'_> {
    /// Merges such kernels into their readers where a CTA computes the rows within `most` clocks.
    pub(super) fn merge_operand_prologues(&mut self, most: i64) {
        for g in 0..self.groups.len() {
            if let Some((p, left)) = self.operand_prologue(g, most) {
                let apart = format!(" not with {}: ", self.first_name(p));
                self.groups[g].reasons.retain(|why| !why.contains(&apart));
                self.absorb_sibling(p, g);
                self.groups[g].staged.push(left);
            }
        }
    }

    /// The kernel that computes nothing but the left operand of a kernel's products, and that value,
    /// of which the operand may be a reshape.
    fn operand_prologue(&self, g: usize, most: i64) -> Option<(usize, Value)> {
        let left = self.rows_of(self.shared_left(g)?)?;
        let p = self.kernel_of(left).filter(|p| *p != g)?;
        let rows = &self.groups[p];
        let plain = |n: &usize| {
            matches!(self.graph.nodes[*n].class, Class::Pointwise | Class::Reduce)
                && !self.copies(*n)
        };
        let alone = self.outside_reads(p).all(|(v, reader)| v == left && reader == Some(g));
        let count = |n: &usize| known_product(&self.graph.nodes[*n].dims);
        let elements = rows.nodes.iter().map(count).try_fold(1, |most, n| Some(n?.max(most)))?;
        // The result of a reduction is stored in f32.
        let stored = self.graph.nodes[*self.graph.node_of.get(&left)?].class == Class::Pointwise;
        let ops = rows.nodes.len() as i64 + ACCESS_COST;
        let clocks = LATENCY + elements * ops / RATE;
        (matches!(rows.kind, Kind::Rows | Kind::Pointwise)
            && rows.nodes.iter().all(plain)
            && stored
            && alone
            && elements <= MOST_ELEMENTS
            && clocks <= most
            && self.within(&[&rows.nodes, &self.groups[g].nodes], MOST_NODES))
        .then_some((p, left))
    }

    /// What a left operand reads, whose rows it has in order.
    fn rows_of(&self, operand: Value) -> Option<Value> {
        if self.graph.is_leaf(operand) {
            return Some(operand);
        }
        let leaves = self.graph.leaves(operand);
        let ([leaf], dims) = (leaves.as_slice(), self.graph.facts.dims(operand)) else {
            return None;
        };
        let k = dims.len().checked_sub(1)?;
        let loops: Vec<usize> = (0..dims.len()).filter(|d| dims[*d].known() != Some(1)).collect();
        let place = StridedOperand::of(self.graph, leaf, dims.len())?;
        place.readable(self.graph, k, &loops, UNIT).then_some(leaf.value)
    }

    /// The values of a kernel, or views of them, that others read, with the kernel that does; none
    /// for the caller.
    fn outside_reads(&self, g: usize) -> impl Iterator<Item = (Value, Option<usize>)> {
        let nodes = self.graph.nodes.iter().zip(&self.group_of).filter(move |(_, h)| **h != g);
        let read = nodes.flat_map(|(n, h)| n.leaves.iter().map(|l| (l.value, Some(*h))));
        let returned = self.graph.returns.iter().map(|v| (*v, None));
        read.chain(returned).filter(move |(v, _)| self.kernel_of(self.graph.base(*v)) == Some(g))
    }
}
