//! Transforms of symbolic lengths: one product with the transform's matrix, computed at run time.
//!
//! The length's factors decide the stages of a fast transform, so they must be known; this one
//! takes n^2 multiplications.
use super::super::{Cx, formula as real, tools::*};
use super::{Kind, Parts, part};
use kiln_dialects::{ir::*, ops::*, value::DType};
use kiln_passes::expand_ffts::roots::Roots;

/// Transforms the last dimension to `count` complex numbers, or to n real ones.
pub(super) fn emit(
    cx: &Cx,
    (re, im): Parts,
    (n, inverse, scale): (Size, bool, f64),
    kind: Kind,
    count: Size,
) -> Result<Parts> {
    let d = dtype_of(re)?;
    let mut sizes = cx.b.sizes_of(re)?;
    let have = sizes.pop().ok_or("has no dimension to transform")?;
    let axis = sizes.len();
    let (x, parts) = match im {
        None if kind == Kind::R2c => (cx.reshape(re, with(&sizes, &[Size::Static(1), have]))?, 1),
        None => (cx.stacked(re, cx.full_like(re, 0.0)?, axis)?, 2),
        Some(im) => (cx.stacked(re, im, axis)?, 2),
    };
    let roots = Roots { n, inverse };
    let rhs = match kind {
        Kind::C2r => half_matrix(cx, d, roots, have, scale)?,
        _ => roots.matrix(&cx.b, d, (have, parts, count), scale)?,
    };
    let product = cx.b.add(&DotGeneral {
        lhs: x,
        rhs,
        lhs_batch: vec![],
        rhs_batch: vec![],
        lhs_contract: vec![axis as i64 + 1, axis as i64],
        rhs_contract: vec![0, 1],
        element_type: None,
    })?;
    if kind == Kind::C2r {
        return Ok((product, None));
    }
    let both = cx.reshape(product, with(&sizes, &[Size::Static(2), count]))?;
    let one = |i| {
        let v = part(cx, both, axis, i, Size::Static(1))?;
        cx.reshape(v, with(&sizes, &[count]))
    };
    Ok((one(0)?, Some(one(1)?)))
}

fn with(sizes: &[Size], last: &[Size]) -> Vec<Size> {
    [sizes, last].concat()
}

/// The matrix `[m, 2, n]` from half a spectrum to real numbers. The numbers between the first and,
/// for even n, the last stand for their conjugates too.
fn half_matrix(cx: &Cx, d: DType, roots: Roots, have: Size, scale: f64) -> Result<Value> {
    let sizes = vec![have, roots.n];
    let (k, j) = (cx.iota(DType::I64, sizes.clone(), 0)?, cx.iota(DType::I64, sizes, 1)?);
    let (re, im) = roots.at(&cx.b, cx.binary(BinaryKind::Mul, k, j)?)?;
    let n = cx.size_data(roots.n, DType::I64)?;
    let (re, im) = real::pair(cx, |f| {
        let k = f.of(k);
        let twice = !(k.eq(0.0) | (k * 2.0).eq(f.of(n)));
        let by = |v: Value| twice.select(f.of(v) * (2.0 * scale), f.of(v) * scale);
        (by(re), -by(im))
    })?;
    cx.convert(cx.stacked(re, im, 1)?, d)
}
