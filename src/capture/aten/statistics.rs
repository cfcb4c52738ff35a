//! Statistics and histograms.
use super::{
    Args, Cx, Outcome, Row, Val,
    axes::wide,
    distances::{cdist, length, pdist},
    formula::value,
    reduce::{keep_dims, p_norm},
    spaces::steps,
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.aminmax.default",
        arguments: "self, dim=None, keepdim=False",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let dims = wrap_all(a.ints("dim")?, rank_of(x))?;
            if dims.iter().any(|d| x.ty().dims()[*d as usize].known() == Some(0)) {
                return Err("aminmax(): Expected reduction dim to have non-zero size.".into());
            }
            let mut all = vec![];
            for kind in extremes(dtype_of(x)?) {
                let v = cx.reduced(kind, x, &dims)?;
                all.push(if a.flag("keepdim", false)? { keep_dims(cx, x, v, &dims)? } else { v });
            }
            cx.many(&all)
        },
    },
    Row { name: "aten.count_nonzero.default", arguments: "self, dim=None", build: count_nonzero },
    Row { name: "aten.count_nonzero.dim_IntList", arguments: "self, dim", build: count_nonzero },
    Row {
        name: "aten.nansum.default",
        arguments: "self, dim=None, keepdim=False, dtype=None",
        build: |cx, a| nan_sum(cx, a, false),
    },
    Row {
        name: "aten.nanmean.default",
        arguments: "self, dim=None, keepdim=False, dtype=None",
        build: |cx, a| nan_sum(cx, a, true),
    },
    Row { name: "aten.sum_to_size.default", arguments: "self, size", build: sum_to_size },
    Row { name: "aten.renorm.default", arguments: "self, p, dim, maxnorm", build: renorm },
    Row {
        name: "aten.dist.default",
        arguments: "self, other, p=2",
        build: |cx, a| {
            let (x, y) = cx.promoted(a, "self", "other")?;
            let v = cx.binary(BinaryKind::Sub, x, y)?;
            let dims: Vec<i64> = (0..rank_of(v) as i64).collect();
            let v = length(cx, v, a.float("p", Some(2.0))?, &dims)?;
            cx.one(v)
        },
    },
    Row { name: "aten.cdist.default", arguments: "x1, x2, p=2, compute_mode=None", build: cdist },
    Row { name: "aten._cdist_forward.default", arguments: "x1, x2, p, compute_mode", build: cdist },
    Row { name: "aten._euclidean_dist.default", arguments: "x1, x2", build: cdist },
    Row { name: "aten.pdist.default", arguments: "self, p=2", build: pdist },
    Row { name: "aten._pdist_forward.default", arguments: "self, p=2", build: pdist },
    Row { name: "aten.histc.default", arguments: "self, bins=100, min=0, max=0", build: histc },
    Row {
        name: "aten.histogram.bin_ct",
        arguments: "self, bins=100, range=None, weight=None, density=False",
        build: |cx, a| histogram(cx, a, false),
    },
    Row {
        name: "aten.histogram.bins_tensor",
        arguments: "self, bins, weight=None, density=False",
        build: |cx, a| histogram(cx, a, false),
    },
    Row {
        name: "aten.histogramdd.default",
        arguments: "self, bins, range=None, weight=None, density=False",
        build: |cx, a| histogram(cx, a, true),
    },
    Row {
        name: "aten._histogramdd_bin_edges.default",
        arguments: "self, bins, range=None, weight=None, density=False",
        build: |cx, a| match histogram(cx, a, true)? {
            Outcome::Many(all) => Ok(Outcome::Many(all.into_iter().skip(1).collect())),
            one => Ok(one),
        },
    },
    Row {
        name: "aten._histogramdd_from_bin_cts.default",
        arguments: "self, bins, range=None, weight=None, density=False",
        build: counts_of_bins,
    },
    Row {
        name: "aten._histogramdd_from_bin_tensors.default",
        arguments: "self, bins, weight=None, density=False",
        build: counts_of_bins,
    },
    Row {
        name: "aten.histogramdd.int_bins",
        arguments: "self, bins, range=None, weight=None, density=False",
        build: |cx, a| histogram(cx, a, true),
    },
    Row {
        name: "aten.histogramdd.TensorList_bins",
        arguments: "self, bins, range=None, weight=None, density=False",
        build: |cx, a| histogram(cx, a, true),
    },
];

