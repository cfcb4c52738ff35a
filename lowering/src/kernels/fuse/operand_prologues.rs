//! Kernels of a few rows, such as a token's norm, that only products of few rows read: each CTA of
//! the products computes the rows itself, as a prologue, which saves a launch and its latency.
use crate::kernels::{
    class::Class,
    fuse::group::{Grouping, Kind, MOST_NODES},
};
use kiln_dialects::ir::Value;
use std::collections::HashSet;

/// Most elements of the left operand, which each CTA keeps in shared memory.
const MOST_ELEMENTS: i64 = 8192;
/// Clocks in which a CTA computes its rows, besides their elements: a load, reductions, barriers.
const LATENCY: i64 = 600;
/// Instructions per clock and SM.
const RATE: i64 = 128;
/// Instructions per element besides its ops.
const ACCESS_COST: i64 = 2;
/// Rows of the large matrix of a CTA.
const TILE: i64 = 16;
/// SMs.
const PROCESSORS: i64 = 132;

impl Grouping<'_> {
    /// Merges such kernels into their readers where all CTAs compute the rows within `most` clocks.
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

    /// The kernel that computes nothing but the left operand of a kernel's products, and that.
    fn operand_prologue(&self, g: usize, most: i64) -> Option<(usize, Value)> {
        let left = self.shared_left(g)?;
        let p = self.kernel_of(left).filter(|p| *p != g)?;
        let rows = &self.groups[p];
        let plain = |n: &usize| {
            matches!(self.graph.nodes[*n].class, Class::Pointwise | Class::Reduce)
                && !self.copies(*n)
        };
        let alone = self.outside_reads(p).all(|(v, reader)| v == left && reader == Some(g));
        let elements =
            left.ty().dims().iter().try_fold(1, |n: i64, d| n.checked_mul(d.known()?))?;
        let ops = rows.nodes.len() as i64 + ACCESS_COST;
        let tiles: i64 = self.columns(g).iter().map(|n| (n + TILE - 1) / TILE).sum();
        let waves = (tiles + PROCESSORS - 1) / PROCESSORS;
        let clocks = waves * (LATENCY + elements * ops / RATE);
        (matches!(rows.kind, Kind::Rows | Kind::Pointwise)
            && rows.nodes.iter().all(plain)
            && alone
            && elements <= MOST_ELEMENTS
            && clocks <= most
            && self.within(&[&rows.nodes, &self.groups[g].nodes], MOST_NODES))
        .then_some((p, left))
    }

    /// The columns of each result of a kernel of products.
    fn columns(&self, g: usize) -> Vec<i64> {
        let results: HashSet<Value> =
            self.outside_reads(g).map(|(v, _)| self.graph.base(v)).collect();
        results.into_iter().filter_map(|v| v.ty().dims().last()?.known()).collect()
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
