//! Writes at positions: additions, copies, reductions and masks.
use super::{
    Args, Cx, Outcome, Row, Val,
    formula::value,
    index::{chosen, coordinates, index, index_list, index_put, leading, positive},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.index_add.default",
        arguments: "self, dim, index, source, alpha=1",
        build: |cx, a| {
            let mut source = cx.tensor(a, "source")?;
            if a.has("alpha") && a.float("alpha", Some(1.0)) != Ok(1.0) {
                let alpha = cx.operand(a, "alpha", dtype_of(source)?)?;
                let bools = dtype_of(source)? == DType::I1;
                let kind = if bools { BinaryKind::And } else { BinaryKind::Mul };
                source = cx.binary(kind, source, alpha)?;
            }
            along(cx, a, source, Some(ScatterMode { reduce: Reduction::Sum, include_self: true }))
        },
    },
    Row {
        name: "aten.index_copy.default",
        arguments: "self, dim, index, source",
        build: |cx, a| {
            let source = cx.tensor(a, "source")?;
            along(cx, a, source, None)
        },
    },
    Row {
        name: "aten.index_reduce.default",
        arguments: "self, dim, index, source, reduce, include_self=True",
        build: |cx, a| {
            let (source, mode) = (cx.tensor(a, "source")?, ScatterMode::of(a)?);
            along(cx, a, source, Some(mode))
        },
    },
    Row { name: "aten.index_fill.int_Scalar", arguments: "self, dim, index, value", build: fill },
    Row { name: "aten.index_fill.int_Tensor", arguments: "self, dim, index, value", build: fill },
    Row {
        name: "aten.scatter.reduce",
        arguments: "self, dim, index, src, reduce",
        build: |cx, a| {
            let (src, mode) = (cx.tensor(a, "src")?, ScatterMode::of(a)?);
            scattered(cx, a, src, mode)
        },
    },
    Row {
        name: "aten.scatter.value_reduce",
        arguments: "self, dim, index, value, reduce",
        build: |cx, a| {
            let (x, i) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
            let v = cx.operand(a, "value", dtype_of(x)?)?;
            let v = cx.broadcast_to(v, &cx.b.sizes_of(i)?)?;
            let mode = ScatterMode::of(a)?;
            scattered(cx, a, v, mode)
        },
    },
    Row {
        name: "aten.scatter_reduce.two",
        arguments: "self, dim, index, src, reduce, include_self=True",
        build: |cx, a| {
            let (src, mode) = (cx.tensor(a, "src")?, ScatterMode::of(a)?);
            scattered(cx, a, src, mode)
        },
    },
    Row {
        name: "aten.put.default",
        arguments: "self, index, source, accumulate=False",
        build: put,
    },
    Row { name: "aten.masked_scatter.default", arguments: "self, mask, source", build: masked },
    Row {
        name: "aten._unsafe_masked_index.default",
        arguments: "self, mask, indices, fill",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let mask = cx.operand(a, "mask", DType::I1)?;
            let fill = cx.operand(a, "fill", dtype_of(x)?)?;
            if x.ty().dims().iter().any(|d| d.known() == Some(0)) {
                // The mask may lack dimensions that the indices have.
                let mut shaped = vec![mask];
                for alias in a.optional_aliases("indices")?.into_iter().flatten() {
                    shaped.push(cx.get(alias)?);
                }
                let v = cx.broadcast_to(fill, &cx.common(&shaped)?)?;
                return cx.one(v);
            }
            let inner = clamped(cx, a, x, None)?;
            let Outcome::One(Val::Tensor(found)) = index(cx, &inner)? else {
                return Err("has no result".into());
            };
            let found = cx.get(found)?;
            let v = cx.select(mask, found, fill)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten._unsafe_masked_index_put_accumulate.default",
        arguments: "self, mask, indices, values",
        build: |cx, a| {
            let (x, values) = (cx.tensor(a, "self")?, cx.tensor(a, "values")?);
            if x.ty().dims().iter().any(|d| d.known() == Some(0)) {
                return cx.one(x);
            }
            let mask = cx.operand(a, "mask", DType::I1)?;
            let zero = cx.number(dtype_of(values)?, 0.0)?;
            let values = cx.select(mask, values, zero)?;
            let inner = clamped(cx, a, x, Some(values))?;
            index_put(cx, &inner)
        },
    },
];

#[derive(Clone, Copy, PartialEq)]
enum Reduction {
    Sum,
    Prod,
    Mean,
    Max,
    Min,
}

/// How updates join what is there, which counts itself only if `include_self`.
#[derive(Clone, Copy)]
struct ScatterMode {
    reduce: Reduction,
    include_self: bool,
}