/// Least and greatest; of bools, all and any.
fn extremes(d: DType) -> [ReduceKind; 2] {
    if d == DType::I1 {
        [ReduceKind::All, ReduceKind::Any]
    } else {
        [ReduceKind::Min, ReduceKind::Max]
    }
}

fn count_nonzero(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.operand(a, "self", DType::I1)?;
    let dims = wrap_all(a.ints("dim")?, rank_of(x))?;
    let v = cx.reduced(ReduceKind::Sum, cx.convert(x, DType::I64)?, &dims)?;
    cx.one(v)
}

fn nan_sum(cx: &mut Cx, a: &Args<'_>, mean: bool) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = dtype_of(x)?;
    if mean && !d.is_float() {
        return Err("nanmean(): expected input to have floating point or complex dtype".into());
    }
    let to = a.dtype("dtype")?.unwrap_or(if d.is_float() { d } else { DType::I64 });
    let dims = wrap_all(a.ints("dim")?, rank_of(x))?;
    let keepdim = a.flag("keepdim", false)?;
    let v = value(cx, |f| {
        let x = f.of(x);
        let valid = if d.is_float() { !x.is_nan() } else { x.eq(x) };
        let sum = valid.select(x, x.number(0.0)).to(to).reduce(ReduceKind::Sum, &dims, keepdim);
        if mean {
            let count = valid.to(DType::I64).reduce(ReduceKind::Sum, &dims, keepdim);
            sum / count.to(to)
        } else {
            sum
        }
    })?;
    cx.one(v)
}

fn sum_to_size(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (sizes, to) = (cx.b.sizes_of(x)?, a.sizes("size")?);
    let lead = sizes.len().checked_sub(to.len()).ok_or("sums to a shape of higher rank")?;
    let mut dims: Vec<i64> = (0..lead as i64).collect();
    for (i, (n, m)) in sizes[lead..].iter().zip(&to).enumerate() {
        match (n.known(), m.known()) {
            (n, Some(1)) if n != Some(1) => dims.push((lead + i) as i64),
            (Some(n), Some(m)) if n != m => {
                return Err(
                    format!("size {m} is not expandable to size {n} at dimension {i}").into()
                );
            }
            _ => {}
        }
    }
    let d = dtype_of(x)?;
    // A scalar is always a sum, which is i64 of integers.
    if dims.is_empty() && !to.is_empty() {
        return Ok(Outcome::One(Val::Tensor(a.alias("self")?)));
    }
    let x = if d.is_float() { x } else { cx.convert(x, DType::I64)? };
    let v = if dims.is_empty() { x } else { cx.reduced(ReduceKind::Sum, x, &dims)? };
    let v = cx.reshape(v, to)?;
    cx.one(v)
}

/// Each slice of a dimension scaled down to a norm.
fn renorm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = dtype_of(x)?;
    let (p, most) = (a.float("p", None)?, a.float("maxnorm", None)?);
    let axis = wrap(a.int("dim", None)?, rank_of(x))? as i64;
    if rank_of(x) < 2 {
        return Err("renorm: input needs at least 2 dimensions".into());
    }
    if p <= 0.0 || most < 0.0 {
        return Err("renorm: non-positive-norm not supported".into());
    }
    let dims: Vec<i64> = (0..rank_of(x) as i64).filter(|i| *i != axis).collect();
    let wide = cx.convert(x, super::axes::wide(d))?;
    let norm = p_norm(cx, wide, p, &dims, true)?;
    let v = value(cx, |f| {
        let (x, norm) = (f.of(wide), f.of(norm));
        let scale = norm.gt(most).select(most / (norm + 1e-7), norm.number(1.0));
        (x * scale).to(d)
    })?;
    cx.one(v)
}

