//! Products and norms of vectors and matrices beyond plain matrix products.
use super::{
    Args, Cx, Outcome, Row,
    contract::plus,
    formula::value,
    matrices::{identity, inverses::checked_inverse, spectra::singular_values, square},
    promote::result_type,
    reduce::{keep_dims, p_norm},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.addmv.default",
        arguments: "self, mat, vec, beta=1, alpha=1",
        build: |cx, a| {
            let (lhs, rhs) = (cx.tensor(a, "mat")?, cx.tensor(a, "vec")?);
            let v = cx.b.add(&Matmul { lhs, rhs })?;
            plus(cx, a, v)
        },
    },
    Row {
        name: "aten.addbmm.default",
        arguments: "self, batch1, batch2, beta=1, alpha=1",
        build: |cx, a| {
            let (x, y) = (cx.tensor(a, "batch1")?, cx.tensor(a, "batch2")?);
            let v = contracted(cx, x, y, vec![0, 2], vec![0, 1])?;
            plus(cx, a, v)
        },
    },
    Row { name: "aten.addr.default", arguments: "self, vec1, vec2, beta=1, alpha=1", build: addr },
    Row { name: "aten.inner.default", arguments: "self, other", build: inner },
    Row {
        name: "aten.tensordot.default",
        arguments: "self, other, dims_self, dims_other",
        build: |cx, a| {
            let (x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "other")?);
            let dims = |name: &str, rank: usize| {
                let all = a.ints(name)?.unwrap_or_default();
                all.iter().map(|d| wrap(*d, rank).map(|d| d as i64)).collect::<Result<Vec<_>, _>>()
            };
            let (p, q) = (dims("dims_self", rank_of(x))?, dims("dims_other", rank_of(y))?);
            if p.len() != q.len() {
                return Err("both dimension lists should have same length".into());
            }
            // A contracted dimension of size 1 broadcasts: the other one is summed.
            let alone = |x: Value, p: &[i64], y: Value, q: &[i64]| -> Result<Value> {
                let size = |v: Value, d: i64| v.ty().dims()[d as usize].known();
                let ones = p.iter().zip(q);
                let ones = ones.filter(|(p, q)| size(x, **p) == Some(1) && size(y, **q) != Some(1));
                let dims: Vec<i64> = ones.map(|(_, q)| *q).collect();
                if dims.is_empty() {
                    return Ok(y);
                }
                super::reduce::keep_dims(cx, y, cx.reduced(ReduceKind::Sum, y, &dims)?, &dims)
            };
            let (x, y) = (alone(y, &q, x, &p)?, alone(x, &p, y, &q)?);
            let v = contracted(cx, x, y, p, q)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.vdot.default",
        arguments: "self, other",
        build: |cx, a| {
            let (x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "other")?);
            if rank_of(x) != 1 || rank_of(y) != 1 {
                return Err("1D tensors expected".into());
            }
            let v = contracted(cx, x, y, vec![0], vec![0])?;
            cx.one(v)
        },
    },
    Row { name: "aten.linalg_vecdot.default", arguments: "x, y, dim=-1", build: vecdot },
    Row {
        name: "aten.linalg_cross.default",
        arguments: "self, other, dim=-1",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "self", "other")?;
            if rank_of(x) != rank_of(y) {
                return Err("linalg.cross: inputs must have the same number of dimensions.".into());
            }
            let d = wrap(a.int("dim", Some(-1))?, rank_of(x))?;
            cross(cx, x, y, d)
        },
    },
    Row {
        name: "aten.cross.default",
        arguments: "self, other, dim=None",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "self", "other")?;
            let (x, y) = cx.broadcast(x, y)?;
            let d = if a.has("dim") {
                wrap(a.int("dim", None)?, rank_of(x))?
            } else {
                x.ty()
                    .dims()
                    .iter()
                    .position(|n| n.known() == Some(3))
                    .ok_or("no dimension of size 3 in input")?
            };
            cross(cx, x, y, d)
        },
    },
    Row {
        name: "aten.linalg_norm.default",
        arguments: "self, ord=None, dim=None, keepdim=False, dtype=None",
        build: norm,
    },
    Row {
        name: "aten.linalg_norm.ord_str",
        arguments: "self, ord, dim=None, keepdim=False, dtype=None",
        build: norm,
    },
    Row {
        name: "aten.linalg_matrix_norm.default",
        arguments: "self, ord, dim=[-2,-1], keepdim=False, dtype=None",
        build: matrix_norm,
    },
    Row {
        name: "aten.linalg_matrix_norm.str_ord",
        arguments: "self, ord='fro', dim=[-2,-1], keepdim=False, dtype=None",
        build: matrix_norm,
    },
    Row { name: "aten.linalg_multi_dot.default", arguments: "tensors", build: multi_dot },
    Row { name: "aten.linalg_matrix_power.default", arguments: "self, n", build: matrix_power },
    Row { name: "aten.matrix_exp.default", arguments: "self", build: matrix_exp },
];

