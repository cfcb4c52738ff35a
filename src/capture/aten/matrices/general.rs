//! Eigenvalues of any square matrix, and LDL factorizations of symmetric ones.
use super::super::{Args, Cx, Outcome, Row, Val, check::scalar_name, tools::*};
use super::square;
use kiln_dialects::{ir::*, sym::Dim, value::DType};
use kiln_linalg::{Api, Factorization};

/// Rows of this family that take complex matrices too.
pub(in crate::capture::aten) const COMPLEX: &[Row] = &[
    Row { name: "aten.linalg_eig.default", arguments: "self", build: eig },
    Row { name: "aten.linalg_eigvals.default", arguments: "self", build: eigvals },
    Row { name: "aten._linalg_eigvals.default", arguments: "self", build: eigvals },
];

/// Rows of this family.
pub(in crate::capture::aten) const ROWS: &[Row] = &[
    Row {
        name: "aten.linalg_ldl_factor.default",
        arguments: "self, hermitian=False",
        build: |cx, a| {
            let [packed, pivots, _] = ldl(cx, a, "torch.linalg.ldl_factor", true)?;
            cx.many(&[packed, pivots])
        },
    },
    Row {
        name: "aten.linalg_ldl_factor_ex.default",
        arguments: "self, hermitian=False, check_errors=False",
        build: |cx, a| {
            let checked = a.flag("check_errors", false)?;
            let all = ldl(cx, a, "torch.linalg.ldl_factor_ex", checked)?;
            cx.many(&all)
        },
    },
    Row {
        name: "aten.linalg_ldl_solve.default",
        arguments: "LD, pivots, B, hermitian=False",
        build: ldl_solve,
    },
];

/// The parts of square matrices of f32 or f64; a real one has no second.
fn parts(cx: &mut Cx, a: &Args<'_>, api: &str) -> Result<Vec<Value>> {
    let (re, im) = cx.halves(a, "self")?;
    let d = dtype_of(re)?;
    if !matches!(d, DType::F32 | DType::F64) {
        return Err(format!("{api}: takes no matrices of {}", scalar_name(d)).into());
    }
    if rank_of(re) < 2 {
        return Err(format!("{api}: The input tensor A must have at least 2 dimensions.").into());
    }
    square(re, api)?;
    Ok([Some(re), im].into_iter().flatten().collect())
}

/// A complex result.
fn complex(cx: &mut Cx, re: Value, im: Value) -> Val {
    Val::Complex(cx.store.fresh(re), cx.store.fresh(im))
}

/// Eigenvalues, and eigenvectors as columns, in any order.
fn eig(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let all = parts(cx, a, "linalg.eig")?;
    let (d, sizes) = (dtype_of(all[0])?, cx.b.sizes_of(all[0])?);
    let (values, vectors) = ((d, sizes[..sizes.len() - 1].to_vec()), (d, sizes));
    let types = vec![values.clone(), values, vectors.clone(), vectors];
    let made = cx.factorize(Factorization::Eig { complex: all.len() == 2 }, &all, types)?;
    let all = [complex(cx, made[0], made[1]), complex(cx, made[2], made[3])];
    Ok(Outcome::Many(all.into()))
}

fn eigvals(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let all = parts(cx, a, "linalg.eigvals")?;
    let (d, mut sizes) = (dtype_of(all[0])?, cx.b.sizes_of(all[0])?);
    sizes.pop();
    let f = Factorization::Eigvals { complex: all.len() == 2 };
    let made = cx.factorize(f, &all, vec![(d, sizes); 2])?;
    Ok(Outcome::One(complex(cx, made[0], made[1])))
}

/// Packed factors, pivots and `info` of the lower triangle. Real matrices are the same with
/// `hermitian`.
fn ldl(cx: &mut Cx, a: &Args<'_>, api: &str, checked: bool) -> Result<[Value; 3]> {
    let x = cx.squares(a, "self", api)?;
    let (batch, n, _) = cx.sizes_of_matrices(x)?;
    let pivots = (DType::I32, [&batch[..], &[n]].concat());
    let types = vec![(dtype_of(x)?, cx.b.sizes_of(x)?), pivots, (DType::I32, batch)];
    let made = cx.factorize(Factorization::Ldl, &[x], types)?;
    if checked {
        cx.check_info(Api::LdlFactor, made[2])?;
    }
    Ok([made[0], made[1], made[2]])
}

/// The solution of A X = B for packed factors of A; batches broadcast.
fn ldl_solve(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    const API: &str = "torch.linalg.ldl_solve";
    let (packed, b) = (cx.squares(a, "LD", API)?, cx.matrices(a, "B", API)?);
    let pivots = cx.tensor(a, "pivots")?;
    let (of, to, swaps) = (packed.ty().dims(), b.ty().dims(), pivots.ty().dims());
    let differ = |x: &Dim, y: &Dim| x.known().zip(y.known()).is_some_and(|(x, y)| x != y);
    if differ(&of[of.len() - 1], &to[to.len() - 2]) {
        return Err(format!(
            "Incompatible matrix sizes for {API}: each A matrix is {0} by {0} but each b matrix is {1} by {2}",
            of[of.len() - 1], to[to.len() - 2], to[to.len() - 1]
        )
        .into());
    }
    let fits = swaps.len() + 1 == of.len() && !swaps.iter().zip(&of).any(|(x, y)| differ(x, y));
    if !fits || dtype_of(pivots)?.is_float() {
        return Err(format!(
            "{API}: Expected LD.shape[:-1] and pivots.shape to be the same, and pivots to be integers"
        )
        .into());
    }
    if dtype_of(packed)? != dtype_of(b)? {
        return Err(format!("{API}: Expected LD and B to have the same dtype").into());
    }
    let column = cx.unsqueezed(cx.convert(pivots, DType::I32)?, rank_of(pivots))?;
    let (packed, b) = cx.same_batch(packed, b)?;
    let (column, _) = cx.same_batch(column, b)?;
    let pivots = cx.dropped(column, rank_of(column) - 1)?;
    let spec = (dtype_of(b)?, cx.b.sizes_of(b)?);
    let v = cx.factorize(Factorization::LdlSolve, &[packed, pivots, b], vec![spec])?[0];
    cx.one(v)
}
