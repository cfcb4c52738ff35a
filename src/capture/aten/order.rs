//! Order statistics and scans with positions: medians, quantiles, modes, running extremes.
use super::{Args, Cx, Outcome, Row, formula::value, reduce::keep_dims, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.msort.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let v = if rank_of(x) == 0 { x } else { cx.sorted(x, 0)?.0 };
            cx.one(v)
        },
    },
    Row { name: "aten.median.default", arguments: "self", build: |cx, a| median(cx, a, false) },
    Row { name: "aten.nanmedian.default", arguments: "self", build: |cx, a| median(cx, a, true) },
    Row {
        name: "aten.median.dim",
        arguments: "self, dim, keepdim=False",
        build: |cx, a| median(cx, a, false),
    },
    Row {
        name: "aten.nanmedian.dim",
        arguments: "self, dim, keepdim=False",
        build: |cx, a| median(cx, a, true),
    },
    Row {
        name: "aten.kthvalue.default",
        arguments: "self, k, dim=-1, keepdim=False",
        build: kthvalue,
    },
    Row { name: "aten.mode.default", arguments: "self, dim=-1, keepdim=False", build: mode },
    Row {
        name: "aten.quantile.default",
        arguments: "self, q, dim=None, keepdim=False, interpolation='linear'",
        build: |cx, a| quantile(cx, a, false),
    },
    Row {
        name: "aten.quantile.scalar",
        arguments: "self, q, dim=None, keepdim=False, interpolation='linear'",
        build: |cx, a| quantile(cx, a, false),
    },
    Row {
        name: "aten.nanquantile.default",
        arguments: "self, q, dim=None, keepdim=False, interpolation='linear'",
        build: |cx, a| quantile(cx, a, true),
    },
    Row {
        name: "aten.nanquantile.scalar",
        arguments: "self, q, dim=None, keepdim=False, interpolation='linear'",
        build: |cx, a| quantile(cx, a, true),
    },
    Row {
        name: "aten.cummax.default",
        arguments: "self, dim",
        build: |cx, a| running(cx, a, true),
    },
    Row {
        name: "aten.cummin.default",
        arguments: "self, dim",
        build: |cx, a| running(cx, a, false),
    },
    Row { name: "aten.logcumsumexp.default", arguments: "self, dim", build: logcumsumexp },
];

/// A row of elements to order: the tensor, at least a vector, its axis and the axis' size.
struct Line {
    x: Value,
    axis: usize,
    size: Size,
    /// The argument was 0-d, so the results are.
    scalar: bool,
}

impl Line {
    fn of(cx: &mut Cx, a: &Args<'_>, default: Option<i64>) -> Result<Line> {
        let x = cx.tensor(a, "self")?;
        let axis = wrap(a.int("dim", default)?, rank_of(x))?;
        Line::along(cx, x, axis)
    }
    fn along(cx: &Cx, x: Value, axis: usize) -> Result<Line> {
        let scalar = rank_of(x) == 0;
        let x = cx.vector(x)?;
        Ok(Line { x, axis, size: cx.b.size_of(x, axis)?, scalar })
    }
    /// Err: there is no element.
    fn filled(&self, name: &str) -> Result<()> {
        match self.size.known() {
            Some(0) => Err(format!(
                "{name}(): Expected reduction dim {} to have non-zero size.",
                self.axis
            )
            .into()),
            _ => Ok(()),
        }
    }
    /// A result whose axis has one element, with or without the axis.
    fn shaped(&self, cx: &Cx, v: Value, keepdim: bool) -> Result<Value> {
        if self.scalar || !keepdim { cx.dropped(v, self.axis) } else { Ok(v) }
    }
    /// The shape with one element along the axis.
    fn unit(&self, cx: &Cx) -> Result<Vec<Size>> {
        let mut sizes = cx.b.sizes_of(self.x)?;
        sizes[self.axis] = Size::Static(1);
        Ok(sizes)
    }
    /// How many elements are no NaN, kept as one element along the axis.
    fn numbers(&self, cx: &Cx) -> Result<Value> {
        let x = self.x;
        if !dtype_of(x)?.is_float() {
            return cx.broadcast_to(cx.size_value(self.size)?, &self.unit(cx)?);
        }
        let is = value(cx, |f| (!f.of(x).is_nan()).to(DType::I64))?;
        let n = cx.reduced(ReduceKind::Sum, is, &[self.axis as i64])?;
        keep_dims(cx, x, n, &[self.axis as i64])
    }
}

