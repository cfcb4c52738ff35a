//! Cholesky and LU factorizations, and determinants.
use super::{identity, nothing, pivoting};
use crate::capture::aten::{Args, Cx, Outcome, Row, formula::value, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};
use kiln_linalg::{Api, Factorization};

/// Rows of this family.
pub(in crate::capture::aten) const ROWS: &[Row] = &[
    Row {
        name: "aten.linalg_cholesky.default",
        arguments: "self, upper=False",
        build: checked_cholesky,
    },
    Row { name: "aten.cholesky.default", arguments: "self, upper=False", build: checked_cholesky },
    Row {
        name: "aten.linalg_cholesky_ex.default",
        arguments: "self, upper=False, check_errors=False",
        build: |cx, a| {
            let checked = a.flag("check_errors", false)?;
            let (l, info) = cholesky(cx, a, checked)?;
            cx.many(&[l, info])
        },
    },
    Row {
        name: "aten._linalg_check_errors.default",
        arguments: "info, api_name, is_matrix",
        build: |cx, a| {
            let (info, name) = (cx.tensor(a, "info")?, a.text("api_name", "")?);
            let known = [
                ("cholesky", Api::Cholesky),
                ("inv", Api::Inverse),
                ("ldl_factor", Api::LdlFactor),
                ("lu_factor", Api::LuFactor),
                ("solve", Api::Solve),
            ];
            let found = known.iter().find(|(part, _)| name.contains(part));
            let (_, api) = found.ok_or_else(|| format!("has no sentence for {name}"))?;
            cx.check_info(*api, info)?;
            Ok(Outcome::Many(vec![]))
        },
    },
    Row {
        name: "aten.linalg_lu_factor.default",
        arguments: "A, pivot=True",
        build: |cx, a| {
            let lu = factored(cx, a, "A", "linalg.lu_factor", true)?;
            cx.many(&[lu.packed, lu.pivots])
        },
    },
    Row {
        name: "aten.linalg_lu_factor_ex.default",
        arguments: "A, pivot=True, check_errors=False",
        build: |cx, a| {
            let checked = a.flag("check_errors", false)?;
            let lu = factored(cx, a, "A", "linalg.lu_factor_ex", checked)?;
            cx.many(&[lu.packed, lu.pivots, lu.info])
        },
    },
    Row {
        name: "aten._lu_with_info.default",
        arguments: "self, pivot=True, check_errors=True",
        build: |cx, a| {
            let checked = a.flag("check_errors", true)?;
            let lu = factored(cx, a, "self", "torch.lu", checked)?;
            cx.many(&[lu.packed, lu.pivots, lu.info])
        },
    },
    Row {
        name: "aten.linalg_lu.default",
        arguments: "A, pivot=True",
        build: |cx, a| {
            let lu = factored(cx, a, "A", "linalg.lu", false)?;
            let (l, u) = triangles(cx, lu.packed)?;
            let p = permutation(cx, lu.pivots, lu.packed)?;
            cx.many(&[p, l, u])
        },
    },
    Row {
        name: "aten.lu_unpack.default",
        arguments: "LU_data, LU_pivots, unpack_data=True, unpack_pivots=True",
        build: |cx, a| {
            let packed = cx.matrices(a, "LU_data", "torch.lu_unpack")?;
            let d = dtype_of(packed)?;
            let (l, u) = if a.flag("unpack_data", true)? {
                triangles(cx, packed)?
            } else {
                (nothing(cx, d)?, nothing(cx, d)?)
            };
            let p = if a.flag("unpack_pivots", true)? {
                let pivots = cx.tensor(a, "LU_pivots")?;
                permutation(cx, pivots, packed)?
            } else {
                nothing(cx, d)?
            };
            cx.many(&[p, l, u])
        },
    },
    Row { name: "aten.linalg_det.default", arguments: "A", build: |cx, a| det(cx, a, "A") },
    Row { name: "aten.det.default", arguments: "self", build: |cx, a| det(cx, a, "self") },
    Row {
        name: "aten._linalg_det.default",
        arguments: "A",
        build: |cx, a| {
            let x = cx.squares(a, "A", "linalg.det")?;
            let lu = factor(cx, x)?;
            let v = determinant(cx, &lu)?;
            cx.many(&[v, lu.packed, lu.pivots])
        },
    },
    Row {
        name: "aten.linalg_slogdet.default",
        arguments: "A",
        build: |cx, a| slogdet(cx, a, "A", false),
    },
    Row {
        name: "aten.slogdet.default",
        arguments: "self",
        build: |cx, a| slogdet(cx, a, "self", false),
    },
    Row {
        name: "aten._linalg_slogdet.default",
        arguments: "A",
        build: |cx, a| slogdet(cx, a, "A", true),
    },
    Row {
        name: "aten.logdet.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.squares(a, "self", "logdet")?;
            let lu = factor(cx, x)?;
            let (sign, log) = sign_and_log(cx, &lu)?;
            let v = value(cx, |f| f.of(sign).lt(0.0).select(f64::NAN, f.of(log)))?;
            cx.one(v)
        },
    },
];