/// Least and greatest element, or the given limits; `apart` where they are equal.
fn limits(cx: &Cx, x: Value, given: Option<(f64, f64)>, apart: f64) -> Result<(Value, Value)> {
    let d = dtype_of(x)?;
    let (low, high) = match given {
        Some((low, high)) => (cx.number(d, low)?, cx.number(d, high)?),
        None if x.ty().dims().first().and_then(|n| n.known()) == Some(0) => {
            (cx.number(d, 0.0)?, cx.number(d, 0.0)?)
        }
        None => (cx.reduced(ReduceKind::Min, x, &[0])?, cx.reduced(ReduceKind::Max, x, &[0])?),
    };
    let moved = |v: Value, by: f64| {
        value(cx, |f| {
            let further = (f.of(v).to(wide(d)) + by).rounded(d).to(d);
            f.of(low).eq(f.of(high)).select(further, f.of(v))
        })
    };
    Ok((moved(low, -apart)?, moved(high, apart)?))
}

fn histc(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = dtype_of(x)?;
    let bins = a.int("bins", Some(100))?;
    if bins < 1 {
        return Err("bins must be > 0".into());
    }
    // PyTorch counts integers on GPUs only, in integer arithmetic: f64 holds the products.
    let x = cx.flat(if d.is_float() { x } else { cx.convert(x, DType::F64)? })?;
    let (low, high) = (a.float("min", Some(0.0))?, a.float("max", Some(0.0))?);
    if low > high {
        return Err("max must be larger than min".into());
    }
    let given = if low == high { None } else { Some((low, high)) };
    let (low, high) = limits(cx, x, given, 1.0)?;
    let dtype = dtype_of(x)?;
    let n = cx.b.size_of(x, 0)?;
    let shape = [Size::Static(bins), n];
    let at = value(cx, |f| {
        let [x, low, high] = [x, low, high].map(|v| f.of(v).to(wide(dtype)));
        // In this order and with PyTorch's roundings, which decide on the bin.
        let scaled = ((x - low).rounded(dtype) * bins as f64).rounded(dtype);
        let at = (scaled / (high - low).rounded(dtype)).rounded(dtype);
        let at = at.floor().min((bins - 1) as f64);
        (x.ge(low) & x.le(high)).select(at, -1.0)
    })?;
    let (at, bin) = (cx.spread(at, &[1], &shape)?, cx.iota(dtype_of(at)?, shape.to_vec(), 0)?);
    let hits = cx.convert(cx.compare(CompareKind::Eq, at, bin)?, DType::I64)?;
    let v = cx.convert(cx.reduced(ReduceKind::Sum, hits, &[1])?, d)?;
    cx.one(v)
}

/// Edges of the bins of each column of `x`, [points, columns].
fn edges(cx: &mut Cx, a: &Args<'_>, x: Value, columns: usize) -> Result<Vec<Value>> {
    let d = dtype_of(x)?;
    let tensors = match a.values.get("bins") {
        Some(Val::Tensor(_)) => Some(vec![cx.tensor(a, "bins")?]),
        Some(Val::List(all)) if all.iter().any(|v| matches!(v, Val::Tensor(_))) => {
            Some(cx.tensors(a, "bins")?)
        }
        _ => None,
    };
    if let Some(all) = tensors {
        if all.len() != columns || all.iter().any(|v| dtype_of(*v) != Ok(d)) {
            return Err("expects one bins tensor a dimension, of the input's dtype".into());
        }
        return Ok(all);
    }
    let counts = match a.values.get("bins") {
        None => vec![100; columns],
        _ => a.ints("bins")?.unwrap_or_default(),
    };
    let counts = if counts.len() == 1 { counts.repeat(columns) } else { counts };
    let range = match a.values.get("range") {
        Some(Val::List(all)) => {
            let number = |v: &Val| match v {
                Val::Float(x) => Ok(*x),
                Val::Int(Size::Static(n)) => Ok(*n as f64),
                _ => Err("argument range should be a list of numbers".to_string()),
            };
            all.iter().map(number).collect::<Result<Vec<_>, _>>()?
        }
        _ => vec![],
    };
    if counts.len() != columns || counts.iter().any(|n| *n < 1) {
        return Err("expects a positive number of bins for each dimension".into());
    }
    let mut all = vec![];
    for (c, bins) in counts.iter().enumerate() {
        let n = cx.b.size_of(x, 0)?;
        let column =
            cx.reshape(cx.part(x, 1, Size::Static(c as i64), Size::Static(1))?, vec![n])?;
        let empty = n.known() == Some(0);
        let given = range.get(2 * c).copied().zip(range.get(2 * c + 1).copied());
        let given = given.or(empty.then_some((0.0, 1.0)));
        let (low, high) = limits(cx, column, given, 0.5)?;
        all.push(steps(cx, low, high, bins + 1)?);
    }
    Ok(all)
}

