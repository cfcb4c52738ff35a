//! Transforms of symbolic lengths: one product with the transform's matrix, computed at run time.
//!
//! The length's factors decide the stages of a fast transform, so they must be known; this one
//! takes n^2 multiplications.
use super::super::{Cx, formula as real, tools::*};
use super::{
    Kind,
    roots::{Roots, matrix},
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Transforms `[B, parts, m]` to `[B, 2, count]`, or to real `[B, n]`.
pub(super) fn emit(
    cx: &Cx,
    x: Value,
    (n, inverse, scale): (Size, bool, f64),
    kind: Kind,
    count: Size,
) -> Result<Value> {
    let (d, batch, have) = (dtype_of(x)?, cx.b.size_of(x, 0)?, cx.b.size_of(x, 2)?);
    let parts = x.ty().dims().get(1).and_then(|d| d.known()).unwrap_or(2);
    let roots = Roots { n, inverse };
    let rhs = match kind {
        Kind::C2r => half_matrix(cx, d, roots, have, scale)?,
        _ => matrix(cx, d, roots, (have, parts, count), scale)?,
    };
    let product = cx.b.add(&DotGeneral {
        lhs: x,
        rhs,
        lhs_batch: vec![],
        rhs_batch: vec![],
        lhs_contract: vec![2, 1],
        rhs_contract: vec![0, 1],
        element_type: None,
    })?;
    match kind {
        Kind::C2r => Ok(product),
        _ => cx.reshape(product, vec![batch, Size::Static(2), count]),
    }
}

/// The matrix `[m, 2, n]` from half a spectrum to real numbers. The numbers between the first and,
/// for even n, the last stand for their conjugates too.
fn half_matrix(cx: &Cx, d: DType, roots: Roots, have: Size, scale: f64) -> Result<Value> {
    let sizes = vec![have, roots.n];
    let (k, j) = (cx.iota(DType::I64, sizes.clone(), 0)?, cx.iota(DType::I64, sizes, 1)?);
    let (re, im) = roots.at(cx, cx.binary(BinaryKind::Mul, k, j)?)?;
    let n = cx.size_data(roots.n, DType::I64)?;
    let (re, im) = real::pair(cx, |f| {
        let k = f.of(k);
        let twice = !(k.eq(0.0) | (k * 2.0).eq(f.of(n)));
        let by = |v: Value| twice.select(f.of(v) * (2.0 * scale), f.of(v) * scale);
        (by(re), -by(im))
    })?;
    cx.convert(cx.stacked(re, im, 1)?, d)
}
