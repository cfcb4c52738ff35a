//! Contractions: products with the other operand.
use super::rule::Rule;
use crate::decompose::tools::*;
use crate::permutation::inverse;
use kiln_dialects::{ir::*, ops::*};

pub(super) fn dot_general(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<DotGeneral>()?, r.cotangent()?);
    // The product may have a wider dtype; cotangents of its operands are products of theirs.
    let g = r.m.convert(g, dtype(o.lhs)?)?;
    let free = |x: Value, batch: &[i64], contract: &[i64]| {
        complement(rank(x), &[batch, contract].concat()).len()
    };
    let n = o.lhs_batch.len();
    let rows = free(o.lhs, &o.lhs_batch, &o.lhs_contract);
    let left = Side { x: o.lhs, batch: &o.lhs_batch, contract: &o.lhs_contract };
    let right = Side { x: o.rhs, batch: &o.rhs_batch, contract: &o.rhs_contract };
    if r.wants(o.lhs) {
        let columns = (n + rows..rank(g)).map(|d| d as i64).collect();
        let v = left.cotangent(&r.m, g, columns, &right)?;
        r.give(o.lhs, v)?;
    }
    if r.wants(o.rhs) {
        let columns = (n..n + rows).map(|d| d as i64).collect();
        let v = right.cotangent(&r.m, g, columns, &left)?;
        r.give(o.rhs, v)?;
    }
    Ok(())
}

/// An operand of a contraction.
struct Side<'a> {
    x: Value,
    batch: &'a [i64],
    contract: &'a [i64],
}

impl Side<'_> {
    fn free(&self) -> Vec<i64> {
        complement(rank(self.x), &[self.batch, self.contract].concat())
    }
    /// `g`, whose dimensions `columns` are the free ones of `other`, times `other`.
    fn cotangent(
        &self,
        m: &Math<'_>,
        g: Value,
        columns: Vec<i64>,
        other: &Side<'_>,
    ) -> Result<Value> {
        let product = m.b.add(&DotGeneral {
            lhs: g,
            rhs: other.x,
            lhs_batch: (0..self.batch.len() as i64).collect(),
            rhs_batch: other.batch.to_vec(),
            lhs_contract: columns,
            rhs_contract: other.free(),
            element_type: None,
        })?;
        // It has the batch dimensions, those of this operand's own, and the contracted ones in the
        // order of the other operand.
        let mut contracted: Vec<usize> = (0..self.contract.len()).collect();
        contracted.sort_by_key(|k| other.contract[*k]);
        let order: Vec<i64> = self
            .batch
            .iter()
            .copied()
            .chain(self.free())
            .chain(contracted.into_iter().map(|k| self.contract[k]))
            .collect();
        m.transpose(product, &inverse(&order))
    }
}

pub(super) fn linear(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Linear>()?, r.cotangent()?);
    let last = rank(g) as i64 - 1;
    let lead: Vec<i64> = (0..last).collect();
    let product = |r: &Rule<'_>, rhs: Value, lhs_contract: Vec<i64>, rhs_contract: Vec<i64>| {
        r.m.b.add(&DotGeneral {
            lhs: g,
            rhs,
            lhs_batch: vec![],
            rhs_batch: vec![],
            lhs_contract,
            rhs_contract,
            element_type: None,
        })
    };
    if r.wants(o.input) {
        let v = product(r, o.weight, vec![last], vec![0])?;
        r.give(o.input, v)?;
    }
    if r.wants(o.weight) {
        let v = product(r, o.input, lead.clone(), lead.clone())?;
        r.give(o.weight, v)?;
    }
    match o.bias.filter(|bias| r.wants(*bias)) {
        Some(bias) => {
            let wide = r.m.convert(g, accumulator_type(dtype(g)?))?;
            let v = r.m.reduce(ReduceKind::Sum, wide, &lead)?;
            r.give(bias, v)
        }
        None => Ok(()),
    }
}
