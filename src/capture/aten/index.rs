//! Indexing overloads: gather, scatter and the like.
use super::{Args, Cx, Outcome, Row, formula::value, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.embedding.default",
        arguments: "weight, indices",
        build: |cx, a| {
            let (weight, indices) = (cx.tensor(a, "weight")?, cx.tensor(a, "indices")?);
            let v = cx.b.add(&Embedding { weight, indices })?;
            cx.one(v)
        },
    },
    Row { name: "aten.index_select.default", arguments: "self, dim, index", build: index_select },
    Row { name: "aten.gather.default", arguments: "self, dim, index", build: gather },
    Row { name: "aten.index.Tensor", arguments: "self, indices", build: index },
    Row {
        name: "aten.index_put.default",
        arguments: "self, indices, values, accumulate=False",
        build: index_put,
    },
    Row {
        name: "aten.scatter.src",
        arguments: "self, dim, index, src",
        build: |cx, a| {
            let src = cx.tensor(a, "src")?;
            scatter(cx, a, Some(src), ScatterKind::Assign)
        },
    },
    Row {
        name: "aten.scatter.value",
        arguments: "self, dim, index, value",
        build: |cx, a| scatter(cx, a, None, ScatterKind::Assign),
    },
    Row {
        name: "aten.scatter_add.default",
        arguments: "self, dim, index, src",
        build: |cx, a| {
            let src = cx.tensor(a, "src")?;
            scatter(cx, a, Some(src), ScatterKind::Add)
        },
    },
    Row {
        name: "aten.slice_scatter.default",
        arguments: "self, src, dim=0, start=None, end=None, step=1",
        build: slice_scatter,
    },
    Row {
        name: "aten.select_scatter.default",
        arguments: "self, src, dim, index",
        build: select_scatter,
    },
];

/// Wraps negative indices.
pub(super) fn positive(cx: &Cx, index: Value, x: Value, dim: usize) -> Result<Value> {
    let index = cx.convert(index, DType::I64)?;
    let size = cx.b.size_as_tensor(cx.b.size_of(x, dim)?, DType::I64)?;
    let negative = cx.compare(CompareKind::Lt, index, cx.integer(DType::I64, 0)?)?;
    let moved = cx.binary(BinaryKind::Add, index, size)?;
    cx.select(negative, moved, index)
}

/// Moves the first `count` dimensions to `to`; the others keep their order.
pub(super) fn index_dims_to(cx: &Cx, v: Value, count: usize, to: usize) -> Result<Value> {
    if to == 0 || count == 0 {
        return Ok(v);
    }
    let n = rank_of(v);
    let (count, to) = (count as i64, to as i64);
    let order = (count..count + to).chain(0..count).chain(count + to..n as i64).collect();
    cx.transpose(v, order)
}

fn index_select(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (whole, i) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
    let d = wrap(a.int("dim", None)?, rank_of(whole))?;
    // 0-d tensors act as ones of size [1].
    let (x, i) = (cx.vector(whole)?, cx.vector(i)?);
    let v = cx.b.add(&Gather { input: x, indices: vec![i], dims: vec![d as i64] })?;
    let v = index_dims_to(cx, v, 1, d)?;
    let v = if rank_of(whole) == 0 { cx.shaped_as(v, whole)? } else { v };
    cx.one(v)
}

/// Full coordinates per element of `index`: itself along `dim`, an iota elsewhere.
pub(super) fn coordinates(cx: &Cx, x: Value, index: Value, dim: usize) -> Result<Vec<Value>> {
    let sizes = cx.b.sizes_of(index)?;
    (0..rank_of(x))
        .map(|i| {
            if i == dim {
                cx.convert(index, DType::I64)
            } else {
                cx.iota(DType::I64, sizes.clone(), i)
            }
        })
        .collect()
}

