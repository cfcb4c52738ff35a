//! Singular values, eigenvalues of symmetric matrices, and the rank.
use super::nothing;
use crate::capture::aten::{Args, Cx, Outcome, Row, Val, formula::value, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};
use kiln_linalg::Factorization;

/// Rows of this family.
pub(in crate::capture::aten) const ROWS: &[Row] = &[
    Row {
        name: "aten.linalg_svd.default",
        arguments: "A, full_matrices=True, driver=None",
        build: |cx, a| {
            let x = cx.matrices(a, "A", "linalg.svd")?;
            let all = singular(cx, x, a.flag("full_matrices", true)?)?;
            cx.many(&all)
        },
    },
    Row {
        name: "aten._linalg_svd.default",
        arguments: "A, full_matrices=False, compute_uv=True, driver=None",
        build: |cx, a| {
            let x = cx.matrices(a, "A", "linalg.svd")?;
            if !a.flag("compute_uv", true)? {
                let (s, none) = (singular_values(cx, x)?, nothing(cx, dtype_of(x)?)?);
                return cx.many(&[none, s, none]);
            }
            let all = singular(cx, x, a.flag("full_matrices", false)?)?;
            cx.many(&all)
        },
    },
    Row { name: "aten.svd.default", arguments: "self, some=True, compute_uv=True", build: svd },
    Row {
        name: "aten.linalg_svdvals.default",
        arguments: "A, driver=None",
        build: |cx, a| {
            let x = cx.matrices(a, "A", "linalg.svdvals")?;
            let v = singular_values(cx, x)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.linalg_eigh.default",
        arguments: "self, UPLO='L'",
        build: |cx, a| {
            let x = lower(cx, a, "self", "linalg.eigh")?;
            let (w, v) = eigen(cx, x)?;
            cx.many(&[w, v])
        },
    },
    Row {
        name: "aten._linalg_eigh.default",
        arguments: "A, UPLO='L', compute_v=True",
        build: |cx, a| {
            let x = lower(cx, a, "A", "linalg.eigh")?;
            let (w, v) = if a.flag("compute_v", true)? {
                eigen(cx, x)?
            } else {
                (eigenvalues(cx, x)?, nothing(cx, dtype_of(x)?)?)
            };
            cx.many(&[w, v])
        },
    },
    Row {
        name: "aten.linalg_eigvalsh.default",
        arguments: "self, UPLO='L'",
        build: |cx, a| {
            let x = lower(cx, a, "self", "linalg.eigvalsh")?;
            let w = eigenvalues(cx, x)?;
            cx.one(w)
        },
    },
    Row {
        name: "aten.linalg_matrix_rank.default",
        arguments: "self, tol, hermitian=False",
        build: |cx, a| rank(cx, a, "self", (Some("tol"), None)),
    },
    Row {
        name: "aten.linalg_matrix_rank.tol_tensor",
        arguments: "input, tol, hermitian=False",
        build: |cx, a| rank(cx, a, "input", (Some("tol"), None)),
    },
    Row {
        name: "aten.linalg_matrix_rank.atol_rtol_float",
        arguments: "self, atol=None, rtol=None, hermitian=False",
        build: |cx, a| rank(cx, a, "self", (Some("atol"), Some("rtol"))),
    },
    Row {
        name: "aten.linalg_matrix_rank.atol_rtol_tensor",
        arguments: "input, atol=None, rtol=None, hermitian=False",
        build: |cx, a| rank(cx, a, "input", (Some("atol"), Some("rtol"))),
    },
];

/// U, S and Vh; U and Vh are square if `full`.
pub(super) fn singular(cx: &Cx, x: Value, full: bool) -> Result<[Value; 3]> {
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    let (d, k) = (dtype_of(x)?, cx.smaller(m, n)?);
    let spec = |sizes: &[Size]| (d, [&batch[..], sizes].concat());
    let (p, q) = if full { (m, n) } else { (k, k) };
    let types = vec![spec(&[p, m]), spec(&[k]), spec(&[q, n])];
    let made = cx.factorize(Factorization::Svd { full }, &[x], types)?;
    Ok([cx.turned(made[0])?, made[1], made[2]])
}

/// Singular values in descending order.
pub(in crate::capture::aten) fn singular_values(cx: &Cx, x: Value) -> Result<Value> {
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    let spec = (dtype_of(x)?, [&batch[..], &[cx.smaller(m, n)?]].concat());
    Ok(cx.factorize(Factorization::SingularValues, &[x], vec![spec])?[0])
}

/// U, S and V, of zeros without `compute_uv`.
fn svd(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.matrices(a, "self", "linalg.svd")?;
    if a.flag("compute_uv", true)? {
        let [u, s, vh] = singular(cx, x, !a.flag("some", true)?)?;
        let v = cx.turned(vh)?;
        return cx.many(&[u, s, v]);
    }
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    let zeros = |n: Size| cx.b.splat(dtype_of(x)?, &[&batch[..], &[n, n]].concat(), 0.0);
    let (u, s, v) = (zeros(m)?, singular_values(cx, x)?, zeros(n)?);
    cx.many(&[u, s, v])
}

/// Symmetric matrices with their elements in the lower triangle.
fn lower(cx: &mut Cx, a: &Args<'_>, name: &str, api: &str) -> Result<Value> {
    let x = cx.squares(a, name, api)?;
    match a.text("UPLO", "L")?.as_str() {
        "L" | "l" => Ok(x),
        "U" | "u" => cx.turned(x),
        other => Err(format!("Expected UPLO argument to be 'L' or 'U', but got {other}").into()),
    }
}

/// Eigenvalues in ascending order, and eigenvectors as columns.
pub(super) fn eigen(cx: &Cx, x: Value) -> Result<(Value, Value)> {
    let (batch, n, _) = cx.sizes_of_matrices(x)?;
    let d = dtype_of(x)?;
    let types = vec![(d, [&batch[..], &[n]].concat()), (d, cx.b.sizes_of(x)?)];
    let made = cx.factorize(Factorization::Eigh, &[x], types)?;
    Ok((made[0], cx.turned(made[1])?))
}

fn eigenvalues(cx: &Cx, x: Value) -> Result<Value> {
    let (batch, n, _) = cx.sizes_of_matrices(x)?;
    let spec = (dtype_of(x)?, [&batch[..], &[n]].concat());
    Ok(cx.factorize(Factorization::Eigenvalues, &[x], vec![spec])?[0])
}

/// A tolerance: a number, or a tensor over the batch. None: it was not given.
pub(super) fn tolerance(
    cx: &mut Cx,
    a: &Args<'_>,
    x: Value,
    name: Option<&str>,
) -> Result<Option<Value>> {
    let Some(name) = name.filter(|name| a.has(name)) else { return Ok(None) };
    let d = dtype_of(x)?;
    let v = match a.values.get(name) {
        Some(Val::Tensor(alias)) => {
            let v = cx.get(*alias)?;
            cx.convert(v, d)?
        }
        _ => cx.number(d, a.float(name, None)?)?,
    };
    Ok(Some(v))
}

/// The largest value that counts as zero: the larger of `atol` and `rtol` times the largest
/// magnitude of `values`, along a last dimension of size 1. Without `rtol` it is the dtype's epsilon
/// times the larger size of the matrix, or 0 where `atol` is above 0.
pub(super) fn bound(
    cx: &Cx,
    x: Value,
    values: Value,
    atol: Option<Value>,
    rtol: Option<Value>,
) -> Result<Value> {
    let (d, last) = (dtype_of(x)?, rank_of(values) as i64 - 1);
    let (_, m, n) = cx.sizes_of_matrices(x)?;
    let epsilon = if d == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let size = cx.convert(cx.size_value(cx.size_max(m, n)?)?, d)?;
    let column = |v: Value| cx.unsqueezed(v, rank_of(v));
    let (atol, rtol) = (atol.map(column).transpose()?, rtol.map(column).transpose()?);
    value(cx, |f| {
        let largest = f.of(values).abs().reduce(ReduceKind::Max, &[last], true);
        let default = f.of(size) * epsilon;
        match (atol, rtol) {
            (None, None) => largest * default,
            (None, Some(r)) => largest * f.of(r),
            (Some(t), Some(r)) => (largest * f.of(r)).max(f.of(t)),
            (Some(t), None) => {
                (largest * f.of(t).gt(0.0).select(default.number(0.0), default)).max(f.of(t))
            }
        }
    })
}

/// How many singular values, or magnitudes of eigenvalues, are above the tolerance. `tol` is
/// absolute, with a relative one of 0.
fn rank(
    cx: &mut Cx,
    a: &Args<'_>,
    name: &str,
    (atol, rtol): (Option<&str>, Option<&str>),
) -> Result<Outcome> {
    let x = cx.matrices(a, name, "linalg.matrix_rank")?;
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    if [m, n].iter().any(|s| s.known() == Some(0)) {
        let v = cx.b.splat(DType::I64, &batch, 0.0)?;
        return cx.one(v);
    }
    let only = rtol.is_none();
    let (atol, rtol) = (tolerance(cx, a, x, atol)?, tolerance(cx, a, x, rtol)?);
    let rtol = if only { Some(cx.number(dtype_of(x)?, 0.0)?) } else { rtol };
    let s = if a.flag("hermitian", false)? {
        cx.unary(UnaryKind::Abs, eigenvalues(cx, x)?)?
    } else {
        singular_values(cx, x)?
    };
    let bound = bound(cx, x, s, atol, rtol)?;
    let above = cx.convert(cx.compare(CompareKind::Gt, s, bound)?, DType::I64)?;
    let v = cx.reduced(ReduceKind::Sum, above, &[rank_of(above) as i64 - 1])?;
    cx.one(v)
}
