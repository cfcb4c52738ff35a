//! Differences and integrals along dimensions: trapezoid rule, gradients.
use super::{Args, Cx, Outcome, Row, Val, formula::value, promote::promote, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.trapezoid.x",
        arguments: "y, x, dim=-1",
        build: |cx, a| trapezoid(cx, a, false),
    },
    Row {
        name: "aten.trapezoid.dx",
        arguments: "y, dx=1, dim=-1",
        build: |cx, a| trapezoid(cx, a, false),
    },
    Row {
        name: "aten.cumulative_trapezoid.x",
        arguments: "y, x, dim=-1",
        build: |cx, a| trapezoid(cx, a, true),
    },
    Row {
        name: "aten.cumulative_trapezoid.dx",
        arguments: "y, dx=1, dim=-1",
        build: |cx, a| trapezoid(cx, a, true),
    },
    Row {
        name: "aten.gradient.scalarint",
        arguments: "self, spacing=None, dim=None, edge_order=1",
        build: gradient,
    },
    Row {
        name: "aten.gradient.scalararray",
        arguments: "self, spacing, dim, edge_order=1",
        build: gradient,
    },
    Row { name: "aten.gradient.array", arguments: "self, dim, edge_order=1", build: gradient },
    Row {
        name: "aten.gradient.scalarrayint",
        arguments: "self, spacing, dim=None, edge_order=1",
        build: gradient,
    },
    Row {
        name: "aten.gradient.scalarrayarray",
        arguments: "self, spacing, dim, edge_order=1",
        build: gradient,
    },
    Row {
        name: "aten.gradient.tensorarrayint",
        arguments: "self, spacing, dim=None, edge_order=1",
        build: gradient,
    },
    Row {
        name: "aten.gradient.tensorarray",
        arguments: "self, spacing, dim, edge_order=1",
        build: gradient,
    },
];

/// A dimension without its last, and without its first element.
fn neighbours(cx: &Cx, x: Value, axis: usize) -> Result<(Value, Value)> {
    let n = cx.b.size_of(x, axis)?;
    let n = if n.known() == Some(0) { n } else { cx.size_add(n, Size::Static(-1))? };
    let start = if n.known() == Some(0) { Size::Static(0) } else { Size::Static(1) };
    Ok((cx.part(x, axis, Size::Static(0), n)?, cx.part(x, axis, start, n)?))
}

fn trapezoid(cx: &mut Cx, a: &Args<'_>, cumulative: bool) -> Result<Outcome> {
    let y = cx.tensor(a, "y")?;
    let rank = rank_of(y);
    let axis = wrap(a.int("dim", Some(-1))?, rank)?;
    if rank == 0 {
        return Err("trapezoid: y needs at least one dimension".into());
    }
    let mut d = dtype_of(y)?;
    let mut width = None;
    if a.has("x") {
        let x = cx.tensor(a, "x")?;
        d = promote(d, dtype_of(x)?);
        let x = if rank_of(x) == 1 {
            let mut sizes = vec![Size::Static(1); rank];
            sizes[axis] = cx.b.size_of(x, 0)?;
            cx.reshape(x, sizes)?
        } else {
            let lead = vec![Size::Static(1); rank.saturating_sub(rank_of(x))];
            cx.reshape(x, [lead, cx.b.sizes_of(x)?].concat())?
        };
        width = Some(x);
    }
    let d = if d.is_float() { d } else { DType::F32 };
    let width = match width {
        Some(x) => {
            let at = axis + rank_of(x) - rank;
            let (before, after) = neighbours(cx, cx.convert(x, d)?, at)?;
            cx.binary(BinaryKind::Sub, after, before)?
        }
        None => cx.number(d, a.float("dx", Some(1.0))?)?,
    };
    let (before, after) = neighbours(cx, cx.convert(y, d)?, axis)?;
    let area = value(cx, |f| (f.of(before) + f.of(after)) * f.of(width) / 2.0)?;
    let at = axis + rank_of(area) - rank;
    let v = if cumulative {
        cx.scanned(CumulativeKind::Sum, area, at)?
    } else {
        cx.reduced(ReduceKind::Sum, area, &[at as i64])?
    };
    cx.one(v)
}

/// How far apart samples are.
enum Spacing {
    /// Evenly.
    Step(f64),
    /// At these coordinates.
    At(Value),
}

