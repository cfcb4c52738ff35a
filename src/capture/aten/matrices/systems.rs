//! Systems of equations: by LU, Cholesky and triangular factors.
use super::factors::{Lu, factor};
use crate::capture::aten::{Args, Cx, Outcome, Row, tools::*};
use kiln_dialects::{ir::*, value::DType};
use kiln_linalg::{Api, Factorization};

/// Rows of this family.
pub(in crate::capture::aten) const ROWS: &[Row] = &[
    Row {
        name: "aten.linalg_solve.default",
        arguments: "A, B, left=True",
        build: |cx, a| {
            let (x, _) = solved(cx, a, true)?;
            cx.one(x)
        },
    },
    Row {
        name: "aten.linalg_solve_ex.default",
        arguments: "A, B, left=True, check_errors=False",
        build: |cx, a| {
            let checked = a.flag("check_errors", false)?;
            let (x, lu) = solved(cx, a, checked)?;
            cx.many(&[x, lu.info])
        },
    },
    Row {
        name: "aten._linalg_solve_ex.default",
        arguments: "A, B, left=True, check_errors=False",
        build: |cx, a| {
            let checked = a.flag("check_errors", false)?;
            let (x, lu) = solved(cx, a, checked)?;
            cx.many(&[x, lu.packed, lu.pivots, lu.info])
        },
    },
    Row {
        name: "aten.lu_solve.default",
        arguments: "self, LU_data, LU_pivots",
        build: |cx, a| {
            let packed = cx.squares(a, "LU_data", "torch.lu_solve")?;
            let (b, pivots) = (cx.tensor(a, "self")?, cx.tensor(a, "LU_pivots")?);
            let v = by_lu(cx, packed, pivots, b, false)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.linalg_lu_solve.default",
        arguments: "LU, pivots, B, left=True, adjoint=False",
        build: |cx, a| {
            let packed = cx.squares(a, "LU", "torch.linalg.lu_solve")?;
            let (b, pivots) = (cx.tensor(a, "B")?, cx.tensor(a, "pivots")?);
            let (left, adjoint) = (a.flag("left", true)?, a.flag("adjoint", false)?);
            let v = if left {
                by_lu(cx, packed, pivots, b, adjoint)?
            } else {
                cx.turned(by_lu(cx, packed, pivots, cx.turned(b)?, !adjoint)?)?
            };
            cx.one(v)
        },
    },
    Row {
        name: "aten.linalg_solve_triangular.default",
        arguments: "self, B, upper, left=True, unitriangular=False",
        build: |cx, a| {
            let x = cx.squares(a, "self", "linalg.solve_triangular")?;
            let b = cx.matrices(a, "B", "linalg.solve_triangular")?;
            let (upper, unit) = (a.flag("upper", false)?, a.flag("unitriangular", false)?);
            let v = if a.flag("left", true)? {
                triangular(cx, x, b, upper, unit)?
            } else {
                // X A = B is A' X' = B'.
                cx.turned(triangular(cx, cx.turned(x)?, cx.turned(b)?, !upper, unit)?)?
            };
            cx.one(v)
        },
    },
    Row {
        name: "aten.triangular_solve.default",
        arguments: "self, A, upper=True, transpose=False, unitriangular=False",
        build: |cx, a| {
            let x = cx.squares(a, "A", "torch.triangular_solve")?;
            let b = cx.matrices(a, "self", "torch.triangular_solve")?;
            let (x, b) = cx.same_batch(x, b)?;
            let (upper, unit) = (a.flag("upper", true)?, a.flag("unitriangular", false)?);
            let v = if a.flag("transpose", false)? {
                triangular(cx, cx.turned(x)?, b, !upper, unit)?
            } else {
                triangular(cx, x, b, upper, unit)?
            };
            cx.many(&[v, x])
        },
    },
    Row {
        name: "aten.cholesky_solve.default",
        arguments: "self, input2, upper=False",
        build: |cx, a| cholesky_solve(cx, a, "input2"),
    },
    Row {
        name: "aten._cholesky_solve_helper.default",
        arguments: "self, A, upper",
        build: |cx, a| cholesky_solve(cx, a, "A"),
    },
    Row {
        name: "aten.linalg_tensorsolve.default",
        arguments: "self, other, dims=None",
        build: tensorsolve,
    },
];

/// The solution of A X = B for a triangular A; batches broadcast. Err: A and B do not fit.
pub(super) fn triangular(cx: &Cx, x: Value, b: Value, upper: bool, unit: bool) -> Result<Value> {
    let (x, b) = system(cx, x, b)?;
    let spec = (dtype_of(b)?, cx.b.sizes_of(b)?);
    let made = cx.factorize(Factorization::Solve { upper, unit }, &[x, b], vec![spec])?;
    Ok(made[0])
}

/// Matrices and right-hand sides of one batch. Err: they do not fit.
fn system(cx: &Cx, x: Value, b: Value) -> Result<(Value, Value)> {
    let (x, b) = cx.same_batch(x, b)?;
    let sizes = cx.b.sizes_of(b)?;
    let (_, n, _) = cx.sizes_of_matrices(x)?;
    let rows = sizes[sizes.len() - 2];
    if n.known().zip(rows.known()).is_some_and(|(n, m)| n != m) {
        return Err(
            "linalg.solve_triangular: Incompatible shapes of A and B for the equation AX = B"
                .into(),
        );
    }
    if dtype_of(x)? != dtype_of(b)? {
        return Err("linalg.solve_triangular: Expected A and B to have the same dtype".into());
    }
    Ok((x, b))
}

/// The solution of A X = B, or of A' X = B, for A = P L U.
pub(super) fn by_lu(
    cx: &Cx,
    packed: Value,
    pivots: Value,
    b: Value,
    adjoint: bool,
) -> Result<Value> {
    let column = cx.unsqueezed(cx.convert(pivots, DType::I32)?, rank_of(pivots))?;
    let (packed, b) = system(cx, packed, b)?;
    let (column, _) = cx.same_batch(column, b)?;
    let pivots = cx.dropped(column, rank_of(column) - 1)?;
    let (across, b) = (cx.turned(packed)?, cx.turned(b)?);
    let spec = (dtype_of(b)?, cx.b.sizes_of(b)?);
    let f = Factorization::LuSolve { adjoint };
    cx.turned(cx.factorize(f, &[across, pivots, b], vec![spec])?[0])
}

/// The solution of A X = B, or of X A = B, and A's factorization. B holds vectors if it has one
/// dimension, or A's shape without the last dimension.
fn solved(cx: &mut Cx, a: &Args<'_>, checked: bool) -> Result<(Value, Lu)> {
    let x = cx.squares(a, "A", "linalg.solve")?;
    let (b, left) = (cx.tensor(a, "B")?, a.flag("left", true)?);
    if dtype_of(b)? != dtype_of(x)? {
        return Err("linalg.solve: Expected A and B to have the same dtype".into());
    }
    let (of, to) = (x.ty().dims(), b.ty().dims());
    let vector = to.len() == 1 || to.len() + 1 == of.len() && to[..] == of[..to.len()];
    if vector && !left {
        return Err("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)".into());
    }
    let lu = factor(cx, x)?;
    if checked {
        cx.check_info(Api::Solve, lu.info)?;
    }
    let v = match (vector, left) {
        (true, _) => {
            let v = by_lu(cx, lu.packed, lu.pivots, cx.unsqueezed(b, to.len())?, false)?;
            cx.dropped(v, rank_of(v) - 1)?
        }
        (false, true) => by_lu(cx, lu.packed, lu.pivots, b, false)?,
        (false, false) => cx.turned(by_lu(cx, lu.packed, lu.pivots, cx.turned(b)?, true)?)?,
    };
    Ok((v, lu))
}

/// The solution of L L' X = B, or of U' U X = B.
pub(super) fn by_cholesky(cx: &Cx, factor: Value, b: Value, upper: bool) -> Result<Value> {
    let across = cx.turned(factor)?;
    let (low, high) = if upper { (across, factor) } else { (factor, across) };
    triangular(cx, high, triangular(cx, low, b, false, false)?, true, false)
}

fn cholesky_solve(cx: &mut Cx, a: &Args<'_>, name: &str) -> Result<Outcome> {
    let factor = cx.squares(a, name, "cholesky_solve")?;
    let b = cx.matrices(a, "self", "cholesky_solve")?;
    let v = by_cholesky(cx, factor, b, a.flag("upper", false)?)?;
    cx.one(v)
}

/// Dimensions `dims` of A move to its end; those behind the shape of B are one side of a square
/// matrix.
fn tensorsolve(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, b) = (cx.tensor(a, "self")?, cx.tensor(a, "other")?);
    let rank = rank_of(x);
    let dims = a.ints("dims")?.unwrap_or_default();
    let dims = dims.iter().map(|d| wrap(*d, rank)).collect::<Result<Vec<_>, _>>()?;
    let order: Vec<i64> = (0..rank)
        .filter(|d| !dims.contains(d))
        .chain(dims.iter().copied())
        .map(|d| d as i64)
        .collect();
    let x = cx.transpose(x, order)?;
    let sizes = cx.b.sizes_of(x)?;
    let rest = sizes.get(rank_of(b)..).unwrap_or_default().to_vec();
    let n = cx.size_product(&rest)?;
    let square = cx.reshape(x, vec![n, n])?;
    if !matches!(dtype_of(x)?, DType::F32 | DType::F64) || dtype_of(b)? != dtype_of(x)? {
        return Err(
            "linalg.tensorsolve: Expected self and other of one dtype, float or double".into()
        );
    }
    let lu = factor(cx, square)?;
    cx.check_info(Api::Solve, lu.info)?;
    let column = cx.reshape(b, vec![n, Size::Static(1)])?;
    let v = by_lu(cx, lu.packed, lu.pivots, column, false)?;
    let v = cx.reshape(v, rest)?;
    cx.one(v)
}