/// A product summed over pairs of dimensions; the others of both in order.
fn contracted(
    cx: &Cx,
    x: Value,
    y: Value,
    lhs_contract: Vec<i64>,
    rhs_contract: Vec<i64>,
) -> Result<Value> {
    if dtype_of(x)? != dtype_of(y)? {
        return Err("both inputs should have same dtype".into());
    }
    cx.b.add(&DotGeneral {
        lhs: x,
        rhs: y,
        lhs_batch: vec![],
        rhs_batch: vec![],
        lhs_contract,
        rhs_contract,
        element_type: None,
    })
}

/// beta * self + alpha * vec1 vec2'; beta 0 ignores self, even NaN.
fn addr(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (mut own, x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "vec1")?, cx.tensor(a, "vec2")?);
    if rank_of(x) != 1 || rank_of(y) != 1 {
        return Err("addr: Expected 1-D argument vec1 and vec2".into());
    }
    // Types are promoted after all have the result's rank.
    if rank_of(own) == 0 {
        own = cx.reshape(own, vec![Size::Static(1); 2])?;
    }
    let d = result_type(&[own, x, y], &[])?;
    let (own, x, y) = (cx.convert(own, d)?, cx.convert(x, d)?, cx.convert(y, d)?);
    let (alpha, beta) = (a.float("alpha", Some(1.0))?, a.float("beta", Some(1.0))?);
    let (m, n) = (cx.b.size_of(x, 0)?, cx.b.size_of(y, 0)?);
    let (x, y) = (cx.spread(x, &[0], &[m, n])?, cx.spread(y, &[1], &[m, n])?);
    let v = value(cx, |f| {
        if d == DType::I1 {
            let v = f.of(x) & f.of(y);
            let v = if alpha == 0.0 { v & !v } else { v };
            return if beta == 0.0 { v } else { v | f.of(own) };
        }
        let v = f.of(x) * f.of(y);
        let v = if alpha == 1.0 { v } else { v * alpha };
        match beta {
            0.0 => v,
            1.0 => f.of(own) + v,
            beta => f.of(own) * beta + v,
        }
    })?;
    cx.one(v)
}

/// A product over the last dimensions; with a number, elementwise.
fn inner(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = (cx.tensor(a, "self")?, cx.tensor(a, "other")?);
    let (m, n) = (rank_of(x), rank_of(y));
    let v = if m == 0 || n == 0 {
        let (x, y) = cx.promoted(a, "self", "other")?;
        cx.binary(BinaryKind::Mul, x, y)?
    } else {
        contracted(cx, x, y, vec![m as i64 - 1], vec![n as i64 - 1])?
    };
    cx.one(v)
}

fn vecdot(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, y) = cx.promoted(a, "x", "y")?;
    let (x, y) = cx.broadcast(x, y)?;
    let axis = wrap(a.int("dim", Some(-1))?, rank_of(x))? as i64;
    let d = dtype_of(x)?;
    let dims = if rank_of(x) == 0 { vec![] } else { vec![axis] };
    let v = value(cx, |f| {
        let (x, y) = (f.of(x).to(super::axes::wide(d)), f.of(y).to(super::axes::wide(d)));
        (x * y).reduce(ReduceKind::Sum, &dims, false).to(d)
    })?;
    cx.one(v)
}

/// Component i is a[i+1] b[i+2] - a[i+2] b[i+1], cyclically.
fn cross(cx: &mut Cx, x: Value, y: Value, axis: usize) -> Result<Outcome> {
    let (x, y) = cx.broadcast(x, y)?;
    if x.ty().dims()[axis].known().is_some_and(|n| n != 3) {
        return Err(format!("linalg.cross: inputs dimension {axis} must have length 3.").into());
    }
    let i = cx.count(Size::Static(3))?;
    let turned =
        |v: Value, by: f64| cx.take_axis(v, value(cx, |f| (f.of(i) + by).remainder(3.0))?, axis);
    let (p, q) = (turned(x, 1.0)?, turned(y, 2.0)?);
    let (r, s) = (turned(x, 2.0)?, turned(y, 1.0)?);
    let v = value(cx, |f| f.of(p) * f.of(q) - f.of(r) * f.of(s))?;
    cx.one(v)
}

/// A reduction of numbers that are not negative; the largest of none is 0.
fn extreme_of(cx: &Cx, kind: ReduceKind, x: Value, axis: i64) -> Result<Value> {
    let empty = x.ty().dims()[axis as usize].known() == Some(0);
    let most = empty && kind == ReduceKind::Max;
    let kind = if most { ReduceKind::Sum } else { kind };
    cx.b.add(&Reduce { kind, input: x, dims: vec![axis], maybe_empty: false })
}

