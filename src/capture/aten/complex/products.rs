//! Products: the overload of real tensors runs once for each pair of parts.
use super::super::find as row_of;
use super::{Args, Build, Cx, Outcome, Row, Val, Z, check, dtype_of, number::formula};
use kiln_dialects::{ir::*, ops::BinaryKind};
use std::collections::HashMap;

pub(super) fn find(name: &str) -> Option<Build> {
    Some(match name {
        "matmul.default"
        | "inner.default"
        | "kron.default"
        | "cross.default"
        | "linalg_cross.default"
        | "tensordot.default" => |cx, row, a| product(cx, row, a, "other"),
        "mm.default" | "bmm.default" => |cx, row, a| product(cx, row, a, "mat2"),
        "mv.default" => |cx, row, a| product(cx, row, a, "vec"),
        "dot.default" => |cx, row, a| product(cx, row, a, "tensor"),
        "outer.default" => |cx, row, a| product(cx, row, a, "vec2"),
        "vdot.default" => |cx, _, a| conjugated(cx, a),
        "einsum.default" => einsum,
        "addmm.default" | "baddbmm.default" | "addbmm.default" | "addmv.default"
        | "addr.default" => added,
        _ => return None,
    })
}

/// Parts of a tensor argument, the second 0 if it is real.
fn whole(cx: &mut Cx, v: Option<&Val>) -> Result<(Value, Option<Value>)> {
    match v {
        Some(Val::Complex(re, im)) => Ok((cx.get(*re)?, Some(cx.get(*im)?))),
        Some(Val::Tensor(t)) => Ok((cx.get(*t)?, None)),
        _ => Err("multiplies what is no tensor".into()),
    }
}

type Pair = (Value, Option<Value>);

/// `x y` by a product of real tensors.
fn multiply(
    cx: &mut Cx,
    x: Pair,
    y: Pair,
    make: &mut dyn FnMut(&mut Cx, Value, Value) -> Result<Value>,
) -> Result<(Value, Value)> {
    let both = |cx: &Cx, kind, x: Option<Value>, y: Option<Value>| match (x, y) {
        (Some(x), Some(y)) => cx.binary(kind, x, y).map(Some),
        (x, y) => Ok(x.or(y)),
    };
    let mut times = |cx: &mut Cx, x: Option<Value>, y: Option<Value>| match (x, y) {
        (Some(x), Some(y)) => make(cx, x, y).map(Some),
        _ => Ok(None),
    };
    let (rr, ii) = (times(cx, Some(x.0), Some(y.0))?, times(cx, x.1, y.1)?);
    let (ri, ir) = (times(cx, Some(x.0), y.1)?, times(cx, x.1, Some(y.0))?);
    let re = both(cx, BinaryKind::Sub, rr, ii)?.ok_or("has no product")?;
    let im = match both(cx, BinaryKind::Add, ri, ir)? {
        Some(im) => im,
        None => cx.full_like(re, 0.0)?,
    };
    Ok((re, im))
}

/// A row's only result for real operands.
fn call(cx: &mut Cx, row: &Row, values: HashMap<&str, Val>) -> Result<Value> {
    let args = Args { values };
    check(row, cx, &args)?;
    match (row.build)(cx, &args)? {
        Outcome::One(Val::Tensor(t)) => cx.get(t),
        _ => Err("multiplies into several results".into()),
    }
}

/// A product of the arguments `x` and `y` by a row with the parameters `to`.
fn by_row(
    cx: &mut Cx,
    row: &Row,
    a: &Args<'_>,
    (x, y): (Pair, Pair),
    to: [&str; 2],
) -> Result<(Value, Value)> {
    multiply(cx, x, y, &mut |cx, x, y| {
        let mut values: HashMap<&str, Val> =
            a.values.iter().map(|(k, v)| (*k, v.clone())).collect();
        for (name, v) in to.into_iter().zip([x, y]) {
            values.insert(name, Val::Tensor(cx.store.fresh(v)));
        }
        call(cx, row, values)
    })
}

fn product(cx: &mut Cx, row: &Row, a: &Args<'_>, other: &str) -> Result<Outcome> {
    let (x, y) = (whole(cx, a.get("self"))?, whole(cx, a.get(other))?);
    let (re, im) = by_row(cx, row, a, (x, y), ["self", other])?;
    cx.one_complex(re, im)
}

