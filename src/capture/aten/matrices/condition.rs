//! Condition numbers and nuclear norms.
use super::{inverses::inverse, spectra::singular_values};
use crate::capture::aten::{
    Args, Cx, Outcome, Row,
    formula::value,
    linear::{of_matrix, order},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*};

/// Rows of this family.
pub(in crate::capture::aten) const ROWS: &[Row] = &[
    Row { name: "aten.linalg_cond.default", arguments: "self, p=None", build: condition },
    Row { name: "aten.linalg_cond.p_str", arguments: "self, p", build: condition },
    Row {
        name: "aten.nuclear_norm.default",
        arguments: "self, keepdim=False",
        build: |cx, a| {
            let x = cx.matrices(a, "self", "nuclear_norm")?;
            let v = of_matrix(cx, x, "nuc", (0, 1), a.flag("keepdim", false)?)?;
            cx.one(v)
        },
    },
];

/// The quotient of the extreme singular values; for other norms the norm of A times that of its
/// inverse, infinite for a singular matrix.
fn condition(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.matrices(a, "self", "linalg.cond")?;
    let order = order(a, "p")?.unwrap_or_else(|| "2".into());
    let (batch, m, n) = cx.sizes_of_matrices(x)?;
    if [m, n].iter().any(|s| s.known() == Some(0)) {
        let v = cx.b.splat(dtype_of(x)?, &batch, 0.0)?;
        return cx.one(v);
    }
    if order == "2" || order == "-2" {
        let s = singular_values(cx, x)?;
        let last = [rank_of(s) as i64 - 1];
        let v = value(cx, |f| {
            let [most, least] =
                [ReduceKind::Max, ReduceKind::Min].map(|kind| f.of(s).reduce(kind, &last, false));
            if order == "2" { most / least } else { least / most }
        })?;
        return cx.one(v);
    }
    let x = cx.squares(a, "self", "linalg.cond")?;
    let (y, info) = inverse(cx, x)?;
    let dims = (rank_of(x) as i64 - 2, rank_of(x) as i64 - 1);
    // The inverse of a singular matrix counts as 0, of which norms are defined.
    let lone = cx.unsqueezed(cx.unsqueezed(info, rank_of(info))?, rank_of(info) + 1)?;
    let y = value(cx, |f| f.of(lone).ne(0.0).select(0.0, f.of(y)))?;
    let (p, q) = (of_matrix(cx, x, &order, dims, false)?, of_matrix(cx, y, &order, dims, false)?);
    let v = value(cx, |f| f.of(info).ne(0.0).select(f64::INFINITY, f.of(p) * f.of(q)))?;
    cx.one(v)
}