fn gather(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, whole) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
    let (x, i) = (cx.vector(x)?, cx.vector(whole)?);
    let d = wrap(a.int("dim", None)?, rank_of(x))?;
    if rank_of(i) != rank_of(x) {
        // Only an index without elements may have another rank.
        let v = cx.b.splat(dtype_of(x)?, &cx.b.sizes_of(i)?, 0.0)?;
        return cx.one(v);
    }
    let indices = coordinates(cx, x, i, d)?;
    let dims = (0..rank_of(x) as i64).collect();
    let v = cx.b.add(&Gather { input: x, indices, dims })?;
    let v = cx.shaped_as(v, whole)?;
    cx.one(v)
}

fn scatter(cx: &mut Cx, a: &Args<'_>, src: Option<Value>, kind: ScatterKind) -> Result<Outcome> {
    let (whole, i) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
    let (x, i) = (cx.vector(whole)?, cx.vector(i)?);
    let src = src.map(|src| cx.vector(src)).transpose()?;
    let d = wrap(a.int("dim", None)?, rank_of(x))?;
    if i.ty().dims().iter().any(|n| n.known() == Some(0)) {
        return cx.one(whole);
    }
    let sizes = cx.b.sizes_of(i)?;
    let updates = match src {
        Some(src) => leading(cx, src, i)?,
        None => {
            let v = cx.operand(a, "value", dtype_of(x)?)?;
            cx.broadcast_to(v, &sizes)?
        }
    };
    let indices = coordinates(cx, x, i, d)?;
    let dims = (0..rank_of(x) as i64).collect();
    let v = cx.b.add(&Scatter { kind, input: x, updates, indices, dims })?;
    let v = cx.shaped_as(v, whole)?;
    cx.one(v)
}

/// The elements of `src` that have an index: it may be larger in any dimension.
pub(super) fn leading(cx: &Cx, src: Value, index: Value) -> Result<Value> {
    let dims = index.ty().dims();
    if src.ty().dims() == dims && dims.iter().all(|n| n.known().is_some()) {
        return Ok(src);
    }
    let (n, sizes) = (dims.len(), cx.b.sizes_of(index)?);
    cx.b.add(&Slice { input: src, offsets: vec![Size::Static(0); n], sizes, strides: vec![1; n] })
}

/// The tensors of an index list, broadcast to one shape, and the dimensions they index.
pub(super) fn index_list(cx: &mut Cx, a: &Args<'_>, x: Value) -> Result<(Vec<Value>, Vec<i64>)> {
    let (mut values, mut dims, mut next) = (vec![], vec![], 0);
    for alias in a.optional_aliases("indices")? {
        let first = next;
        next += 1;
        let Some(alias) = alias else { continue };
        let i = cx.get(alias)?;
        // Byte tensors are masks too. A mask indexes as many dimensions as it has.
        if [DType::I1, DType::UI8].contains(&dtype_of(i)?) {
            if rank_of(i) == 0 {
                return Err(crate::capture::unsupported("indexes by a mask without dimensions"));
            }
            let mask = cx.convert(i, DType::I1)?;
            values.extend(cx.coordinates_of(mask)?);
            next = first + rank_of(i);
        } else {
            values.push(positive(cx, i, x, first)?);
        }
        dims.extend(first as i64..next as i64);
    }
    let sizes = cx.common(&values)?;
    let values =
        values.into_iter().map(|v| cx.broadcast_to(v, &sizes)).collect::<Result<_, _>>()?;
    Ok((values, dims))
}

/// NumPy advanced indexing: adjacent indices stay in place, separated ones move to the front.
pub(super) fn index(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (indices, dims) = index_list(cx, a, x)?;
    let count = indices.first().map_or(0, |v| rank_of(*v));
    let neighbours = dims.windows(2).all(|w| w[1] == w[0] + 1);
    let v = cx.b.add(&Gather { input: x, indices, dims: dims.clone() })?;
    let first = *dims.first().ok_or("has no index")? as usize;
    let v = if neighbours { index_dims_to(cx, v, count, first)? } else { v };
    cx.one(v)
}

