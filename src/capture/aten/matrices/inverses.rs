//! Inverses, by LU or Cholesky factors; pseudoinverses by singular values.
use super::{
    factors::factor,
    identity,
    spectra::{eigen, singular, tolerance},
    systems::{by_cholesky, by_lu},
};
use crate::capture::aten::{Args, Cx, Outcome, Row, formula::value, tools::*};
use kiln_dialects::{ir::*, ops::*};
use kiln_linalg::Api;

/// Rows of this family.
pub(in crate::capture::aten) const ROWS: &[Row] = &[
    Row { name: "aten.linalg_inv.default", arguments: "A", build: |cx, a| inv(cx, a, "A") },
    Row { name: "aten.inverse.default", arguments: "self", build: |cx, a| inv(cx, a, "self") },
    Row {
        name: "aten.linalg_inv_ex.default",
        arguments: "A, check_errors=False",
        build: |cx, a| {
            let x = cx.squares(a, "A", "linalg.inv")?;
            let (v, info) = inverse(cx, x)?;
            if a.flag("check_errors", false)? {
                cx.check_info(Api::Inverse, info)?;
            }
            cx.many(&[v, info])
        },
    },
    Row { name: "aten.linalg_tensorinv.default", arguments: "self, ind=2", build: tensorinv },
    Row {
        name: "aten.cholesky_inverse.default",
        arguments: "self, upper=False",
        build: |cx, a| {
            let factor = cx.squares(a, "self", "cholesky_inverse")?;
            let v = by_cholesky(cx, factor, identity(cx, factor)?, a.flag("upper", false)?)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.pinverse.default",
        arguments: "self, rcond=1e-15",
        build: |cx, a| {
            let x = cx.matrices(a, "self", "linalg.pinv")?;
            let relative = cx.number(dtype_of(x)?, a.float("rcond", Some(1e-15))?)?;
            let v = pseudoinverse(cx, x, None, Some(relative), false)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.linalg_pinv.default",
        arguments: "self, rcond, hermitian=False",
        build: |cx, a| pinv(cx, a, None, Some("rcond")),
    },
    Row {
        name: "aten.linalg_pinv.rcond_tensor",
        arguments: "self, rcond, hermitian=False",
        build: |cx, a| pinv(cx, a, None, Some("rcond")),
    },
    Row {
        name: "aten.linalg_pinv.atol_rtol_float",
        arguments: "self, atol=None, rtol=None, hermitian=False",
        build: |cx, a| pinv(cx, a, Some("atol"), Some("rtol")),
    },
    Row {
        name: "aten.linalg_pinv.atol_rtol_tensor",
        arguments: "self, atol=None, rtol=None, hermitian=False",
        build: |cx, a| pinv(cx, a, Some("atol"), Some("rtol")),
    },
];

/// The inverse, and the first zero on U's diagonal or 0.
pub(in crate::capture::aten) fn inverse(cx: &Cx, x: Value) -> Result<(Value, Value)> {
    let lu = factor(cx, x)?;
    Ok((by_lu(cx, lu.packed, lu.pivots, identity(cx, x)?, false)?, lu.info))
}

/// The inverse; a call with a singular matrix fails.
pub(in crate::capture::aten) fn checked_inverse(cx: &Cx, x: Value) -> Result<Value> {
    let (v, info) = inverse(cx, x)?;
    cx.check_info(Api::Inverse, info).map(|()| v)
}

fn inv(cx: &mut Cx, a: &Args<'_>, name: &str) -> Result<Outcome> {
    let x = cx.squares(a, name, "linalg.inv")?;
    let v = checked_inverse(cx, x)?;
    cx.one(v)
}

/// The inverse of a square matrix made of the first `ind` dimensions and the others.
fn tensorinv(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, ind) = (cx.tensor(a, "self")?, a.int("ind", Some(2))?);
    let sizes = cx.b.sizes_of(x)?;
    let ind = usize::try_from(ind)
        .ok()
        .filter(|i| *i > 0)
        .ok_or("Expected a strictly positive integer for 'ind'")?;
    if ind > sizes.len() || !dtype_of(x)?.is_float() || dtype_of(x)?.bits() < 32 {
        return Err(
            "linalg.tensorinv: Expected a float or double tensor of more than 'ind' dimensions"
                .into(),
        );
    }
    let (first, rest) = sizes.split_at(ind);
    let (m, n) = (cx.size_product(first)?, cx.size_product(rest)?);
    if m.known().zip(n.known()).is_some_and(|(m, n)| m != n) {
        return Err("Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind])".into());
    }
    let v = checked_inverse(cx, cx.reshape(x, vec![m, n])?)?;
    let v = cx.reshape(v, [rest, first].concat())?;
    cx.one(v)
}

fn pinv(cx: &mut Cx, a: &Args<'_>, atol: Option<&str>, rtol: Option<&str>) -> Result<Outcome> {
    let x = cx.matrices(a, "self", "linalg.pinv")?;
    let (atol, rtol) = (tolerance(cx, a, x, atol)?, tolerance(cx, a, x, rtol)?);
    let v = pseudoinverse(cx, x, atol, rtol, a.flag("hermitian", false)?)?;
    cx.one(v)
}

/// V diag(1 / S) U' over the singular values above the tolerance; eigenvalues of Hermitian matrices
/// by their magnitudes.
fn pseudoinverse(
    cx: &Cx,
    x: Value,
    atol: Option<Value>,
    rtol: Option<Value>,
    hermitian: bool,
) -> Result<Value> {
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    if [m, n].iter().any(|s| s.known() == Some(0)) {
        return cx.b.splat(dtype_of(x)?, &[&batch[..], &[n, m]].concat(), 0.0);
    }
    let (u, s, vh) = if hermitian {
        let (w, v) = eigen(cx, x)?;
        (v, w, cx.turned(v)?)
    } else {
        let [u, s, vh] = singular(cx, x, false)?;
        (u, s, vh)
    };
    let bound = super::spectra::bound(cx, x, s, atol, rtol)?;
    let kept = value(cx, |f| f.of(s).abs().gt(f.of(bound)).select(1.0 / f.of(s), 0.0))?;
    let scaled =
        cx.binary(BinaryKind::Mul, cx.turned(vh)?, cx.unsqueezed(kept, rank_of(kept) - 1)?)?;
    cx.product(scaled, cx.turned(u)?)
}