/// A norm of two dimensions.
pub(super) fn of_matrix(
    cx: &Cx,
    x: Value,
    order: &str,
    (rows, columns): (i64, i64),
    keepdim: bool,
) -> Result<Value> {
    if rows == columns {
        return Err("linalg.matrix_norm: dims must be different".into());
    }
    let both = vec![rows.min(columns), rows.max(columns)];
    if let "2" | "-2" | "nuc" = order {
        let last = rank_of(x) as i64 - 1;
        let rest = (0..=last).filter(|d| !both.contains(d));
        let matrices = cx.transpose(x, rest.chain([rows, columns]).collect())?;
        let s = singular_values(cx, matrices)?;
        let kind = match order {
            "2" => ReduceKind::Max,
            "-2" => ReduceKind::Min,
            _ => ReduceKind::Sum,
        };
        let v = extreme_of(cx, kind, s, last - 1)?;
        return if keepdim { keep_dims(cx, x, v, &both) } else { Ok(v) };
    }
    let (sum, extreme, kind) = match order {
        "fro" => return p_norm(cx, x, 2.0, &both, keepdim),
        "inf" => (columns, rows, ReduceKind::Max),
        "-inf" => (columns, rows, ReduceKind::Min),
        "1" => (rows, columns, ReduceKind::Max),
        "-1" => (rows, columns, ReduceKind::Min),
        other => return Err(format!("linalg.matrix_norm: Order {other} not supported.").into()),
    };
    let sums = value(cx, |f| f.of(x).abs().reduce(ReduceKind::Sum, &[sum], true))?;
    let v = extreme_of(cx, kind, sums, extreme)?;
    let v = cx.reshape(v, {
        let sizes = cx.b.sizes_of(x)?;
        (0..sizes.len()).filter(|d| !both.contains(&(*d as i64))).map(|d| sizes[d]).collect()
    })?;
    if keepdim { keep_dims(cx, x, v, &both) } else { Ok(v) }
}

/// The order by PyTorch's names; a number as text.
pub(super) fn order(a: &Args<'_>, name: &str) -> Result<Option<String>> {
    if !a.has(name) {
        return Ok(None);
    }
    match a.text(name, "") {
        Ok(name) => Ok(Some(name)),
        Err(_) => Ok(Some(format!("{}", a.float(name, None)?))),
    }
}

fn operand(cx: &mut Cx, a: &Args<'_>) -> Result<Value> {
    let x = cx.tensor(a, "self")?;
    if !dtype_of(x)?.is_float() {
        return Err("linalg.norm: Expected a floating point or complex tensor as input.".into());
    }
    match a.dtype("dtype")? {
        Some(d) => cx.convert(x, d),
        None => Ok(x),
    }
}

fn matrix_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = operand(cx, a)?;
    let dims = a.ints("dim")?.unwrap_or_else(|| vec![-2, -1]);
    let [rows, columns] = dims.as_slice() else {
        return Err("linalg.matrix_norm: dim must be a 2-tuple".into());
    };
    if rank_of(x) < 2 {
        return Err("linalg.matrix_norm: The input tensor must have at least 2 dimensions.".into());
    }
    let at = |d: i64| wrap(d, rank_of(x)).map(|d| d as i64);
    let order = order(a, "ord")?.unwrap_or_else(|| "fro".into());
    let v = of_matrix(cx, x, &order, (at(*rows)?, at(*columns)?), a.flag("keepdim", false)?)?;
    cx.one(v)
}

/// Of vectors, or of matrices where two dimensions are meant.
fn norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = operand(cx, a)?;
    let rank = rank_of(x);
    let (order, dims, keepdim) = (order(a, "ord")?, a.ints("dim")?, a.flag("keepdim", false)?);
    let places = wrap_all(dims.clone(), rank)?;
    let matrix = match (&order, &dims) {
        (None, _) => false,
        (Some(_), Some(dims)) => dims.len() == 2,
        (Some(_), None) => rank == 2,
    };
    let v = match (order, matrix) {
        (None, _) => p_norm(cx, x, 2.0, &places, keepdim)?,
        (Some(order), true) => {
            let dims = dims.unwrap_or_else(|| vec![0, 1]);
            let (rows, columns) = (wrap(dims[0], rank)? as i64, wrap(dims[1], rank)? as i64);
            of_matrix(cx, x, &order, (rows, columns), keepdim)?
        }
        (Some(order), false) => {
            let p: f64 = order
                .parse()
                .map_err(|_| format!("linalg.norm: Order {order} needs two dimensions"))?;
            p_norm(cx, x, p, &places, keepdim)?
        }
    };
    cx.one(v)
}

