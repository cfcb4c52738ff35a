//! Matrix products over leading dimensions, in one form: rows and columns of the result last, and
//! both operands with the contracted dimension last.
use crate::{decompose::tools::Math, refine_shapes::Facts};
use kiln_dialects::{ir::*, ops::*, sym::Dim};
use std::collections::HashMap;

/// Values that an attention has replaced.
#[derive(Default)]
pub(super) struct Replaced(pub(super) HashMap<Value, Value>);

impl Replaced {
    pub(super) fn get(&self, v: Value) -> Value {
        self.0.get(&v).copied().unwrap_or(v)
    }
}

/// A product whose result is `[lead.., rows, columns]`.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub(super) op: Op,
    /// `[lead.., rows, contracted]`
    pub(super) lhs: Operand,
    /// `[lead.., columns, contracted]`
    pub(super) rhs: Operand,
}

/// An operand, and which of its dimensions is each dimension of the form; none: a unit dimension.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) value: Value,
    pub(super) dims: Vec<Option<usize>>,
}

impl Product {
    pub(super) fn of(op: Op) -> Option<Product> {
        let rank = |v: Value| v.ty().dims().len();
        if let Some(o) = Matmul::of(op) {
            let (p, q) = (rank(o.lhs), rank(o.rhs));
            let lead = |n: usize| (0..p.max(q) - n).map(|_| None).chain((0..n - 2).map(Some));
            return (p >= 2 && q >= 2).then(|| Product {
                op,
                lhs: Operand {
                    value: o.lhs,
                    dims: lead(p).chain([Some(p - 2), Some(p - 1)]).collect(),
                },
                rhs: Operand {
                    value: o.rhs,
                    dims: lead(q).chain([Some(q - 1), Some(q - 2)]).collect(),
                },
            });
        }
        let o = DotGeneral::of(op)?;
        let axes = |of: &[i64]| of.iter().map(|d| *d as usize).collect::<Vec<_>>();
        let free = |v: Value, batch: &[i64], contract: &[i64]| {
            (0..rank(v))
                .filter(|d| !batch.contains(&(*d as i64)) && !contract.contains(&(*d as i64)))
                .collect::<Vec<_>>()
        };
        let rows = free(o.lhs, &o.lhs_batch, &o.lhs_contract);
        let columns = free(o.rhs, &o.rhs_batch, &o.rhs_contract);
        let ([l], [r], [column], Some(more)) =
            (&o.lhs_contract[..], &o.rhs_contract[..], &columns[..], rows.len().checked_sub(1))
        else {
            return None;
        };
        let lhs = axes(&o.lhs_batch).into_iter().chain(rows).chain([*l as usize]);
        let rhs = axes(&o.rhs_batch).into_iter().map(Some).chain((0..more).map(|_| None));
        Some(Product {
            op,
            lhs: Operand { value: o.lhs, dims: lhs.map(Some).collect() },
            rhs: Operand {
                value: o.rhs,
                dims: rhs.chain([Some(*column), Some(*r as usize)]).collect(),
            },
        })
    }
    /// The leading dimensions of the result.
    pub(super) fn lead(&self, facts: &Facts) -> Vec<Dim> {
        let dims = facts.dims(self.op.result(0));
        dims[..dims.len().saturating_sub(2)].to_vec()
    }
}

impl Operand {
    /// The same with its last two dimensions exchanged.
    pub(super) fn swapped(mut self) -> Operand {
        let n = self.dims.len();
        self.dims.swap(n - 2, n - 1);
        self
    }
    /// The number of leading dimensions.
    pub(super) fn rank(&self) -> usize {
        self.dims.len() - 2
    }
    /// The size of dimension `i` of the form.
    pub(super) fn size(&self, facts: &Facts, i: usize) -> Dim {
        let own = self.dims[i].and_then(|d| facts.dims(self.value).get(d).cloned());
        own.unwrap_or(Dim::Known(1))
    }
    /// The leading dimensions.
    pub(super) fn lead(&self, facts: &Facts) -> Vec<Dim> {
        (0..self.rank()).map(|i| self.size(facts, i)).collect()
    }
    /// What it is a reshape of, if that has two leading dimensions, batch and heads, and the same
    /// rows.
    pub(super) fn with_heads(&self, facts: &Facts) -> Option<Operand> {
        let n = self.dims.len();
        let in_order = (0..n - 2).all(|i| self.dims[i] == Some(i));
        let from = self.value.def().and_then(Reshape::of).filter(|_| in_order)?.input;
        let (old, new) = (facts.dims(from), facts.dims(self.value));
        let same = old.len() == 4 && new.len() == n && old[2..] == new[n - 2..];
        let last = |i: usize| self.dims[i].map(|d| d + 4 - n);
        same.then(|| Operand {
            value: from,
            dims: vec![Some(0), Some(1), last(n - 2), last(n - 1)],
        })
    }
    /// Builds it as `[batch, heads, rows, columns]`. `lead`: these two as facts and as sizes.
    pub(super) fn build(
        &self,
        m: &Math<'_>,
        facts: &Facts,
        replaced: &Replaced,
        lead: [(&Dim, Size); 2],
    ) -> Result<Value> {
        let n = self.dims.len();
        let mut order: Vec<i64> = self.dims.iter().flatten().map(|d| *d as i64).collect();
        let (mut v, mut sizes) = (self.value, lead.map(|(_, s)| s).to_vec());
        for i in n - 2..n {
            sizes.push(m.size_of(replaced.get(v), self.dims[i].ok_or("has no rows")?)?);
        }
        let same = self.lead(facts) == lead.map(|(d, _)| d.clone());
        if let Some(inner) = v.def().and_then(Transpose::of) {
            order = order.iter().map(|p| inner.permutation[*p as usize]).collect();
            v = inner.input;
        }
        let laid = m.transpose(replaced.get(v), &order)?;
        if same && order.len() == 4 { Ok(laid) } else { m.reshape(laid, &sizes) }
    }
}
