//! What the outlining of a function keeps, and what a launch passes to its kernel: tensors, sizes
//! and results.
use crate::{
    analysis::{
        CONSTANT, DIVISOR, LEAST, param_attrs,
        sizes::{SizeBuilder, SizeValues, index_operands},
    },
    kernels::{fuse::gated_pairs::has_few_rows, graph::Graph, marks::in_prologue, op_facts::reads},
    target::{costs::SKINNY_ROWS, kernel_attrs::DONATED},
};
use kiln_dialects::{
    ir::*,
    ops::{DotGeneral, OpKind},
};
use std::collections::{HashMap, HashSet};

pub(super) struct Outline<'a> {
    pub(super) graph: &'a Graph<'a>,
    pub(super) sizes: SizeValues<'a>,
    pub(super) builder: Builder,
    /// Whether weights that no launch writes are marked.
    pub(super) constants: bool,
    /// Maps old values to values of the new host function.
    pub(super) host: HashMap<Value, Value>,
    /// Values that cross a kernel boundary.
    pub(super) crossing: HashSet<Value>,
    /// The values that their kernels stage in shared memory.
    pub(super) staged: HashSet<Value>,
    /// The 16-bit values that exist in several kernels.
    pub(super) rounded: HashSet<Value>,
}

/// The operands and results of a kernel.
pub(super) struct Signature {
    pub(super) leaves: Vec<Value>,
    pub(super) sizes: Vec<Value>,
    pub(super) results: Vec<Value>,
    /// Whether it reduces leading dimensions.
    pub(super) reduces: bool,
}

impl Outline<'_> {
    /// Collects the leaves and sizes that the computation of `v` needs, in the order of first use.
    pub(super) fn collect(
        &self,
        v: Value,
        inside: &dyn Fn(Value) -> bool,
        s: &mut Signature,
        seen: &mut HashSet<Value>,
    ) -> Result<()> {
        if !seen.insert(v) {
            return Ok(());
        }
        if self.graph.is_leaf(v) && !inside(v) {
            s.leaves.push(v);
            return Ok(());
        }
        let op = v.def().ok_or("is no op's result")?;
        for size in index_operands(op).into_iter().map(|v| self.same_size(v)) {
            if !s.sizes.contains(&size) {
                s.sizes.push(size);
            }
        }
        reads(op).into_iter().try_for_each(|o| self.collect(o, inside, s, seen))
    }

    /// The representative of all values equal to this size: within a kernel, nothing else states
    /// that two arguments are equal.
    pub(super) fn same_size(&self, v: Value) -> Value {
        self.sizes.cached(&self.graph.facts.size_value(v)).unwrap_or(v)
    }

    /// Lower bound and divisor of each size argument, if a divisor exceeds 1, and which tensors are
    /// constant. They become attributes of the kernel's parameters, since nothing else in the
    /// kernel states them.
    pub(super) fn known(&self, s: &Signature) -> Option<Attr> {
        let (c, facts) = (self.builder.ctx, self.graph.facts);
        let of = |v: &Value| -> Vec<(&str, Attr)> {
            let d = facts.size_value(*v);
            let (divisor, least) = (facts.divisor(&d), facts.bounds(&d).0.unwrap_or(0));
            if divisor < 2 {
                return vec![];
            }
            // Round the lower bound up to a multiple of the divisor.
            let least = least.div_euclid(divisor) + i64::from(least.rem_euclid(divisor) > 0);
            vec![(DIVISOR, Attr::i64(c, divisor)), (LEAST, Attr::i64(c, (least * divisor).max(0)))]
        };
        let all: Vec<_> = s.sizes.iter().map(of).collect();
        let constant = |v: &Value| self.constants && is_constant_weight(*v);
        let leaf = |v: &Value| constant(v).then(|| (CONSTANT, Attr::unit(c))).into_iter().collect();
        let all: Vec<_> = s.leaves.iter().map(leaf).chain(all).collect();
        let any = all.iter().any(|a| !a.is_empty());
        any.then(|| Attr::array(c, &all.iter().map(|a| Attr::dictionary(c, a)).collect::<Vec<_>>()))
    }
}

/// Whether a tensor is a weight of a product of few rows that no launch of the program writes: one
/// of the program, or an argument that is not donated.
fn is_constant_weight(v: Value) -> bool {
    let given = match v.def() {
        Some(op) => op.kind() == Some(OpKind::GetGlobal),
        None => param_attrs(v).is_none_or(|a| a.entry(DONATED).is_none()),
    };
    given && is_multiplied(v)
}

/// Whether a product of few rows reads a value, or what movement ops and a prologue make of it, as
/// its right operand.
fn is_multiplied(v: Value) -> bool {
    v.uses().iter().any(|(op, i)| match op.kind() {
        Some(OpKind::DotGeneral) => {
            *i == 1 && DotGeneral::of(*op).is_some_and(|dot| has_few_rows(&dot, SKINNY_ROWS))
        }
        Some(OpKind::Transpose | OpKind::Reshape | OpKind::BroadcastInDim) => {
            is_multiplied(op.result(0))
        }
        _ => in_prologue(*op) && is_multiplied(op.result(0)),
    })
}