/// The first of a histogram's results.
fn counts_of_bins(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    match histogram(cx, a, true)? {
        Outcome::Many(all) => all.into_iter().next().map(Outcome::One).ok_or("is empty".into()),
        one => Ok(one),
    }
}

/// Weights of the points in each bin; the last bin of a dimension is closed.
fn histogram(cx: &mut Cx, a: &Args<'_>, many: bool) -> Result<Outcome> {
    let whole = cx.tensor(a, "self")?;
    let d = dtype_of(whole)?;
    if !d.is_float() {
        return Err(format!("\"histogramdd\" not implemented for {}", d.name()).into());
    }
    let last = *cx.b.sizes_of(whole)?.last().unwrap_or(&Size::Static(1));
    let columns = if many { last } else { Size::Static(1) };
    let count = columns.known().ok_or("has a symbolic number of dimensions")?;
    let n = if many { cx.size_div(cx.numel(whole)?, columns)? } else { cx.numel(whole)? };
    let x = cx.reshape(whole, vec![n, columns])?;
    let all = edges(cx, a, x, count as usize)?;
    let mut sizes = vec![];
    let mut at = cx.b.splat(DType::I64, &[n], 0.0)?;
    let mut inside = cx.b.splat(DType::I1, &[n], 1.0)?;
    for (c, edge) in all.iter().enumerate() {
        let m = cx.b.size_of(*edge, 0)?;
        let bins = cx.size_add(m, Size::Static(-1))?;
        let column = cx.part(x, 1, Size::Static(c as i64), Size::Static(1))?;
        let points = cx.reshape(column, vec![n])?;
        let shape = [n, m];
        let (wide, row) = (cx.spread(points, &[0], &shape)?, cx.spread(*edge, &[1], &shape)?);
        let (first, end) = (
            cx.part(*edge, 0, Size::Static(0), Size::Static(1))?,
            cx.part(*edge, 0, bins, Size::Static(1))?,
        );
        let width = cx.size_value(bins)?;
        let bin = value(cx, |f| {
            let passed =
                f.of(row).le(f.of(wide)).to(DType::I64).reduce(ReduceKind::Sum, &[1], false);
            f.of(at) * f.of(width) + (passed - 1.0).min(f.of(width) - 1.0)
        })?;
        inside = value(cx, |f| {
            f.of(inside) & f.of(points).ge(f.of(first)) & f.of(points).le(f.of(end))
        })?;
        at = bin;
        sizes.push(bins);
    }
    let total = cx.size_product(&sizes)?;
    let shape = [total, n];
    let at = value(cx, |f| f.of(inside).select(f.of(at), -1.0))?;
    let (at, bin) = (cx.spread(at, &[1], &shape)?, cx.iota(DType::I64, shape.to_vec(), 0)?);
    let weight = match cx.optional(a, "weight")? {
        Some(w) => cx.spread(cx.flat(w)?, &[1], &shape)?,
        None => cx.number(d, 1.0)?,
    };
    let mut hist = value(cx, |f| {
        let hit = f.of(at).eq(f.of(bin)).select(f.of(weight), f.of(weight).number(0.0));
        hit.reduce(ReduceKind::Sum, &[1], false)
    })?;
    hist = cx.reshape(hist, sizes.clone())?;
    if a.flag("density", false)? {
        let dims: Vec<i64> = (0..sizes.len() as i64).collect();
        hist = value(cx, |f| f.of(hist) / f.of(hist).reduce(ReduceKind::Sum, &dims, false))?;
        for (c, edge) in all.iter().enumerate() {
            let (low, high) = (
                cx.part(*edge, 0, Size::Static(0), sizes[c])?,
                cx.part(*edge, 0, Size::Static(1), sizes[c])?,
            );
            let width = cx.binary(BinaryKind::Sub, high, low)?;
            let width = cx.spread(width, &[c as i64], &sizes)?;
            hist = cx.binary(BinaryKind::Div, hist, width)?;
        }
    }
    let results: Vec<Value> = std::iter::once(hist).chain(all).collect();
    cx.many(&results)
}
