//! Tensor contraction.

use crate::{
    error::Result,
    reference::{
        element::{Element, both_data},
        shape::{axes, offsets, other_axes},
    },
    value::{DType, Tensor},
};

/// Dimensions of kiln.dot_general; lists of both sides correspond pairwise.
#[derive(Clone, Debug, Default)]
pub struct DotParams {
    /// The op's `lhs_batch`.
    pub lhs_batch: Vec<i64>,
    /// The op's `rhs_batch`.
    pub rhs_batch: Vec<i64>,
    /// The op's `lhs_contract`.
    pub lhs_contract: Vec<i64>,
    /// The op's `rhs_contract`.
    pub rhs_contract: Vec<i64>,
    /// The result's dtype; default: the operands'.
    pub element_type: Option<DType>,
}

/// r\[b, m, n\] = sum over k of x\[b, m, k\] * y\[b, n, k\] (StableHLO dot_general). The result has
/// the batch dimensions, then M, then N. Both operands are floats or neither is; integers wrap
/// around at the result's dtype. Err: dtypes differ without element_type, sizes differ pairwise,
/// dims out of range or repeated.
pub fn dot_general(x: &Tensor, y: &Tensor, p: &DotParams) -> Result<Tensor> {
    let dtype = match p.element_type {
        Some(dtype) => dtype,
        None if x.dtype() == y.dtype() => x.dtype(),
        None => {
            return Err(format!(
                "dtypes {} and {} differ and there is no element_type",
                x.dtype(),
                y.dtype()
            )
            .into());
        }
    };
    if dtype.is_float() != x.dtype().is_float() {
        return Err(format!("the product of {} has not the dtype {dtype}", x.dtype()).into());
    }
    if p.lhs_batch.len() != p.rhs_batch.len() || p.lhs_contract.len() != p.rhs_contract.len() {
        return Err("the lists of both operands differ in length".to_string().into());
    }
    let used = |batch: &[i64], contract: &[i64], rank| axes(&[batch, contract].concat(), rank);
    let lhs = used(&p.lhs_batch, &p.lhs_contract, x.rank())?;
    let rhs = used(&p.rhs_batch, &p.rhs_contract, y.rank())?;
    for (&a, &b) in lhs.iter().zip(&rhs) {
        if x.shape()[a] != y.shape()[b] {
            return Err(format!(
                "sizes {} and {} of dimensions {a} and {b} differ",
                x.shape()[a],
                y.shape()[b]
            )
            .into());
        }
    }
    let batch = p.lhs_batch.len();
    let (lhs_free, rhs_free) = (other_axes(&lhs, x.rank()), other_axes(&rhs, y.rank()));
    let x_at = [&lhs[..batch], &lhs_free, &lhs[batch..]].map(|dims| offsets(x.shape(), dims));
    let y_at = [&rhs[..batch], &rhs_free, &rhs[batch..]].map(|dims| offsets(y.shape(), dims));
    let ([x_batch, x_free, x_contract], [y_batch, y_free, y_contract]) = (x_at, y_at);
    let walk = Walk {
        batch: x_batch?.into_iter().zip(y_batch?).collect(),
        lhs_free: x_free?,
        rhs_free: y_free?,
        contract: x_contract?.into_iter().zip(y_contract?).collect(),
    };
    let shape = lhs[..batch].iter().chain(&lhs_free).map(|&d| x.shape()[d]);
    let shape: Vec<usize> = shape.chain(rhs_free.iter().map(|&d| y.shape()[d])).collect();
    let size = crate::value::count(&shape)?;
    let data = both_data!(x, y, v, w => walk.run(v, w, dtype, size));
    Tensor::new(dtype, shape, data)
}

/// Linear offsets into both operands, pairwise for their shared dimensions.
struct Walk {
    batch: Vec<(usize, usize)>,
    lhs_free: Vec<usize>,
    rhs_free: Vec<usize>,
    contract: Vec<(usize, usize)>,
}

impl Walk {
    fn run<E: Element>(&self, v: &[E], w: &[E], dtype: DType, size: usize) -> Vec<E> {
        let mut out = Vec::with_capacity(size);
        for &(xb, yb) in &self.batch {
            for &m in &self.lhs_free {
                for &n in &self.rhs_free {
                    let (x, y) = (xb + m, yb + n);
                    let step = |sum: E, &(i, j): &(usize, usize)| {
                        sum.add(v[x + i].mul(w[y + j], dtype), dtype)
                    };
                    out.push(self.contract.iter().fold(E::ZERO, step));
                }
            }
        }
        out
    }
}