fn spacings(cx: &mut Cx, a: &Args<'_>, count: usize) -> Result<Vec<Spacing>> {
    let one = |cx: &mut Cx, v: &Val| match v {
        Val::Float(x) => Ok(Spacing::Step(*x)),
        Val::Int(Size::Static(n)) => Ok(Spacing::Step(*n as f64)),
        Val::Tensor(t) => Ok(Spacing::At(cx.get(*t)?)),
        _ => Err("argument spacing should be numbers or tensors".to_string()),
    };
    let all = match a.values.get("spacing") {
        None | Some(Val::None) => (0..count).map(|_| Spacing::Step(1.0)).collect(),
        Some(Val::List(all)) => all.iter().map(|v| one(cx, v)).collect::<Result<Vec<_>, _>>()?,
        Some(v) => (0..count).map(|_| one(cx, v)).collect::<Result<_, _>>()?,
    };
    if all.len() != count {
        return Err(format!(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() - 1' or 'dim', but got {} for {count}",
            all.len()
        ).into());
    }
    Ok(all)
}

fn gradient(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.floating(a, "self")?;
    let rank = rank_of(x);
    let dims = match a.ints("dim")? {
        Some(dims) => dims.iter().map(|d| wrap(*d, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    let order = a.int("edge_order", Some(1))?;
    if order != 1 && order != 2 {
        return Err("torch.gradient only supports edge_order=1 and edge_order=2.".into());
    }
    let mut all = vec![];
    for (axis, spacing) in dims.iter().zip(spacings(cx, a, dims.len())?) {
        if x.ty().dims()[*axis].known().is_some_and(|n| n <= order) {
            return Err(
                "torch.gradient expected each dimension size to be at least edge_order+1".into()
            );
        }
        all.push(slope(cx, x, *axis, &spacing, order == 2)?);
    }
    cx.many(&all)
}

/// Second-order differences inside; at the ends of first order, or of second if `exact`.
fn slope(cx: &Cx, x: Value, axis: usize, spacing: &Spacing, exact: bool) -> Result<Value> {
    let (n, one) = (cx.b.size_of(x, axis)?, Size::Static(1));
    let from_end = |k: i64| cx.size_add(n, Size::Static(-k));
    let inner = from_end(2)?;
    let at = |start: Size, length: Size| cx.part(x, axis, start, length);
    // Distances between neighbours, along the axis.
    let mut shape = vec![Size::Static(1); rank_of(x)];
    let gaps = match spacing {
        Spacing::Step(_) => None,
        Spacing::At(c) => {
            let (before, after) = neighbours(cx, cx.convert(*c, dtype_of(x)?)?, 0)?;
            shape[axis] = from_end(1)?;
            Some(cx.reshape(cx.binary(BinaryKind::Sub, after, before)?, shape)?)
        }
    };
    let gap = |start: Size, length: Size| match (gaps, spacing) {
        (Some(g), _) => cx.part(g, axis, start, length),
        (None, Spacing::Step(h)) => cx.number(dtype_of(x)?, *h),
        (None, Spacing::At(_)) => Err("has no spacing".into()),
    };
    let zero = Size::Static(0);
    // Of three samples: weights by the distances before and after the middle one.
    let three = |samples: [Value; 3], h: [Value; 2], which: usize| {
        value(cx, |f| {
            let ([a, b, c], [p, q]) = (samples.map(|v| f.of(v)), h.map(|v| f.of(v)));
            let s = p + q;
            match which {
                0 => (b - a) * s / (p * q) - (c - a) * p / (q * s),
                1 => ((b - a) * q / p + (c - b) * p / q) / s,
                _ => (c - b) * s / (p * q) - (c - a) * q / (p * s),
            }
        })
    };
    let (first, last) = if exact {
        let low = [at(zero, one)?, at(one, one)?, at(Size::Static(2), one)?];
        let high = [at(from_end(3)?, one)?, at(from_end(2)?, one)?, at(from_end(1)?, one)?];
        (
            three(low, [gap(zero, one)?, gap(one, one)?], 0)?,
            three(high, [gap(from_end(3)?, one)?, gap(from_end(2)?, one)?], 2)?,
        )
    } else {
        let two = |a: Value, b: Value, h: Value| value(cx, |f| (f.of(b) - f.of(a)) / f.of(h));
        (
            two(at(zero, one)?, at(one, one)?, gap(zero, one)?)?,
            two(at(from_end(2)?, one)?, at(from_end(1)?, one)?, gap(from_end(2)?, one)?)?,
        )
    };
    if inner.known() == Some(0) {
        return cx.joined(vec![first, last], axis);
    }
    let middle = three(
        [at(zero, inner)?, at(one, inner)?, at(Size::Static(2), inner)?],
        [gap(zero, inner)?, gap(one, inner)?],
        1,
    )?;
    cx.joined(vec![first, middle, last], axis)
}