/// The lower of two middle elements. A NaN is the result unless NaNs are ignored.
fn median(cx: &mut Cx, a: &Args<'_>, ignore: bool) -> Result<Outcome> {
    let whole = !a.has("dim");
    let line = if whole {
        let x = cx.tensor(a, "self")?;
        let x = cx.flat(x)?;
        Line::along(cx, x, 0)?
    } else {
        Line::of(cx, a, None)?
    };
    if whole && line.size.known() == Some(0) {
        // As PyTorch: NaN converted to the dtype.
        let d = dtype_of(line.x)?;
        let v = match d {
            DType::I64 | DType::I32 => min_value(cx, d)?,
            _ if d.is_float() => cx.number(d, f64::NAN)?,
            _ => cx.integer(d, i64::from(d == DType::I1))?,
        };
        return cx.one(v);
    }
    line.filled("median")?;
    let (sorted, places) = cx.sorted(line.x, line.axis)?;
    let (numbers, n) = (line.numbers(cx)?, cx.size_value(line.size)?);
    let at = value(cx, |f| {
        let (numbers, n) = (f.of(numbers), f.of(n));
        let middle = (numbers - 1.0).max(0.0) / 2.0;
        // The first NaN stands behind the numbers.
        if ignore { middle } else { numbers.lt(n).select(numbers, middle) }
    })?;
    let (v, i) = (cx.pick(sorted, at, line.axis)?, cx.pick(places, at, line.axis)?);
    let keepdim = a.flag("keepdim", false)?;
    let (v, i) = (line.shaped(cx, v, keepdim)?, line.shaped(cx, i, keepdim)?);
    if whole { cx.one(v) } else { cx.many(&[v, i]) }
}

fn kthvalue(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let line = Line::of(cx, a, Some(-1))?;
    let k = a.size("k")?;
    if let (Some(k), Some(n)) = (k.known(), line.size.known())
        && !(1..=n).contains(&k)
    {
        return Err("kthvalue(): selected number k out of range for dimension".into());
    }
    let (sorted, places) = cx.sorted(line.x, line.axis)?;
    let at = cx.size_add(k, Size::Static(-1))?;
    let (one, keepdim) = (Size::Static(1), a.flag("keepdim", false)?);
    let v = line.shaped(cx, cx.part(sorted, line.axis, at, one)?, keepdim)?;
    let i = line.shaped(cx, cx.part(places, line.axis, at, one)?, keepdim)?;
    cx.many(&[v, i])
}

/// The most frequent value, the least of equally frequent ones, and its last position: the longest
/// run of the sorted elements.
fn mode(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let line = Line::of(cx, a, Some(-1))?;
    line.filled("mode")?;
    let d = dtype_of(line.x)?;
    let (sorted, places) = cx.sorted(cx.unboxed(line.x)?, line.axis)?;
    let sizes = cx.b.sizes_of(line.x)?;
    let i = cx.iota(DType::I64, sizes, line.axis)?;
    let before = value(cx, |f| (f.of(i) - 1.0).max(0.0))?;
    let before = cx.pick(sorted, before, line.axis)?;
    let start = value(cx, |f| f.of(sorted).ne(f.of(before)).select(f.of(i), 0.0))?;
    let start = cx.scanned(CumulativeKind::Max, start, line.axis)?;
    let length = cx.binary(BinaryKind::Sub, i, start)?;
    let at = cx.b.add(&ArgMax { input: length, axis: line.axis as i64 })?;
    let at = keep_dims(cx, line.x, at, &[line.axis as i64])?;
    let v = cx.convert(cx.pick(sorted, at, line.axis)?, d)?;
    let i = cx.pick(places, at, line.axis)?;
    let keepdim = a.flag("keepdim", false)?;
    let (v, i) = (line.shaped(cx, v, keepdim)?, line.shaped(cx, i, keepdim)?);
    cx.many(&[v, i])
}

