//! Products of few rows with one left operand, such as queries, keys and values of a token: one
//! kernel has the tiles of all of them, whatever their numbers of columns.
use crate::kernels::{
    class::Class,
    fuse::{
        gated_pairs::{has_few_rows, is_k_major},
        group::{FusionMode, Grouping, Kind},
    },
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
            let most = MOST_PRODUCTS.saturating_sub(self.products(g).len());
            let fits = |s: usize| self.products(s).len() <= most && self.are_independent(s, g);
            match kept.iter().find(|(v, s)| *v == left && fits(*s)).map(|(_, s)| *s) {
                Some(s) => self.absorb_sibling(g, s),
                None => kept.push((left, g)),
            }
        }
    }

    /// The left operand of all products of a kernel that has nothing beside them but epilogues.
    pub(super) fn shared_left(&self, g: usize) -> Option<Value> {
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

    /// A product of at most [`MOST_ROWS`] rows whose operands are K-major in memory.
    pub(super) fn skinny(&self, n: usize) -> Option<DotGeneral> {
        let dot = self.product(n)?;
        (is_k_major(&dot) && has_few_rows(&dot, MOST_ROWS)).then_some(dot)
    }
}