pub(super) fn index_put(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let masks = a.optional_aliases("indices")?;
    let values = cx.operand(a, "values", dtype_of(x)?)?;
    let given: Vec<usize> = (0..masks.len()).filter(|i| masks[*i].is_some()).collect();
    if let ([at], Some(m)) = (given.as_slice(), given.first().and_then(|i| masks[*i])) {
        let m = cx.get(m)?;
        let accumulate = a.flag("accumulate", false)?;
        if dtype_of(m)? == DType::I1 && *at == 0 && rank_of(values) == 0 && !accumulate {
            let lead = rank_of(m);
            let sizes = cx.b.sizes_of(x)?;
            let mask =
                cx.b.add(&BroadcastInDim { input: m, dims: (0..lead as i64).collect(), sizes })?;
            let v = cx.select(mask, values, x)?;
            return cx.one(v);
        }
        if dtype_of(m)? == DType::UI8 && rank_of(values) == 0 {
            return Err(
                "masked_fill_ only supports boolean masks, but got mask with dtype unsigned char"
                    .into(),
            );
        }
        if [DType::I1, DType::UI8].contains(&dtype_of(m)?) {
            let m = cx.convert(m, DType::I1)?;
            return put_masked(cx, x, m, *at, values, accumulate);
        }
    }
    let (indices, dims) = index_list(cx, a, x)?;
    let count = indices.first().map_or(0, |v| rank_of(*v));
    if dims.windows(2).any(|w| w[1] != w[0] + 1) {
        return Err("writes at separated dimensions".into());
    }
    // Updates have the shape of the indexing result; the index dimensions are moved to the front.
    let sizes = cx.b.sizes_of(x)?;
    let shape = match indices.first() {
        Some(i) => cx.b.sizes_of(*i)?,
        None => return Err("has no index".into()),
    };
    let (Some(first), Some(last)) =
        (dims.first().map(|d| *d as usize), dims.last().map(|d| *d as usize))
    else {
        return Err("has no index".into());
    };
    let (Some(before), Some(after)) = (sizes.get(..first), sizes.get(last + 1..)) else {
        return Err("has more indices than dimensions".into());
    };
    let values = cx.broadcast_to(values, &[before, &shape, after].concat())?;
    let n = rank_of(values) as i64;
    let (f, c) = (first as i64, count as i64);
    let updates = if first == 0 {
        values
    } else {
        cx.transpose(values, (f..f + c).chain(0..f).chain(f + c..n).collect())?
    };
    let kind = if a.flag("accumulate", false)? { ScatterKind::Add } else { ScatterKind::Assign };
    let v = cx.b.add(&Scatter { kind, input: x, updates, indices, dims })?;
    cx.one(v)
}

pub(super) fn written(
    cx: &mut Cx,
    x: Value,
    src: Value,
    dim: usize,
    start: Size,
    step: i64,
) -> Result<Outcome> {
    let src = cx.convert(src, dtype_of(x)?)?;
    let count = cx.b.size_of(src, dim)?;
    let i = cx.iota(DType::I64, vec![count], 0)?;
    let i = cx.binary(BinaryKind::Mul, i, cx.integer(DType::I64, step)?)?;
    let i = cx.binary(BinaryKind::Add, i, cx.size_value(start)?)?;
    let n = rank_of(src) as i64;
    let d = dim as i64;
    let updates = if dim == 0 {
        src
    } else {
        cx.transpose(src, [d].into_iter().chain((0..n).filter(|x| *x != d)).collect())?
    };
    let v = cx.b.add(&Scatter {
        kind: ScatterKind::Assign,
        input: x,
        updates,
        indices: vec![i],
        dims: vec![d],
    })?;
    cx.one(v)
}