/// Between the two sorted elements beside place `q * (n - 1)`.
fn quantile(cx: &mut Cx, a: &Args<'_>, ignore: bool) -> Result<Outcome> {
    let input = cx.tensor(a, "self")?;
    let d = dtype_of(input)?;
    if !matches!(d, DType::F32 | DType::F64) {
        return Err("quantile() input tensor must be either float or double dtype".into());
    }
    let q = cx.operand(a, "q", d)?;
    if rank_of(q) > 1 {
        return Err("quantile() q must be a scalar or 1D tensor".into());
    }
    let kind = a.text("interpolation", "linear")?;
    if !["linear", "lower", "higher", "midpoint", "nearest"].contains(&kind.as_str()) {
        return Err(format!(
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {kind}"
        ).into());
    }
    let whole = !a.has("dim");
    let x = if whole { cx.flat(input)? } else { cx.vector(input)? };
    let axis = if whole { 0 } else { wrap(a.int("dim", None)?, rank_of(x))? };
    let last = rank_of(x) - 1;
    let line = Line::along(cx, cx.moved_axis(x, axis, last)?, last)?;
    if line.size.known() == Some(0) {
        return Err("quantile() input tensor must be non-empty".into());
    }
    let (sorted, _) = cx.sorted(line.x, last)?;
    let (numbers, n) = (line.numbers(cx)?, cx.size_value(line.size)?);
    let one = cx.vector(q)?;
    let rank = value(cx, |f| {
        let (q, numbers) = (f.of(one), f.of(numbers));
        let end = if ignore { (numbers - 1.0).max(0.0) } else { f.of(n) - 1.0 };
        let rank = q * end.to(d);
        let nan = numbers.lt(f.of(n));
        if ignore { rank } else { nan.select(end.to(d), rank) }
    })?;
    let at = |near: Value| cx.pick(sorted, cx.convert(near, DType::I64)?, last);
    let place = |kind: UnaryKind| at(cx.unary(kind, rank)?);
    let v = match kind.as_str() {
        "lower" => place(UnaryKind::Floor)?,
        "higher" => place(UnaryKind::Ceil)?,
        "nearest" => place(UnaryKind::RoundEven)?,
        kind => {
            let (low, high) = (place(UnaryKind::Floor)?, place(UnaryKind::Ceil)?);
            value(cx, |f| {
                let (low, high, rank) = (f.of(low), f.of(high), f.of(rank));
                let w = if kind == "midpoint" { rank.number(0.5) } else { rank - rank.floor() };
                let step = high - low;
                w.lt(0.5).select(low + w * step, high - step * (1.0 - w))
            })?
        }
    };
    // (others, q) to (q, others), then the axis as it was.
    let v = cx.moved_axis(v, last, 0)?;
    let lead = rank_of(q);
    let sizes = cx.b.sizes_of(v)?;
    let mut shape = sizes[1..].to_vec();
    if a.flag("keepdim", false)? {
        if whole {
            shape = vec![Size::Static(1); rank_of(input)];
        } else if rank_of(input) > 0 {
            shape.insert(axis, Size::Static(1));
        }
    }
    let v = cx.reshape(v, [&sizes[..lead], &shape].concat())?;
    cx.one(v)
}

/// Running extremes and the last position where they are reached; NaN outranks every number.
fn running(cx: &mut Cx, a: &Args<'_>, max: bool) -> Result<Outcome> {
    let line = Line::of(cx, a, None)?;
    let d = dtype_of(line.x)?;
    let x = cx.unboxed(line.x)?;
    let kind = if max { CumulativeKind::Max } else { CumulativeKind::Min };
    let v = cx.scanned(kind, x, line.axis)?;
    let i = cx.iota(DType::I64, cx.b.sizes_of(x)?, line.axis)?;
    let here = value(cx, |f| {
        let (x, v) = (f.of(x), f.of(v));
        let reached = if max { x.ge(v) } else { x.le(v) };
        let reached = if d.is_float() { reached | x.is_nan() } else { reached };
        reached.select(f.of(i), 0.0)
    })?;
    let i = cx.scanned(CumulativeKind::Max, here, line.axis)?;
    let v = cx.convert(v, d)?;
    if line.scalar {
        let (v, i) = (cx.dropped(v, 0)?, cx.dropped(i, 0)?);
        return cx.many(&[v, i]);
    }
    cx.many(&[v, i])
}

/// Each prefix summed relative to its own maximum, so that none underflows: a reduction of the
/// axis for each element.
fn logcumsumexp(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let whole = cx.tensor(a, "self")?;
    let line = Line::of(cx, a, None)?;
    let d = dtype_of(line.x)?;
    if !d.is_float() {
        return Err(format!("\"logcumsumexp_out_cpu\" not implemented for {}", d.name()).into());
    }
    let last = rank_of(line.x) - 1;
    let x = cx.convert(cx.moved_axis(line.x, line.axis, last)?, super::axes::wide(d))?;
    let top = cx.scanned(CumulativeKind::Max, x, last)?;
    // Avoids inf - inf for an infinite maximum.
    let shift = value(cx, |f| f.of(top).is_finite().select(f.of(top), 0.0))?;
    let sizes = [cx.b.sizes_of(x)?, vec![line.size]].concat();
    let lead: Vec<i64> = (0..last as i64).collect();
    let end = last as i64;
    let wide = cx.spread(x, &[lead.as_slice(), &[end + 1]].concat(), &sizes)?;
    let from = cx.spread(shift, &[lead.as_slice(), &[end]].concat(), &sizes)?;
    let (i, j) = (cx.iota(DType::I64, sizes.clone(), last)?, cx.iota(DType::I64, sizes, last + 1)?);
    let v = value(cx, |f| {
        let e = f.of(j).le(f.of(i)).select((f.of(wide) - f.of(from)).exp(), 0.0);
        e.reduce(ReduceKind::Sum, &[end + 1], false).ln() + f.of(shift)
    })?;
    let v = cx.moved_axis(cx.convert(v, d)?, last, line.axis)?;
    let v = cx.shaped_as(v, whole)?;
    cx.one(v)
}