impl ScatterMode {
    fn of(a: &Args<'_>) -> Result<ScatterMode> {
        let reduce = match a.text("reduce", "")?.as_str() {
            "sum" | "add" => Reduction::Sum,
            "prod" | "multiply" => Reduction::Prod,
            "mean" => Reduction::Mean,
            "amax" => Reduction::Max,
            "amin" => Reduction::Min,
            other => {
                return Err(format!(
                    "reduce argument must be either sum, prod, mean, amax or amin, got {other}"
                )
                .into());
            }
        };
        Ok(ScatterMode { reduce, include_self: a.flag("include_self", true)? })
    }
}

/// What changes nothing in a reduction, as a 0-d tensor.
fn identity(cx: &Cx, d: DType, reduce: Reduction) -> Result<Value> {
    let bits = d.bits();
    let (least, greatest) = match d {
        DType::UI8 => (0, 255),
        _ => (i64::MIN >> (64 - bits.clamp(1, 64)), i64::MAX >> (64 - bits.clamp(1, 64))),
    };
    match reduce {
        Reduction::Sum | Reduction::Mean => cx.number(d, 0.0),
        Reduction::Prod => cx.number(d, 1.0),
        Reduction::Max if d.is_float() => cx.number(d, f64::NEG_INFINITY),
        Reduction::Min if d.is_float() => cx.number(d, f64::INFINITY),
        Reduction::Max => cx.integer(d, least),
        Reduction::Min => cx.integer(d, greatest),
    }
}

/// A scatter (see `kiln.scatter`) that reduces. On bools a sum is `or` and a product is `and`.
fn combined(
    cx: &Cx,
    x: Value,
    updates: Value,
    (indices, dims): (Vec<Value>, Vec<i64>),
    mode: ScatterMode,
) -> Result<Value> {
    let d = dtype_of(x)?;
    if dtype_of(updates)? != d {
        return Err("Expected self.dtype to be equal to src.dtype".into());
    }
    if d == DType::I1 {
        let reduce = match mode.reduce {
            Reduction::Sum => Reduction::Max,
            Reduction::Prod => Reduction::Min,
            other => other,
        };
        let (x, updates) = (cx.unboxed(x)?, cx.unboxed(updates)?);
        let v = combined(cx, x, updates, (indices, dims), ScatterMode { reduce, ..mode })?;
        return cx.convert(v, d);
    }
    let add = |kind: ScatterKind, input: Value, updates: Value| -> Result<Value> {
        let (indices, dims) = (indices.clone(), dims.clone());
        cx.b.add(&Scatter { kind, input, updates, indices, dims })
    };
    let sizes = cx.b.sizes_of(updates)?;
    let mut base = x;
    if !mode.include_self {
        let none = cx.broadcast_to(identity(cx, d, mode.reduce)?, &sizes)?;
        base = add(ScatterKind::Assign, base, none)?;
    }
    let kind = match mode.reduce {
        Reduction::Sum | Reduction::Mean => ScatterKind::Add,
        Reduction::Prod => ScatterKind::Mul,
        Reduction::Max => ScatterKind::Max,
        Reduction::Min => ScatterKind::Min,
    };
    let v = add(kind, base, updates)?;
    if mode.reduce != Reduction::Mean {
        return Ok(v);
    }
    let own = cx.full_like(x, f64::from(mode.include_self))?;
    let count = add(ScatterKind::Add, own, cx.b.splat(d, &sizes, 1.0)?)?;
    value(cx, |f| {
        let (v, count) = (f.of(v), f.of(count).max(1.0));
        if d.is_float() { v / count } else { v.floor_div(count) }
    })
}

/// Slices of `source` to positions of one dimension: assigned, or reduced.
fn along(cx: &mut Cx, a: &Args<'_>, source: Value, mode: Option<ScatterMode>) -> Result<Outcome> {
    let (whole, index) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
    if rank_of(index) > 1 {
        return Err("Index should have dimension 1 or 0".into());
    }
    if dtype_of(whole)? != dtype_of(source)? {
        return Err("self and source expected to have the same dtype".into());
    }
    let (x, index, source) = (cx.vector(whole)?, cx.vector(index)?, cx.vector(source)?);
    let axis = wrap(a.int("dim", None)?, rank_of(x))?;
    let index = cx.convert(index, DType::I64)?;
    let updates = cx.moved_axis(source, axis, 0)?;
    let v = match mode {
        None => cx.scattered(ScatterKind::Assign, x, source, index, axis)?,
        Some(mode) => combined(cx, x, updates, (vec![index], vec![axis as i64]), mode)?,
    };
    let v = cx.shaped_as(v, whole)?;
    cx.one(v)
}

