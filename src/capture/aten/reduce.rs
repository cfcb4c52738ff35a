//! Reductions, statistics, scans and sorts.
use super::{Args, Cx, Outcome, Row, tools::*, view::cut};
use kiln_dialects::{ir::*, ops::*, value::DType};

macro_rules! reduce_row {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "self, dim=None, keepdim=False, dtype=None",
            build: |cx, a| {
                let x = cx.tensor(a, "self")?;
                let v = reduced(cx, a, ReduceKind::$kind, x)?;
                cx.one(v)
            },
        }
    };
}

/// Whether any element holds, or all do: an empty list is no dimension here, not all of them.
fn of_dims(cx: &mut Cx, a: &Args<'_>, kind: ReduceKind) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let v = if a.ints("dim")?.is_some_and(|dims| dims.is_empty()) {
        let (v, to) = (cx.convert(x, DType::I1)?, truth(dtype_of(x)?));
        cx.convert(v, to)?
    } else {
        reduced(cx, a, kind, x)?
    };
    cx.one(v)
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    reduce_row!("aten.sum.default", Sum),
    reduce_row!("aten.sum.dim_IntList", Sum),
    reduce_row!("aten.prod.default", Prod),
    reduce_row!("aten.prod.dim_int", Prod),
    reduce_row!("aten.amax.default", Max),
    reduce_row!("aten.amin.default", Min),
    reduce_row!("aten.max.default", Max),
    reduce_row!("aten.min.default", Min),
    reduce_row!("aten.any.default", Any),
    reduce_row!("aten.any.dim", Any),
    Row {
        name: "aten.any.dims",
        arguments: "self, dim=None, keepdim=False",
        build: |cx, a| of_dims(cx, a, ReduceKind::Any),
    },
    Row {
        name: "aten.all.dims",
        arguments: "self, dim=None, keepdim=False",
        build: |cx, a| of_dims(cx, a, ReduceKind::All),
    },
    reduce_row!("aten.all.default", All),
    reduce_row!("aten.all.dim", All),
    Row { name: "aten.mean.default", arguments: "self, dtype=None", build: mean },
    Row { name: "aten.mean.dim", arguments: "self, dim, keepdim=False, dtype=None", build: mean },
    Row {
        name: "aten.var.default",
        arguments: "self, unbiased=True",
        build: |cx, a| {
            let v = variance(cx, a, false)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.var.dim",
        arguments: "self, dim, unbiased=True, keepdim=False",
        build: |cx, a| {
            let v = variance(cx, a, false)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.var.correction",
        arguments: "self, dim=None, correction=1, keepdim=False",
        build: |cx, a| {
            let v = variance(cx, a, false)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.std.default",
        arguments: "self, unbiased=True",
        build: |cx, a| {
            let v = variance(cx, a, true)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.std.dim",
        arguments: "self, dim, unbiased=True, keepdim=False",
        build: |cx, a| {
            let v = variance(cx, a, true)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.std.correction",
        arguments: "self, dim=None, correction=1, keepdim=False",
        build: |cx, a| {
            let v = variance(cx, a, true)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.var_mean.default",
        arguments: "self, unbiased=True",
        build: |cx, a| with_mean(cx, a, false),
    },
    Row {
        name: "aten.var_mean.dim",
        arguments: "self, dim, unbiased=True, keepdim=False",
        build: |cx, a| with_mean(cx, a, false),
    },
    Row {
        name: "aten.var_mean.correction",
        arguments: "self, dim=None, correction=1, keepdim=False",
        build: |cx, a| with_mean(cx, a, false),
    },
    Row {
        name: "aten.std_mean.default",
        arguments: "self, unbiased=True",
        build: |cx, a| with_mean(cx, a, true),
    },
    Row {
        name: "aten.std_mean.dim",
        arguments: "self, dim, unbiased=True, keepdim=False",
        build: |cx, a| with_mean(cx, a, true),
    },
    Row {
        name: "aten.std_mean.correction",
        arguments: "self, dim=None, correction=1, keepdim=False",
        build: |cx, a| with_mean(cx, a, true),
    },
    Row {
        name: "aten.linalg_vector_norm.default",
        arguments: "self, ord=2, dim=None, keepdim=False, dtype=None",
        build: vector_norm,
    },
    Row {
        name: "aten.norm.ScalarOpt_dim",
        arguments: "self, p, dim, keepdim=False",
        build: vector_norm,
    },
    Row {
        name: "aten.argmax.default",
        arguments: "self, dim=None, keepdim=False",
        build: |cx, a| arg(cx, a, true),
    },
    Row {
        name: "aten.argmin.default",
        arguments: "self, dim=None, keepdim=False",
        build: |cx, a| arg(cx, a, false),
    },
    Row {
        name: "aten.max.dim",
        arguments: "self, dim, keepdim=False",
        build: |cx, a| extreme(cx, a, true),
    },
    Row {
        name: "aten.min.dim",
        arguments: "self, dim, keepdim=False",
        build: |cx, a| extreme(cx, a, false),
    },
    Row {
        name: "aten.cumsum.default",
        arguments: "self, dim, dtype=None",
        build: |cx, a| {
            let v = cumulative(cx, a, CumulativeKind::Sum)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.cumprod.default",
        arguments: "self, dim, dtype=None",
        build: |cx, a| {
            let v = cumulative(cx, a, CumulativeKind::Prod)?;
            cx.one(v)
        },
    },
    Row { name: "aten.logsumexp.default", arguments: "self, dim, keepdim=False", build: logsumexp },
    Row { name: "aten.sort.default", arguments: "self, dim=-1, descending=False", build: sort },
    Row {
        name: "aten.sort.stable",
        arguments: "self, stable, dim=-1, descending=False",
        build: sort,
    },
    Row {
        name: "aten.argsort.default",
        arguments: "self, dim=-1, descending=False",
        build: |cx, a| {
            let (_, i) = sorted(cx, a)?;
            cx.one(i)
        },
    },
    Row {
        name: "aten.topk.default",
        arguments: "self, k, dim=-1, largest=True, sorted=True",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let axis = wrap(a.int("dim", Some(-1))?, rank_of(x))? as i64;
            if rank_of(x) == 0 {
                let i = cx.integer(DType::I64, 0)?;
                return cx.many(&[x, i]);
            }
            let (k, largest) = (a.size("k")?, a.flag("largest", true)?);
            if let Some(k) = k.known() {
                let op = cx.b.create_node(&TopK { input: x, axis, k, smallest: !largest })?;
                return cx.many(&op.results());
            }
            let op = cx.b.create_node(&Sort { input: x, axis, descending: largest })?;
            let first =
                |v: Value| cut(cx, v, axis as usize, Size::Static(0), k, 1)?.apply(&cx.b, v);
            let found = [first(op.result(0))?, first(op.result(1))?];
            cx.many(&found)
        },
    },
    Row {
        name: "aten.diff.default",
        arguments: "self, n=1, dim=-1, prepend=None, append=None",
        build: diff,
    },
];

/// The dtype of `any` and `all`: uint8 has no bools.
fn truth(d: DType) -> DType {
    if d == DType::UI8 { d } else { DType::I1 }
}

/// A reduction with PyTorch's result dtype; `keepdim` is a reshape.
fn reduced(cx: &mut Cx, a: &Args<'_>, kind: ReduceKind, x: Value) -> Result<Value> {
    let d = dtype_of(x)?;
    let to = match kind {
        ReduceKind::Any | ReduceKind::All => DType::I1,
        // Sums and products of integers accumulate in i64.
        ReduceKind::Sum | ReduceKind::Prod => {
            a.dtype("dtype")?.unwrap_or(if d.is_float() { d } else { DType::I64 })
        }
        ReduceKind::Max | ReduceKind::Min => d,
    };
    let x = cx.convert(x, to)?;
    let dims = wrap_all(a.ints("dim")?, rank_of(x))?;
    // On bools, max and sum are any; min and product are all.
    let kind = match kind {
        ReduceKind::Max | ReduceKind::Sum if to == DType::I1 => ReduceKind::Any,
        ReduceKind::Min | ReduceKind::Prod if to == DType::I1 => ReduceKind::All,
        kind => kind,
    };
    let mut r = cx.b.add(&Reduce { kind, input: x, dims: dims.clone(), maybe_empty: false })?;
    if to == DType::I1 && d == DType::UI8 {
        r = cx.convert(r, truth(d))?;
    }
    if a.flag("keepdim", false)? { keep_dims(cx, x, r, &dims) } else { Ok(r) }
}

/// Reinserts reduced dimensions `dims` of `x` as size 1.
pub(super) fn keep_dims(cx: &Cx, x: Value, r: Value, dims: &[i64]) -> Result<Value> {
    kiln_passes::broadcasting::keep_dims(&cx.b, x, r, dims)
}

fn mean(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mut x = cx.tensor(a, "self")?;
    if let Some(d) = a.dtype("dtype")? {
        x = cx.convert(x, d)?;
    }
    let v = cx.b.add(&Mean {
        input: x,
        dims: wrap_all(a.ints("dim")?, rank_of(x))?,
        keep_dims: a.flag("keepdim", false)?,
    })?;
    cx.one(v)
}

fn variance(cx: &mut Cx, a: &Args<'_>, root: bool) -> Result<Value> {
    let input = cx.tensor(a, "self")?;
    let correction = if a.has("unbiased") {
        if a.flag("unbiased", true)? { 1.0 } else { 0.0 }
    } else {
        a.float("correction", Some(1.0))?
    };
    let (dims, keep_dims) = (wrap_all(a.ints("dim")?, rank_of(input))?, a.flag("keepdim", false)?);
    if root {
        Ok(cx.b.add(&Std { input, dims, keep_dims, correction })?)
    } else {
        Ok(cx.b.add(&Var { input, dims, keep_dims, correction })?)
    }
}

fn with_mean(cx: &mut Cx, a: &Args<'_>, root: bool) -> Result<Outcome> {
    let v = variance(cx, a, root)?;
    let x = cx.floating(a, "self")?;
    let m = cx.b.add(&Mean {
        input: x,
        dims: wrap_all(a.ints("dim")?, rank_of(x))?,
        keep_dims: a.flag("keepdim", false)?,
    })?;
    cx.many(&[v, m])
}

fn vector_norm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mut x = cx.floating(a, "self")?;
    if let Some(d) = a.dtype("dtype")? {
        x = cx.convert(x, d)?;
    }
    let p = a.float(if a.has("ord") { "ord" } else { "p" }, Some(2.0))?;
    let dims = wrap_all(a.ints("dim")?, rank_of(x))?;
    let v = p_norm(cx, x, p, &dims, a.flag("keepdim", false)?)?;
    cx.one(v)
}

/// `(sum |x|^p)^(1/p)` along dimensions, and its limits for 0 and infinite p. Powers and sums of
/// 16-bit floats are f32: those of f16 overflow.
pub(super) fn p_norm(cx: &Cx, x: Value, p: f64, dims: &[i64], keepdim: bool) -> Result<Value> {
    let narrow = dtype_of(x)?;
    let d = super::axes::wide(narrow);
    let x = cx.convert(x, d)?;
    let reduced = |kind: ReduceKind, input: Value| -> Result<Value> {
        let r = cx.b.add(&Reduce { kind, input, dims: dims.to_vec(), maybe_empty: false })?;
        if keepdim { keep_dims(cx, x, r, dims) } else { Ok(r) }
    };
    let m = cx.unary(UnaryKind::Abs, x)?;
    let v = if p == f64::INFINITY {
        reduced(ReduceKind::Max, m)?
    } else if p == f64::NEG_INFINITY {
        reduced(ReduceKind::Min, m)?
    } else if p == 0.0 {
        let nonzero = cx.compare(CompareKind::Ne, x, cx.number(d, 0.0)?)?;
        let ones = cx.convert(nonzero, d)?;
        reduced(ReduceKind::Sum, ones)?
    } else if p == 1.0 {
        reduced(ReduceKind::Sum, m)?
    } else if p == 2.0 {
        let squares = cx.binary(BinaryKind::Mul, x, x)?;
        let sum = reduced(ReduceKind::Sum, squares)?;
        unless_zero(cx, sum, |sum| cx.unary(UnaryKind::Sqrt, sum))?
    } else {
        let powers = cx.binary(BinaryKind::Pow, m, cx.number(d, p)?)?;
        let sum = reduced(ReduceKind::Sum, powers)?;
        let root = |sum| cx.binary(BinaryKind::Pow, sum, cx.number(d, 1.0 / p)?);
        if p > 0.0 { unless_zero(cx, sum, root)? } else { root(sum)? }
    };
    cx.convert(v, narrow)
}

/// A root, or 0 of 0, where a derivative is 0 too: that of a root is infinite.
fn unless_zero(cx: &Cx, sum: Value, root: impl Fn(Value) -> Result<Value>) -> Result<Value> {
    let (zero, one) = (cx.full_like(sum, 0.0)?, cx.full_like(sum, 1.0)?);
    let none = cx.compare(CompareKind::Eq, sum, zero)?;
    cx.select(none, zero, root(cx.select(none, one, sum)?)?)
}

fn arg(cx: &mut Cx, a: &Args<'_>, max: bool) -> Result<Outcome> {
    let before = cx.tensor(a, "self")?;
    let mut x = cx.vector(before)?;
    let whole = !a.has("dim");
    if whole {
        let n =
            cx.b.sizes_of(x)?.into_iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, s))?;
        x = cx.reshape(x, vec![n])?;
    }
    let axis = wrap(a.int("dim", Some(0))?, rank_of(x))? as i64;
    let v = if max {
        cx.b.add(&ArgMax { input: x, axis })?
    } else {
        cx.b.add(&ArgMin { input: x, axis })?
    };
    let v = if a.flag("keepdim", false)? {
        let dims = if whole { (0..rank_of(before) as i64).collect() } else { vec![axis] };
        keep_dims(cx, before, v, &dims)?
    } else {
        v
    };
    let v = if rank_of(before) == 0 { cx.shaped_as(v, before)? } else { v };
    cx.one(v)
}

fn extreme(cx: &mut Cx, a: &Args<'_>, max: bool) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let axis = wrap(a.int("dim", None)?, rank_of(x))? as i64;
    if rank_of(x) == 0 {
        let i = cx.integer(DType::I64, 0)?;
        return cx.many(&[x, i]);
    }
    let v = reduced(cx, a, if max { ReduceKind::Max } else { ReduceKind::Min }, x)?;
    let mut i = if max {
        cx.b.add(&ArgMax { input: x, axis })?
    } else {
        cx.b.add(&ArgMin { input: x, axis })?
    };
    if a.flag("keepdim", false)? {
        i = keep_dims(cx, x, i, &[axis])?;
    }
    cx.many(&[v, i])
}

fn cumulative(cx: &mut Cx, a: &Args<'_>, kind: CumulativeKind) -> Result<Value> {
    let x = cx.tensor(a, "self")?;
    let d = dtype_of(x)?;
    let input =
        cx.convert(x, a.dtype("dtype")?.unwrap_or(if d.is_float() { d } else { DType::I64 }))?;
    let axis = wrap(a.int("dim", None)?, rank_of(x))? as i64;
    if rank_of(x) == 0 {
        return Ok(input);
    }
    cx.b.add(&Cumulative { kind, input, axis })
}

fn logsumexp(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.floating(a, "self")?;
    let dims = wrap_all(a.ints("dim")?, rank_of(x))?;
    let top = cx.b.add(&Reduce {
        kind: ReduceKind::Max,
        input: x,
        dims: dims.clone(),
        maybe_empty: true,
    })?;
    // Avoids inf - inf for an infinite maximum.
    let finite = cx.unary(UnaryKind::IsFinite, top)?;
    let zero = cx.full_like(top, 0.0)?;
    let shift = cx.select(finite, top, zero)?;
    let spread = keep_dims(cx, x, shift, &dims)?;
    let e = cx.unary(UnaryKind::Exp, cx.binary(BinaryKind::Sub, x, spread)?)?;
    let sum = cx.b.add(&Reduce {
        kind: ReduceKind::Sum,
        input: e,
        dims: dims.clone(),
        maybe_empty: false,
    })?;
    let v = cx.binary(BinaryKind::Add, cx.unary(UnaryKind::Log, sum)?, shift)?;
    let v = if a.flag("keepdim", false)? { keep_dims(cx, x, v, &dims)? } else { v };
    cx.one(v)
}

fn sorted(cx: &mut Cx, a: &Args<'_>) -> Result<(Value, Value)> {
    let x = cx.tensor(a, "self")?;
    let axis = wrap(a.int("dim", Some(-1))?, rank_of(x))? as i64;
    if rank_of(x) == 0 {
        return Ok((x, cx.integer(DType::I64, 0)?));
    }
    let op =
        cx.b.create_node(&Sort { input: x, axis, descending: a.flag("descending", false)? })?;
    Ok((op.result(0), op.result(1)))
}

fn sort(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (v, i) = sorted(cx, a)?;
    cx.many(&[v, i])
}

fn diff(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mut x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", Some(-1))?, rank_of(x))?;
    // PyTorch returns the input as it is, without what it would prepend or append.
    let mut times = a.int("n", Some(1))?;
    if times == 0 {
        return cx.one(x);
    }
    let inputs = [cx.optional(a, "prepend")?, Some(x), cx.optional(a, "append")?]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    if inputs.len() > 1 {
        x = cx.b.add(&Concat { inputs, axis: d as i64 })?;
    }
    if let Size::Static(n) = cx.b.size_of(x, d)? {
        times = times.min(n);
    }
    for _ in 0..times {
        let less = cx.size_add(cx.b.size_of(x, d)?, Size::Static(-1))?;
        let (next, this) = (
            cut(cx, x, d, Size::Static(1), less, 1)?.apply(&cx.b, x)?,
            cut(cx, x, d, Size::Static(0), less, 1)?.apply(&cx.b, x)?,
        );
        let kind = if dtype_of(x)? == DType::I1 { BinaryKind::Xor } else { BinaryKind::Sub };
        x = cx.binary(kind, next, this)?;
    }
    cx.one(x)
}