/// The product of a list, in the order of the fewest multiplications.
fn multi_dot(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mut all = cx.tensors(a, if a.has("matrices") { "matrices" } else { "tensors" })?;
    let n = all.len();
    if n == 0 {
        return Err("multi_dot(): expected at least 2 tensors but got 0".into());
    }
    let (row, column) = (n > 1 && rank_of(all[0]) == 1, n > 1 && rank_of(all[n - 1]) == 1);
    if row {
        all[0] = cx.unsqueezed(all[0], 0)?;
    }
    if column {
        all[n - 1] = cx.unsqueezed(all[n - 1], 1)?;
    }
    // Symbolic sizes count as equal.
    let size =
        |v: Value, i: usize| v.ty().dims().get(i).and_then(|d| d.known()).unwrap_or(1024) as f64;
    let p: Vec<f64> =
        std::iter::once(size(all[0], 0)).chain(all.iter().map(|v| size(*v, 1))).collect();
    let mut cost = vec![vec![0.0f64; n]; n];
    let mut cut = vec![vec![0usize; n]; n];
    for span in 1..n {
        for i in 0..n - span {
            let j = i + span;
            let each = |k: usize| cost[i][k] + cost[k + 1][j] + p[i] * p[k + 1] * p[j + 1];
            let best = (i..j).min_by(|k, l| each(*k).total_cmp(&each(*l))).unwrap_or(i);
            (cost[i][j], cut[i][j]) = (each(best), best);
        }
    }
    fn product(cx: &Cx, all: &[Value], cut: &[Vec<usize>], i: usize, j: usize) -> Result<Value> {
        if i == j {
            return Ok(all[i]);
        }
        let k = cut[i][j];
        let (lhs, rhs) = (product(cx, all, cut, i, k)?, product(cx, all, cut, k + 1, j)?);
        cx.b.add(&Matmul { lhs, rhs })
    }
    let mut v = product(cx, &all, &cut, 0, n - 1)?;
    if column {
        v = cx.dropped(v, 1)?;
    }
    if row {
        v = cx.dropped(v, 0)?;
    }
    cx.one(v)
}

fn matrix_power(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mut x = cx.tensor(a, "self")?;
    square(x, "linalg.matrix_power")?;
    let mut n = a.int("n", None)?;
    if n < 0 {
        x = checked_inverse(cx, x)?;
        n = n.checked_neg().ok_or("linalg.matrix_power: the power is too small")?;
    }
    let (mut result, mut square) = (None, x);
    while n > 0 {
        if n % 2 == 1 {
            result = Some(match result {
                None => square,
                Some(lhs) => cx.b.add(&Matmul { lhs, rhs: square })?,
            });
        }
        n /= 2;
        if n > 0 {
            square = cx.b.add(&Matmul { lhs: square, rhs: square })?;
        }
    }
    let v = match result {
        Some(v) => v,
        None => identity(cx, x)?,
    };
    cx.one(v)
}

/// Squarings of `matrix_exp`: norms up to 2 to this power.
const SQUARINGS: i32 = 16;

/// Scaling and squaring: the Taylor polynomial of x / 2^s, whose norm is at most 1, squared s times.
/// Matrices of a norm above 2^16 give NaN.
fn matrix_exp(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let whole = cx.tensor(a, "self")?;
    square(whole, "linalg.matrix_exp")?;
    let to = dtype_of(whole)?;
    if !to.is_float() {
        return Err("linalg.matrix_exp: Expected a floating point or complex tensor".into());
    }
    let d = super::axes::wide(to);
    let x = cx.convert(whole, d)?;
    if x.ty().dims().iter().any(|n| n.known() == Some(0)) {
        return cx.one(whole);
    }
    let n = rank_of(x) as i64;
    let norm = of_matrix(cx, x, "1", (n - 2, n - 1), true)?;
    let steps = value(cx, |f| f.of(norm).max(1.0).log2().ceil())?;
    let scaled = value(cx, |f| f.of(x) / f.of(steps).exp2())?;
    let one = identity(cx, x)?;
    // 1 / 13! and 1 / 19! are below the dtypes' precision.
    let degree = if d == DType::F64 { 18 } else { 12 };
    let mut sum = value(cx, |f| f.of(one) + f.of(scaled) / f64::from(degree))?;
    for k in (1..degree).rev() {
        let product = cx.b.add(&Matmul { lhs: scaled, rhs: sum })?;
        sum = value(cx, |f| f.of(one) + f.of(product) / f64::from(k))?;
    }
    for k in 0..SQUARINGS {
        let product = cx.b.add(&Matmul { lhs: sum, rhs: sum })?;
        sum = value(cx, |f| f.of(steps).gt(f64::from(k)).select(f.of(product), f.of(sum)))?;
    }
    let v = value(cx, |f| f.of(steps).le(f64::from(SQUARINGS)).select(f.of(sum), f64::NAN).to(to))?;
    cx.one(v)
}
