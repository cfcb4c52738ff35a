//! Gated pairs: two GEMMs with one left operand, such as silu(x V) * (x W). One kernel loads the
//! left operand once for both, and neither result goes through memory.
use crate::{
    kernels::{
        class::Class,
        fuse::group::{FusionMode, Grouping, Kind},
        marks::in_prologue,
        op_facts::folding_op,
    },
    target::costs::{SKINNY_K, SKINNY_ROWS},
};
use kiln_dialects::{
    ir::{Node as _, Op, Value},
    ops::{DotGeneral, OpKind},
    rules::tensor_type,
    value::DType,
};

/// Most nodes of the kernel that a second GEMM joins: the shared epilogue keeps its values in
/// registers next to two accumulators.
const MAX_NODES: usize = 12;
/// Least N of either GEMM: the width of one CTA tile.
const COLUMNS: i64 = 64;

impl Grouping<'_> {
    /// The kernel of another GEMM that node `n` is fused with.
    pub(crate) fn gated_partner(&self, n: usize) -> Option<usize> {
        let mine = self
            .product(n)
            .filter(|_| matches!(self.mode, FusionMode::Fused { pairs: true, .. }))?;
        let sources = self.sources(n);
        let fits = |g: &usize| {
            let group = &self.groups[*g];
            let [other] = self.products(*g)[..] else { return false };
            let Some(dot) = self.product(other) else { return false };
            let same = dot.lhs == mine.lhs
                && dot.rhs.ty() == mine.rhs.ty()
                && dot.rhs_contract == mine.rhs_contract;
            group.kind == Kind::Contract
                && !group.merged
                && group.nodes.len() <= MAX_NODES
                && same
                && self.graph.nodes[n].value.ty() == self.graph.nodes[other].value.ty()
                && sources.iter().all(|s| s != g && !self.depends_on(*s, *g))
                && self.results_combine(n, *g)
        };
        (0..self.groups.len()).rev().find(fits)
    }

    /// The contractions of a kernel.
    pub(super) fn products(&self, g: usize) -> Vec<usize> {
        self.groups[g]
            .nodes
            .iter()
            .copied()
            .filter(|m| self.graph.nodes[*m].class == Class::Contract)
            .collect()
    }

    /// A matrix product that can run on Hopper's tensor cores as one of a pair.
    pub(super) fn product(&self, n: usize) -> Option<DotGeneral> {
        let op = self.graph.nodes[n].value.def().filter(|o| folding_op(*o).is_none())?;
        let dot = DotGeneral::of(op)?;
        let half = |v: Value| {
            tensor_type(v.ty()).is_ok_and(|t| [DType::BF16, DType::F16].contains(&t.dtype))
        };
        let sizes: Vec<i64> =
            dot.rhs.ty().dims().iter().map(|d| d.known()).collect::<Option<_>>()?;
        let ([a, b], [depth]) = (&sizes[..], &dot.rhs_contract[..]) else { return None };
        let (columns, depth) = if *depth == 0 { (b, a) } else { (a, b) };
        let rows = self.graph.count(&self.graph.nodes[n].dims) / (*columns).max(1);
        let last = dot.lhs_contract[..] == [dot.lhs.ty().dims().len() as i64 - 1];
        // Skinny GEMMs read through registers, where both operands must be K-major.
        let units = a % 8 == 0
            && b % 8 == 0
            && *columns >= COLUMNS
            && (rows > SKINNY_ROWS || is_k_major(&dot) && *depth >= SKINNY_K);
        (half(dot.lhs)
            && half(dot.rhs)
            && dot.lhs_batch.is_empty()
            && last
            && units
            && covers_tensor(dot.lhs)
            && covers_tensor(dot.rhs))
        .then_some(dot)
    }

    /// Whether a pointwise op over the same loops uses both: values of the kernel so far and values
    /// of the node.
    fn results_combine(&self, n: usize, g: usize) -> bool {
        let graph = self.graph;
        let dims = &graph.nodes[n].dims;
        // What each node depends on: [the kernel, the node].
        let mut of = vec![[false; 2]; graph.nodes.len()];
        self.groups[g].nodes.iter().for_each(|m| of[*m][0] = true);
        of[n][1] = true;
        for m in n + 1..graph.nodes.len() {
            let node = &graph.nodes[m];
            if node.class != Class::Pointwise || node.dims != *dims {
                continue;
            }
            for from in node
                .leaves
                .iter()
                .filter_map(|l| graph.node_of.get(&l.value))
                .copied()
                .collect::<Vec<_>>()
            {
                let [a, b] = of[from];
                of[m] = [of[m][0] || a, of[m][1] || b];
            }
            if of[m] == [true; 2] {
                return true;
            }
        }
        false
    }
}

/// Whether a value covers a whole tensor in memory, transposed or not.
fn covers_tensor(v: Value) -> bool {
    let mut v = v;
    while let Some(op) =
        v.def().filter(|o: &Op| matches!(o.kind(), Some(OpKind::Transpose | OpKind::Reshape)))
    {
        v = op.operand(0);
    }
    !v.def().is_some_and(|o| {
        matches!(o.kind(), Some(OpKind::Slice | OpKind::Reverse | OpKind::BroadcastInDim))
    })
}

/// Whether the elements of a matrix, a right operand, are contiguous in memory along K.
pub(super) fn is_k_major(dot: &DotGeneral) -> bool {
    let mut k_major = dot.rhs_contract[..] == [1];
    let (mut v, mut reshaped) = (dot.rhs, false);
    while let Some(op) = v.def() {
        match op.kind() {
            Some(OpKind::Reshape) => reshaped = true,
            Some(OpKind::Transpose) if reshaped => return false,
            Some(OpKind::Transpose) => k_major = !k_major,
            Some(OpKind::Convert) if in_prologue(op) => {}
            _ => break,
        }
        v = op.operand(0);
    }
    k_major
}

/// Whether the left operand of a product without batch has at most so many rows.
pub(crate) fn has_few_rows(dot: &DotGeneral, most: i64) -> bool {
    let dims = dot.lhs.ty().dims();
    let rows = dims.iter().rev().skip(1).try_fold(1, |n: i64, d| n.checked_mul(d.known()?));
    rows.is_some_and(|n| n <= most)
}