/// One value at positions of one dimension.
fn fill(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (whole, index) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
    let (x, index) = (cx.vector(whole)?, cx.vector(index)?);
    if rank_of(index) > 1 {
        return Err("Index has to be a vector/scalar".into());
    }
    let axis = wrap(a.int("dim", None)?, rank_of(x))?;
    let v = cx.operand(a, "value", dtype_of(x)?)?;
    if rank_of(v) > 0 {
        return Err("index_fill_ only supports a 0-dimensional value tensor".into());
    }
    let mut sizes = cx.b.sizes_of(x)?;
    sizes[axis] = cx.b.size_of(index, 0)?;
    let index = positive(cx, index, x, axis)?;
    let v = cx.broadcast_to(v, &sizes)?;
    let v = cx.scattered(ScatterKind::Assign, x, v, index, axis)?;
    let v = cx.shaped_as(v, whole)?;
    cx.one(v)
}

/// Elements of `src` to positions along a dimension, as in torch.scatter_reduce.
fn scattered(cx: &mut Cx, a: &Args<'_>, src: Value, mode: ScatterMode) -> Result<Outcome> {
    let (whole, index) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
    let (x, index, src) = (cx.vector(whole)?, cx.vector(index)?, cx.vector(src)?);
    let axis = wrap(a.int("dim", None)?, rank_of(x))?;
    if rank_of(index) != rank_of(x) || rank_of(src) != rank_of(x) {
        return Err(
            "Index tensor must have the same number of dimensions as self and src tensor".into()
        );
    }
    if index.ty().dims().iter().any(|n| n.known() == Some(0)) {
        return cx.one(whole);
    }
    let n = rank_of(index);
    let updates = leading(cx, src, index)?;
    let places = (coordinates(cx, x, index, axis)?, (0..n as i64).collect());
    let v = combined(cx, x, updates, places, mode)?;
    let v = cx.shaped_as(v, whole)?;
    cx.one(v)
}

/// At positions of the flattened tensor.
fn put(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, index) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
    let source = cx.tensor(a, "source")?;
    if dtype_of(x)? != dtype_of(source)? {
        return Err("put_(): self and source expected to have the same dtype".into());
    }
    let line = cx.flat(x)?;
    let index = positive(cx, cx.flat(index)?, line, 0)?;
    let source = cx.flat(source)?;
    let v = if a.flag("accumulate", false)? {
        let mode = ScatterMode { reduce: Reduction::Sum, include_self: true };
        combined(cx, line, source, (vec![index], vec![0]), mode)?
    } else {
        cx.scattered(ScatterKind::Assign, line, source, index, 0)?
    };
    let v = cx.shaped_as(v, x)?;
    cx.one(v)
}

/// Where the mask is set, the next element of the source.
fn masked(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, source) = (cx.tensor(a, "self")?, cx.tensor(a, "source")?);
    if dtype_of(x)? != dtype_of(source)? {
        return Err("masked_scatter: expected self and source to have same dtypes".into());
    }
    let mask = cx.tensor(a, "mask")?;
    if dtype_of(mask)? != DType::I1 {
        return Err("masked_scatter_ only supports boolean masks".into());
    }
    let (x, mask) = cx.broadcast(x, mask)?;
    if source.ty().dims().iter().any(|d| d.known() == Some(0)) {
        return cx.one(x);
    }
    let v = chosen(cx, cx.flat(source)?, mask, 0)?;
    let v = cx.select(mask, v, x)?;
    cx.one(v)
}

/// The arguments of an indexing whose positions are brought into range.
fn clamped(cx: &mut Cx, a: &Args<'_>, x: Value, values: Option<Value>) -> Result<Args<'static>> {
    let mut list = vec![];
    for (d, alias) in a.optional_aliases("indices")?.into_iter().enumerate() {
        list.push(match alias {
            None => Val::None,
            Some(alias) => {
                let i = cx.get(alias)?;
                let i = positive(cx, i, x, d)?;
                let n = cx.size_value(cx.b.size_of(x, d)?)?;
                let i = value(cx, |f| f.of(i).max(0.0).min(f.of(n) - 1.0))?;
                Val::Tensor(cx.store.fresh(i))
            }
        });
    }
    let mut all = std::collections::HashMap::from([
        ("self", Val::Tensor(cx.store.fresh(x))),
        ("indices", Val::List(list)),
    ]);
    if let Some(v) = values {
        all.insert("values", Val::Tensor(cx.store.fresh(v)));
        all.insert("accumulate", Val::Bool(true));
    }
    let args = Args { values: all };
    index_list(cx, &args, x)?;
    Ok(args)
}