/// The product of the first operand's conjugate.
fn conjugated(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let row = row_of("aten.dot.default").ok_or("has no product")?;
    let (x, y) = (whole(cx, a.get("self"))?, whole(cx, a.get("other"))?);
    let im = x.1.map(|v| cx.unary(kiln_dialects::ops::UnaryKind::Neg, v)).transpose()?;
    let none = Args { values: HashMap::new() };
    let (re, im) = by_row(cx, row, &none, ((x.0, im), y), ["self", "tensor"])?;
    cx.one_complex(re, im)
}

/// `beta self + alpha (x @ y)`; beta 0 ignores self. `addbmm` sums over the batch.
fn added(cx: &mut Cx, row: &Row, a: &Args<'_>) -> Result<Outcome> {
    let (product, names, to) = match row.name {
        "aten.addmv.default" => ("aten.mv.default", ["mat", "vec"], ["self", "vec"]),
        "aten.addr.default" => ("aten.outer.default", ["vec1", "vec2"], ["self", "vec2"]),
        "aten.addmm.default" => ("aten.mm.default", ["mat1", "mat2"], ["self", "mat2"]),
        _ => ("aten.bmm.default", ["batch1", "batch2"], ["self", "mat2"]),
    };
    let batches = row.name == "aten.addbmm.default";
    let row = row_of(product).ok_or("has no product")?;
    let (x, y) = (whole(cx, a.get(names[0]))?, whole(cx, a.get(names[1]))?);
    let none = Args { values: HashMap::new() };
    let (mut re, mut im) = by_row(cx, row, &none, (x, y), to)?;
    let (bias, bias_im) = whole(cx, a.get("self"))?;
    if batches {
        let sum = |input| {
            let kind = kiln_dialects::ops::ReduceKind::Sum;
            cx.b.add(&kiln_dialects::ops::Reduce { kind, input, dims: vec![0], maybe_empty: true })
        };
        (re, im) = (sum(re)?, sum(im)?);
    }
    let factor = |name| match a.get(name) {
        Some(Val::ComplexNumber(re, im)) => Ok((*re, *im)),
        _ => a.float(name, Some(1.0)).map(|x| (x, 0.0)),
    };
    let (alpha, beta) = (factor("alpha")?, factor("beta")?);
    let d = dtype_of(re)?;
    let bias = cx.convert(bias, d)?;
    let bias_im = match bias_im {
        Some(v) => cx.convert(v, d)?,
        None => cx.full_like(bias, 0.0)?,
    };
    formula(cx, |f| {
        let v = by(Z::of(f, (re, im)), alpha);
        if beta == (0.0, 0.0) { v } else { by(Z::of(f, (bias, bias_im)), beta) + v }
    })
}

/// A number times a constant.
fn by(z: Z<'_>, (re, im): (f64, f64)) -> Z<'_> {
    match (re, im) {
        (1.0, 0.0) => z,
        (re, 0.0) => z.scaled(re),
        (re, im) => z.scaled(re) + z.turned().scaled(im),
    }
}

/// One or two operands.
fn einsum(cx: &mut Cx, row: &Row, a: &Args<'_>) -> Result<Outcome> {
    let Some(Val::List(all)) = a.get("tensors") else { return Err("has no operands".into()) };
    let run = |cx: &mut Cx, tensors: &[Value]| {
        let tensors = tensors.iter().map(|v| Val::Tensor(cx.store.fresh(*v))).collect();
        let mut values: HashMap<&str, Val> =
            a.values.iter().map(|(k, v)| (*k, v.clone())).collect();
        values.insert("tensors", Val::List(tensors));
        call(cx, row, values)
    };
    let (re, im) = match all.as_slice() {
        [x] => {
            let (re, im) = whole(cx, Some(x))?;
            (run(cx, &[re])?, run(cx, &[im.ok_or("is real")?])?)
        }
        [x, y] => {
            let (x, y) = (whole(cx, Some(x))?, whole(cx, Some(y))?);
            multiply(cx, x, y, &mut |cx, x, y| run(cx, &[x, y]))?
        }
        _ => {
            return Err(crate::capture::unsupported(
                "an einsum of more than two complex operands is not supported",
            ));
        }
    };
    cx.one_complex(re, im)
}
