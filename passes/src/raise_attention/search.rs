//! The search for the product that scores are computed from, through elementwise ops and reshapes.
use crate::{raise_attention::product::Product, refine_shapes::Facts};
use kiln_dialects::{ir::*, ops::*, sym::Dim};
use std::collections::HashSet;

/// Most values between the product and the softmax.
pub(super) const MAX_SPINE: usize = 64;

/// The search for the product that scores are computed from.
pub(super) struct Search<'a> {
    facts: &'a Facts,
    end: Value,
    found: Option<Product>,
    spine: HashSet<Value>,
}

impl<'a> Search<'a> {
    /// The product, and the values from it to the end.
    pub(super) fn from(facts: &'a Facts, end: Value) -> Option<(Product, HashSet<Value>)> {
        let mut search = Search { facts, end, found: None, spine: HashSet::new() };
        search.reaches(end);
        Some((search.found?, search.spine))
    }

    fn reaches(&mut self, v: Value) -> bool {
        if self.spine.contains(&v) {
            return true;
        }
        let Some(op) = v.def().filter(|_| self.spine.len() < MAX_SPINE) else { return false };
        let (dims, end) = (self.facts.dims(v), self.facts.dims(self.end));
        let rows = |d: &[Dim]| d[d.len().saturating_sub(2)..].to_vec();
        if dims.len() < 2 || rows(dims) != rows(end) {
            return false;
        }
        let found = match op.kind() {
            Some(OpKind::Matmul | OpKind::DotGeneral) => match &self.found {
                Some(p) => p.op == op,
                None => {
                    self.found = Product::of(op);
                    self.found.is_some()
                }
            },
            Some(OpKind::Reshape) => keeps_rows(self.facts, op) && self.reaches(op.operand(0)),
            Some(kind) if kind.is_arithmetic() => {
                let all: Vec<bool> = op.operands().iter().map(|o| self.reaches(*o)).collect();
                all.contains(&true)
            }
            _ => false,
        };
        if found {
            self.spine.insert(v);
        }
        found
    }
}

/// Whether a reshape keeps the last two dimensions.
pub(super) fn keeps_rows(facts: &Facts, op: Op) -> bool {
    let (from, to) = (facts.dims(op.operand(0)), facts.dims(op.result(0)));
    from.len() >= 2 && to.len() >= 2 && from[from.len() - 2..] == to[to.len() - 2..]
}
