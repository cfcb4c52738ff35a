//! Products of few rows with one left operand, such as queries, keys and values of a token: one
//! kernel has the tiles of all of them, whatever their numbers of columns.
use crate::kernels::{
    class::Class,
    fuse::group::{FusionMode, Grouping, Kind, MOST_NODES},
};
use kiln_dialects::{ir::Value, ops::DotGeneral};

/// Most products of a merged kernel: each has its own code.
const MOST_PRODUCTS: usize = 4;
/// Most rows: with more, `wgmma_gemm` may be faster for each of them.
const MOST_ROWS: i64 = 16;

impl Grouping<'_> {
    /// Merges kernels of such products, in program order. Each takes a few microseconds, in which
    /// not all of the memory's bandwidth is used; a launch less is worth that.
    pub(super) fn merge_sibling_products(&mut self) {
        if !matches!(self.mode, FusionMode::Fused { pairs: true, .. }) {
            return;
        }
        let mut kept: Vec<(Value, usize)> = vec![];
        for g in 0..self.groups.len() {
            let Some(left) = self.shared_left(g) else { continue };
            let sibling = kept.iter().find(|(v, s)| *v == left && self.are_independent(*s, g));
            match sibling.map(|(_, s)| *s) {
                Some(s) => {
                    let reasons = std::mem::take(&mut self.groups[g].reasons);
                    self.groups[s].reasons.extend(reasons);
                    self.absorb(g, s);
                }
                None => kept.push((left, g)),
            }
        }
    }

    /// The left operand of all products of a kernel that has nothing beside them but epilogues.
    fn shared_left(&self, g: usize) -> Option<Value> {
        let group = &self.groups[g];
        let plain = |n: &usize| match self.graph.nodes[*n].class {
            Class::Contract => self.skinny(*n).is_some(),
            class => class == Class::Pointwise && !self.copies(*n),
        };
        if group.merged || group.kind != Kind::Contract || !group.nodes.iter().all(plain) {
            return None;
        }
        let mut all = self.products(g).into_iter().filter_map(|n| Some(self.skinny(n)?.lhs));
        let first = all.next()?;
        all.all(|v| v == first).then_some(first)
    }

    /// A product of at most [`MOST_ROWS`] rows whose operands are K-major.
    fn skinny(&self, n: usize) -> Option<DotGeneral> {
        let dot = self.product(n)?;
        let dims = dot.lhs.ty().dims();
        let rows = dims.iter().rev().skip(1).try_fold(1, |rows: i64, d| Some(rows * d.known()?));
        (dot.rhs_contract[..] == [1] && rows.is_some_and(|n| n <= MOST_ROWS)).then_some(dot)
    }

    fn are_independent(&self, early: usize, late: usize) -> bool {
        let (a, b) = (&self.groups[early], &self.groups[late]);
        self.products(early).len() + self.products(late).len() <= MOST_PRODUCTS
            && self.within(&[&a.nodes, &b.nodes], MOST_NODES)
            && !self.depends_on(early, late)
            && !self.depends_on(late, early)
    }
}