/// The factor and `info`. The upper factor of A's upper triangle is the transpose of the lower one
/// of the lower triangle of A'.
fn cholesky(cx: &mut Cx, a: &Args<'_>, checked: bool) -> Result<(Value, Value)> {
    let (x, upper) = (cx.squares(a, "self", "linalg.cholesky")?, a.flag("upper", false)?);
    let (batch, _, _) = cx.sizes_of_matrices(x)?;
    let x = if upper { cx.turned(x)? } else { x };
    let types = vec![(dtype_of(x)?, cx.b.sizes_of(x)?), (DType::I32, batch)];
    let made = cx.factorize(Factorization::Cholesky, &[x], types)?;
    if checked {
        cx.check_info(Api::Cholesky, made[1])?;
    }
    let l = cx.where_columns(CompareKind::Le, made[0])?;
    Ok((if upper { cx.turned(l)? } else { l }, made[1]))
}

fn checked_cholesky(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (l, _) = cholesky(cx, a, true)?;
    cx.one(l)
}

/// A packed LU factorization.
pub(super) struct Lu {
    /// L below the diagonal and U above.
    pub packed: Value,
    /// Swaps of rows, i32 from 1.
    pub pivots: Value,
    /// The first zero on U's diagonal from 1, or 0.
    pub info: Value,
}

/// P A = L U with partial pivoting.
pub(super) fn factor(cx: &Cx, x: Value) -> Result<Lu> {
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    let pivots = [&batch[..], &[cx.smaller(m, n)?]].concat();
    let across = cx.turned(x)?;
    let packed = (dtype_of(x)?, cx.b.sizes_of(across)?);
    let types = vec![packed, (DType::I32, pivots), (DType::I32, batch)];
    let made = cx.factorize(Factorization::Lu, &[across], types)?;
    Ok(Lu { packed: cx.turned(made[0])?, pivots: made[1], info: made[2] })
}

fn factored(cx: &mut Cx, a: &Args<'_>, name: &str, api: &str, checked: bool) -> Result<Lu> {
    pivoting(a, api)?;
    let x = cx.matrices(a, name, api)?;
    let lu = factor(cx, x)?;
    if checked {
        cx.check_info(Api::LuFactor, lu.info)?;
    }
    Ok(lu)
}

/// L with its unit diagonal, m×k, and U, k×n.
fn triangles(cx: &Cx, packed: Value) -> Result<(Value, Value)> {
    let (_, m, n) = cx.sizes_of_matrices(packed)?;
    let k = cx.smaller(m, n)?;
    let low = cx.first(packed, 1, k)?;
    let (low, one) = (cx.where_columns(CompareKind::Lt, low)?, identity(cx, low)?);
    let high = cx.where_columns(CompareKind::Ge, cx.first(packed, 2, k)?)?;
    Ok((cx.binary(BinaryKind::Add, low, one)?, high))
}