/// A position in a dimension; a negative one counts from the end.
fn from_end(cx: &Cx, x: Value, d: usize, at: Size) -> Result<Size> {
    if at.known().is_some_and(|at| at < 0) { cx.size_add(at, cx.b.size_of(x, d)?) } else { Ok(at) }
}

fn slice_scatter(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, src) = (cx.tensor(a, "self")?, cx.tensor(a, "src")?);
    let d = wrap(a.int("dim", Some(0))?, rank_of(x))?;
    let start = if a.has("start") { a.size("start")? } else { Size::Static(0) };
    let start = from_end(cx, x, d, start)?;
    written(cx, x, src, d, start, a.int("step", Some(1))?)
}

fn select_scatter(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, src) = (cx.tensor(a, "self")?, cx.tensor(a, "src")?);
    let d = wrap(a.int("dim", None)?, rank_of(x))?;
    let at = from_end(cx, x, d, a.size("index")?)?;
    let mut sizes = cx.b.sizes_of(src)?;
    if d > sizes.len() {
        return Err(format!("has a source of rank {} for dimension {d}", sizes.len()).into());
    }
    sizes.insert(d, Size::Static(1));
    let src = cx.reshape(src, sizes)?;
    written(cx, x, src, d, at, 1)
}

/// `index_put` by one mask, after dimensions that are not indexed.
fn put_masked(
    cx: &mut Cx,
    x: Value,
    mask: Value,
    at: usize,
    values: Value,
    accumulate: bool,
) -> Result<Outcome> {
    let sizes = cx.b.sizes_of(x)?;
    let end = at + rank_of(mask);
    let (Some(before), Some(after)) = (sizes.get(..at), sizes.get(end..)) else {
        return Err("too many indices for tensor".into());
    };
    let dims: Vec<i64> = (at as i64..end as i64).collect();
    // The dimension of the mask's places in the values, counted from the end.
    let axis = rank_of(values).checked_sub(after.len() + 1);
    let v = match axis {
        Some(c) if values.ty().dims()[c].known() != Some(1) => {
            let n = cx.b.size_of(values, c)?;
            let values = cx.broadcast_to(values, &[before, &[n], after].concat())?;
            chosen(cx, values, mask, at)?
        }
        Some(c) => {
            let values = cx.dropped(values, c)?;
            let shape = cx.b.sizes_of(values)?;
            let lead = vec![Size::Static(1); rank_of(mask)];
            let (own, rest) = shape.split_at(c);
            let values = cx.reshape(values, [own, &lead, rest].concat())?;
            cx.broadcast_to(values, &sizes)?
        }
        None => cx.broadcast_to(values, &sizes)?,
    };
    let mask = cx.spread(mask, &dims, &sizes)?;
    let v = if accumulate {
        let zero = cx.number(dtype_of(x)?, 0.0)?;
        let kind = if dtype_of(x)? == DType::I1 { BinaryKind::Or } else { BinaryKind::Add };
        cx.binary(kind, x, cx.select(mask, v, zero)?)?
    } else {
        cx.select(mask, v, x)?
    };
    cx.one(v)
}

/// For each set place of a mask, the next element of a dimension of `source`. Where nothing is set,
/// the dimension may be empty, but a gather needs an element.
pub(super) fn chosen(cx: &Cx, source: Value, mask: Value, axis: usize) -> Result<Value> {
    let mut source = source;
    if cx.b.size_of(source, axis)?.known().is_none() {
        source = cx.zero_padded(source, axis, Size::Static(0), Size::Static(1))?;
    }
    cx.take_axis(source, ranks(cx, mask)?, axis)
}

/// For each place of a mask, how many places before it are set.
pub(super) fn ranks(cx: &Cx, mask: Value) -> Result<Value> {
    let line = cx.convert(cx.flat(mask)?, DType::I64)?;
    let n = cx.scanned(CumulativeKind::Sum, line, 0)?;
    let n = value(cx, |f| (f.of(n) - 1.0).max(0.0))?;
    cx.shaped_as(n, mask)
}
