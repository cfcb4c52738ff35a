//! QR factorizations and products of Householder reflections, with LAPACK's signs.
use super::nothing;
use crate::capture::aten::{Args, Cx, Outcome, Row, tools::*};
use kiln_dialects::{ir::*, ops::*};
use kiln_linalg::Factorization;

/// Rows of this family.
pub(in crate::capture::aten) const ROWS: &[Row] = &[
    Row {
        name: "aten.linalg_qr.default",
        arguments: "A, mode='reduced'",
        build: |cx, a| {
            let x = cx.matrices(a, "A", "linalg.qr")?;
            let mode = a.text("mode", "reduced")?;
            qr(cx, x, &mode)
        },
    },
    Row {
        name: "aten.qr.default",
        arguments: "self, some=True",
        build: |cx, a| {
            let x = cx.matrices(a, "self", "torch.qr")?;
            let mode = if a.flag("some", true)? { "reduced" } else { "complete" };
            qr(cx, x, mode)
        },
    },
    Row {
        name: "aten.geqrf.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.matrices(a, "self", "torch.geqrf")?;
            let [packed, tau] = packed(cx, x)?;
            cx.many(&[packed, tau])
        },
    },
    Row {
        name: "aten.linalg_householder_product.default",
        arguments: "input, tau",
        build: |cx, a| householder_product(cx, a, "input", "tau"),
    },
    Row {
        name: "aten.orgqr.default",
        arguments: "self, input2",
        build: |cx, a| householder_product(cx, a, "self", "input2"),
    },
    Row {
        name: "aten.ormqr.default",
        arguments: "self, input2, input3, left=True, transpose=False",
        build: ormqr,
    },
];

/// R with the vectors of the reflections below it, and their factors tau.
fn packed(cx: &Cx, x: Value) -> Result<[Value; 2]> {
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    let tau = [&batch[..], &[cx.smaller(m, n)?]].concat();
    let d = dtype_of(x)?;
    let across = cx.turned(x)?;
    let types = vec![(d, cx.b.sizes_of(across)?), (d, tau)];
    let made = cx.factorize(Factorization::Qr, &[across], types)?;
    Ok([cx.turned(made[0])?, made[1]])
}

/// As many columns of the product of reflections as the matrix has.
fn product(cx: &Cx, packed: Value, tau: Value) -> Result<Value> {
    let across = cx.turned(packed)?;
    let spec = (dtype_of(packed)?, cx.b.sizes_of(across)?);
    let made = cx.factorize(Factorization::HouseholderProduct, &[across, tau], vec![spec])?;
    cx.turned(made[0])
}

/// The matrix with `columns` columns: cut, or filled with zeros.
fn widened(cx: &Cx, x: Value, columns: Size) -> Result<Value> {
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    match n.known().zip(columns.known()) {
        Some((n, columns)) if n >= columns => cx.first(x, 1, Size::Static(columns)),
        _ => {
            let more = cx.size_sub(columns, n)?;
            let zeros = cx.b.splat(dtype_of(x)?, &[&batch[..], &[m, more]].concat(), 0.0)?;
            cx.joined(vec![x, zeros], batch.len() + 1)
        }
    }
}

fn qr(cx: &mut Cx, x: Value, mode: &str) -> Result<Outcome> {
    let (_, m, n) = cx.sizes_of_matrices(x)?;
    let k = cx.smaller(m, n)?;
    let [packed, tau] = packed(cx, x)?;
    let upper = |rows: Size| cx.where_columns(CompareKind::Ge, cx.first(packed, 2, rows)?);
    let (q, r) = match mode {
        "reduced" => (product(cx, cx.first(packed, 1, k)?, tau)?, upper(k)?),
        "complete" => (product(cx, widened(cx, packed, m)?, tau)?, upper(m)?),
        "r" => (nothing(cx, dtype_of(x)?)?, upper(k)?),
        other => {
            return Err(format!("qr received unrecognized mode '{other}' but expected one of 'reduced' (default), 'r', or 'complete'").into());
        }
    };
    cx.many(&[q, r])
}

fn householder_product(cx: &mut Cx, a: &Args<'_>, input: &str, tau: &str) -> Result<Outcome> {
    let (x, tau) = (cx.matrices(a, input, "torch.linalg.householder_product")?, cx.tensor(a, tau)?);
    let (_, m, n) = cx.sizes_of_matrices(x)?;
    if m.known().zip(n.known()).is_some_and(|(m, n)| m < n) {
        return Err("torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]".into());
    }
    let v = product(cx, x, tau)?;
    cx.one(v)
}

/// Q C, Q' C, C Q or C Q' for the m×m product Q of reflections.
fn ormqr(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.matrices(a, "self", "torch.ormqr")?;
    let (tau, other) = (cx.tensor(a, "input2")?, cx.matrices(a, "input3", "torch.ormqr")?);
    let (_, m, _) = cx.sizes_of_matrices(x)?;
    let q = product(cx, widened(cx, x, m)?, tau)?;
    let q = if a.flag("transpose", false)? { cx.turned(q)? } else { q };
    let v = if a.flag("left", true)? { cx.product(q, other)? } else { cx.product(other, q)? };
    cx.one(v)
}