/// The order of rows that pivots make of the rows of `packed`: row i of the product of swaps with A
/// is row `order[i]` of A.
fn order(cx: &Cx, pivots: Value, packed: Value) -> Result<Value> {
    let (batch, m, _) = cx.sizes_of_matrices(packed)?;
    let sizes = [&batch[..], &[m]].concat();
    let rows = cx.iota(DType::I32, sizes.clone(), batch.len())?;
    let inputs = [cx.convert(pivots, DType::I32)?, rows];
    let made = cx.factorize(Factorization::Permutation, &inputs, vec![(DType::I32, sizes)])?;
    cx.convert(made[0], DType::I64)
}

/// P of A = P L U: one at row `order[i]` of column i.
fn permutation(cx: &Cx, pivots: Value, packed: Value) -> Result<Value> {
    let order = order(cx, pivots, packed)?;
    let (batch, m, _) = cx.sizes_of_matrices(packed)?;
    let n = batch.len();
    let sizes = [&batch[..], &[m, m]].concat();
    let row = cx.iota(DType::I64, sizes, n)?;
    let ones = cx.compare(CompareKind::Eq, row, cx.unsqueezed(order, n)?)?;
    cx.convert(ones, dtype_of(packed)?)
}

/// 1 or -1: whether the number of swaps is even.
fn parity(cx: &Cx, lu: &Lu) -> Result<Value> {
    let last = rank_of(lu.pivots) - 1;
    let place = cx.iota(DType::I32, cx.b.sizes_of(lu.pivots)?, last)?;
    let d = dtype_of(lu.packed)?;
    let (one, minus) = (cx.number(d, 1.0)?, cx.number(d, -1.0)?);
    let stays = value(cx, |f| f.of(lu.pivots).eq(f.of(place) + 1.0))?;
    cx.reduced(ReduceKind::Prod, cx.select(stays, one, minus)?, &[last as i64])
}

/// The product of U's diagonal, with the sign of the swaps.
fn determinant(cx: &Cx, lu: &Lu) -> Result<Value> {
    let (diagonal, parity) = (cx.diagonals(lu.packed)?, parity(cx, lu)?);
    let last = rank_of(diagonal) as i64 - 1;
    let all = cx.reduced(ReduceKind::Prod, diagonal, &[last])?;
    cx.binary(BinaryKind::Mul, all, parity)
}

fn det(cx: &mut Cx, a: &Args<'_>, name: &str) -> Result<Outcome> {
    let x = cx.squares(a, name, "linalg.det")?;
    let lu = factor(cx, x)?;
    let v = determinant(cx, &lu)?;
    cx.one(v)
}

/// The determinant's sign, and the logarithm of its magnitude as a sum over U's diagonal.
fn sign_and_log(cx: &Cx, lu: &Lu) -> Result<(Value, Value)> {
    let (diagonal, parity) = (cx.diagonals(lu.packed)?, parity(cx, lu)?);
    let last = rank_of(diagonal) as i64 - 1;
    let signs = cx.unary(UnaryKind::Sign, diagonal)?;
    let sign = cx.reduced(ReduceKind::Prod, signs, &[last])?;
    let log = value(cx, |f| f.of(diagonal).abs().ln().reduce(ReduceKind::Sum, &[last], false))?;
    Ok((cx.binary(BinaryKind::Mul, sign, parity)?, log))
}

fn slogdet(cx: &mut Cx, a: &Args<'_>, name: &str, factors: bool) -> Result<Outcome> {
    let x = cx.squares(a, name, "linalg.slogdet")?;
    let lu = factor(cx, x)?;
    let (sign, log) = sign_and_log(cx, &lu)?;
    if factors { cx.many(&[sign, log, lu.packed, lu.pivots]) } else { cx.many(&[sign, log]) }
}
