//! Views of elements in another order of addresses: diagonals, windows, strides.
use super::{Args, Cx, Outcome, Row, Val, tools::*};
use crate::capture::{memory::Memory, storage::ViewOp};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.diagonal.default",
        arguments: "self, offset=0, dim1=0, dim2=1",
        build: |cx, a| diagonal(cx, a, "self", (0, 1)),
    },
    Row {
        name: "aten.linalg_diagonal.default",
        arguments: "A, offset=0, dim1=-2, dim2=-1",
        build: |cx, a| diagonal(cx, a, "A", (-2, -1)),
    },
    Row {
        name: "aten.diagonal_scatter.default",
        arguments: "self, src, offset=0, dim1=0, dim2=1",
        build: diagonal_scatter,
    },
    Row {
        name: "aten.diag_embed.default",
        arguments: "self, offset=0, dim1=-2, dim2=-1",
        build: diag_embed,
    },
    Row { name: "aten.diag.default", arguments: "self, diagonal=0", build: diag },
    Row {
        name: "aten.diagflat.default",
        arguments: "self, offset=0",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let v = matrix_of(cx, cx.flat(x)?, a.int("offset", Some(0))?)?;
            cx.one(v)
        },
    },
    Row { name: "aten.trace.default", arguments: "self", build: trace },
    Row { name: "aten.unfold.default", arguments: "self, dimension, size, step", build: unfold },
    Row {
        name: "aten.as_strided.default",
        arguments: "self, size, stride, storage_offset=0",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let m = strided(cx, a, x)?;
            let alias = cx.view(a.alias("self")?, &m)?;
            Ok(Outcome::One(Val::Tensor(alias)))
        },
    },
    Row {
        name: "aten.as_strided_scatter.default",
        arguments: "self, src, size, stride, storage_offset=0",
        build: |cx, a| {
            let (x, src) = (cx.tensor(a, "self")?, cx.tensor(a, "src")?);
            let m = strided(cx, a, x)?;
            let copy = cx.store.fresh(x);
            let window = cx.view(copy, &m)?;
            let src = cx.convert(src, dtype_of(x)?)?;
            cx.store.write(&cx.b.clone(), window, src)?;
            Ok(Outcome::One(Val::Tensor(copy)))
        },
    },
];

/// Rows, columns and the diagonal's length, by the sizes and the offset.
struct Diagonal {
    row: usize,
    column: usize,
    /// The row and the column of its first element.
    first: (i64, i64),
    length: Size,
}

fn diagonal_of(cx: &Cx, x: Value, a: &Args<'_>, default: (i64, i64)) -> Result<Diagonal> {
    let rank = rank_of(x);
    let (row, column) = (
        wrap(a.int("dim1", Some(default.0))?, rank)?,
        wrap(a.int("dim2", Some(default.1))?, rank)?,
    );
    if row == column {
        return Err(format!("diagonal dimensions cannot be identical {row}, {column}").into());
    }
    let offset = a.int("offset", Some(0))?;
    let first = (offset.checked_neg().unwrap_or(0).max(0), offset.max(0));
    let left = |n: Size, start: i64| -> Result<Size> {
        let n = cx.size_add(n, Size::Static(-start))?;
        if start == 0 { Ok(n) } else { cx.size_max(n, Size::Static(0)) }
    };
    let (m, n) = (left(cx.b.size_of(x, row)?, first.0)?, left(cx.b.size_of(x, column)?, first.1)?);
    let length = if m == n { m } else { cx.size_min(m, n)? };
    Ok(Diagonal { row, column, first, length })
}

/// A view: the diagonal is its last dimension.
fn diagonal(cx: &mut Cx, a: &Args<'_>, name: &str, default: (i64, i64)) -> Result<Outcome> {
    let x = cx.tensor(a, name)?;
    let d = diagonal_of(cx, x, a, default)?;
    let i = cx.count(d.length)?;
    let from = |start: i64| {
        if start == 0 {
            Ok(i)
        } else {
            cx.binary(BinaryKind::Add, i, cx.integer(DType::I64, start)?)
        }
    };
    let indices = vec![from(d.first.0)?, from(d.first.1)?];
    let order = (1..rank_of(x) as i64 - 1).chain([0]).collect();
    let view_ops =
        [ViewOp::Gather(indices, vec![d.row as i64, d.column as i64]), ViewOp::Transpose(order)];
    let alias = cx.view(a.alias(name)?, &view_ops)?;
    Ok(Outcome::One(Val::Tensor(alias)))
}

/// Whether an element of a shape is on a diagonal.
fn on_diagonal(cx: &Cx, sizes: &[Size], d: &Diagonal) -> Result<Value> {
    let (i, j) = (
        cx.iota(DType::I64, sizes.to_vec(), d.row)?,
        cx.iota(DType::I64, sizes.to_vec(), d.column)?,
    );
    let offset = cx.integer(DType::I64, d.first.1 - d.first.0)?;
    cx.compare(CompareKind::Eq, cx.binary(BinaryKind::Sub, j, i)?, offset)
}

/// A tensor whose last dimension is a diagonal's, spread over the rows of a shape.
fn over_rows(cx: &Cx, src: Value, sizes: &[Size], d: &Diagonal) -> Result<Value> {
    let last = rank_of(src).checked_sub(1).ok_or("has a source of rank 0")?;
    let rows = *sizes.get(d.row).ok_or("has too few dimensions")?;
    let low = Size::Static(d.first.0);
    let high = cx.size_sub(cx.size_sub(rows, low)?, d.length)?;
    let zeros = vec![Size::Static(0); last];
    let v = cx.b.add(&Pad {
        input: src,
        value: cx.number(dtype_of(src)?, 0.0)?,
        low: [zeros.clone(), vec![low]].concat(),
        high: [zeros, vec![high]].concat(),
    })?;
    let mut lead = (0..sizes.len() as i64).filter(|i| *i != d.row as i64 && *i != d.column as i64);
    // The padded dimension moves to where the rows are among the dimensions other than columns.
    let at = if d.row < d.column { d.row } else { d.row - 1 };
    let v = cx.moved_axis(v, last, at)?;
    let mut dims: Vec<i64> = (0..last).filter_map(|_| lead.next()).collect();
    dims.insert(at.min(dims.len()), d.row as i64);
    let mut shape = sizes.to_vec();
    // The rows of the padded source, whose size may be known better than the shape's.
    shape[d.row] = rows;
    cx.spread(v, &dims, &shape)
}

fn diagonal_scatter(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, src) = (cx.tensor(a, "self")?, cx.tensor(a, "src")?);
    let d = diagonal_of(cx, x, a, (0, 1))?;
    let src = cx.convert(src, dtype_of(x)?)?;
    let sizes = cx.b.sizes_of(x)?;
    let src = over_rows(cx, src, &sizes, &d)?;
    let v = cx.select(on_diagonal(cx, &sizes, &d)?, src, x)?;
    cx.one(v)
}

/// A new dimension pair `dim1`, `dim2` whose diagonal is the last dimension of the input.
fn diag_embed(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let rank = rank_of(x) + 1;
    let (row, column) =
        (wrap(a.int("dim1", Some(-2))?, rank)?, wrap(a.int("dim2", Some(-1))?, rank)?);
    if row == column {
        return Err(format!("diagonal dimensions cannot be identical {row}, {column}").into());
    }
    let v = embedded(cx, x, a.int("offset", Some(0))?, row, column)?;
    cx.one(v)
}

fn embedded(cx: &Cx, x: Value, offset: i64, row: usize, column: usize) -> Result<Value> {
    let sizes = cx.b.sizes_of(x)?;
    let (length, lead) = sizes.split_last().ok_or("of a 0-d tensor")?;
    let first = (offset.checked_neg().unwrap_or(0).max(0), offset.max(0));
    let n = cx.size_add(*length, Size::Static(first.0 + first.1))?;
    let mut shape = lead.to_vec();
    for at in [row.min(column), row.max(column)] {
        shape.insert(at, n);
    }
    let d = Diagonal { row, column, first, length: *length };
    let v = over_rows(cx, x, &shape, &d)?;
    let zero = cx.number(dtype_of(x)?, 0.0)?;
    cx.select(on_diagonal(cx, &shape, &d)?, v, zero)
}

fn matrix_of(cx: &Cx, x: Value, offset: i64) -> Result<Value> {
    embedded(cx, x, offset, 0, 1)
}

/// A vector's matrix, or a copy of a matrix's diagonal.
fn diag(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let offset = a.int("diagonal", Some(0))?;
    match rank_of(x) {
        1 => {
            let v = matrix_of(cx, x, offset)?;
            cx.one(v)
        }
        2 => {
            let values = [
                ("self", Val::Tensor(a.alias("self")?)),
                ("offset", Val::Int(Size::Static(offset))),
            ];
            let view =
                diagonal(cx, &Args { values: values.into_iter().collect() }, "self", (0, 1))?;
            cx.copied(view)
        }
        n => Err(format!("diag(): Supports 1D or 2D tensors. Got {n}D").into()),
    }
}

fn trace(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    if rank_of(x) != 2 {
        return Err("trace: expected a matrix".into());
    }
    let d = dtype_of(x)?;
    let x = if d.is_float() { x } else { cx.convert(x, DType::I64)? };
    let none = Args { values: Default::default() };
    let diagonal = diagonal_of(cx, x, &none, (0, 1))?;
    let i = cx.count(diagonal.length)?;
    let v = cx.b.add(&Gather { input: x, indices: vec![i, i], dims: vec![0, 1] })?;
    let v = cx.reduced(ReduceKind::Sum, v, &[0])?;
    cx.one(v)
}

/// Windows of a dimension: their number in its place, their elements last.
fn unfold(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (size, step) = (a.int("size", None)?, a.int("step", None)?);
    let mut view_ops = vec![];
    let mut rank = rank_of(x);
    let axis = wrap(a.int("dimension", None)?, rank)?;
    let n = if rank == 0 { Size::Static(1) } else { cx.b.size_of(x, axis)? };
    if rank == 0 {
        view_ops.push(ViewOp::Reshape(vec![n]));
        rank = 1;
    }
    if size < 0 || n.known().is_some_and(|n| size > n) {
        let n = n.known().unwrap_or(0);
        return Err(format!(
            "maximum size for tensor at dimension {axis} is {n} but size is {size}"
        )
        .into());
    }
    if step < 1 {
        return Err(format!("step is {step} but must be > 0").into());
    }
    let windows = cx.size_add(
        cx.size_div(cx.size_add(n, Size::Static(-size))?, Size::Static(step))?,
        Size::Static(1),
    )?;
    let shape = vec![windows, Size::Static(size)];
    let start = cx.binary(
        BinaryKind::Mul,
        cx.iota(DType::I64, shape.clone(), 0)?,
        cx.integer(DType::I64, step)?,
    )?;
    let index = cx.binary(BinaryKind::Add, start, cx.iota(DType::I64, shape, 1)?)?;
    let (indices, dims) = (vec![index], vec![axis as i64]);
    let disjoint = step >= size || windows.known().is_some_and(|n| n <= 1);
    view_ops.push(match disjoint {
        true => ViewOp::Gather(indices, dims),
        false => ViewOp::Windows(indices, dims),
    });
    // (windows, elements, others) to (others before, windows, others after, elements).
    let (axis, rank) = (axis as i64, rank as i64);
    let order = (2..2 + axis).chain([0]).chain(2 + axis..1 + rank).chain([1]);
    view_ops.push(ViewOp::Transpose(order.collect()));
    let whole = rank_of(x) == 0;
    if whole {
        // A 0-d tensor has one window, whose dimension PyTorch leaves out.
        view_ops.push(ViewOp::Reshape(vec![Size::Static(size)]));
    }
    let alias = cx.view(a.alias("self")?, &view_ops)?;
    Ok(Outcome::One(Val::Tensor(alias)))
}

/// Whether each stride is beyond what all smaller ones reach, so that no two elements share memory.
fn are_disjoint(sizes: &[i64], strides: &[i64]) -> bool {
    let mut all: Vec<(i64, i64)> =
        strides.iter().copied().zip(sizes.iter().copied()).filter(|(_, n)| *n > 1).collect();
    all.sort_unstable();
    let mut reach = 0i64;
    sizes.contains(&0)
        || all.into_iter().all(|(stride, n)| {
            let apart = stride > reach;
            reach = reach.saturating_add(stride.saturating_mul(n - 1));
            apart
        })
}

/// The dimensions from the outermost in memory on, if the strides are those of `n` elements without
/// gaps. Dimensions of one element keep their places.
fn dense_order(sizes: &[i64], strides: &[i64], n: i64) -> Option<Vec<usize>> {
    let places: Vec<usize> = (0..sizes.len()).filter(|d| sizes[*d] != 1).collect();
    let mut sorted = places.clone();
    sorted.sort_by_key(|d| std::cmp::Reverse(strides[*d]));
    let mut elements = 1i64;
    for d in sorted.iter().rev() {
        if strides[*d] != elements {
            return None;
        }
        elements = elements.checked_mul(sizes[*d])?;
    }
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    places.into_iter().zip(sorted).for_each(|(place, d)| order[place] = d);
    (elements == n && n > 0).then_some(order)
}

/// Elements by their place in memory.
fn strided(cx: &mut Cx, a: &Args<'_>, x: Value) -> Result<Vec<ViewOp>> {
    let (sizes, strides) = (a.sizes("size")?, a.sizes("stride")?);
    if sizes.len() != strides.len() {
        return Err("mismatch in length of strides and shape".into());
    }
    let Memory { order, at_start } =
        cx.memory.clone().ok_or("addresses memory without a layout")?;
    // Without an offset it starts where its argument does.
    let offset = match a.has("storage_offset") {
        true if !at_start => return Err("takes an offset in the storage of a slice".into()),
        true => a.size("storage_offset")?,
        false => Size::Static(0),
    };
    let n = cx.numel(x)?;
    require_inside(cx, &sizes, &strides, offset, n)?;
    let known = |all: &[Size]| all.iter().map(|s| s.known()).collect::<Option<Vec<i64>>>();
    let statics = known(&sizes).zip(known(&strides));
    let mut view_ops = vec![];
    if !order.is_sorted() {
        view_ops.push(ViewOp::Transpose(order));
    }
    let dense = statics.as_ref().filter(|_| offset.known() == Some(0));
    if let Some(order) = dense.and_then(|(sizes, strides)| dense_order(sizes, strides, n.known()?))
    {
        let at = |d: usize| order.iter().position(|o| *o == d).map(|p| p as i64);
        let back: Option<Vec<i64>> = (0..order.len()).map(at).collect();
        view_ops.push(ViewOp::Reshape(order.iter().map(|d| sizes[*d]).collect()));
        view_ops.extend(back.filter(|p| !p.is_sorted()).map(ViewOp::Transpose));
        return Ok(view_ops);
    }
    let disjoint = statics.is_some_and(|(n, s)| are_disjoint(&n, &s));
    let mut place = cx.size_value(offset)?;
    for (axis, stride) in strides.iter().enumerate() {
        let i = cx.iota(DType::I64, sizes.clone(), axis)?;
        let step = cx.binary(BinaryKind::Mul, i, cx.size_value(*stride)?)?;
        place = cx.binary(BinaryKind::Add, place, step)?;
    }
    let view = if disjoint { ViewOp::Gather } else { ViewOp::Windows };
    view_ops.extend([ViewOp::Reshape(vec![n]), view(vec![place], vec![0])]);
    Ok(view_ops)
}

/// Err, or a condition on sizes: strides reach beyond their tensor of `n` elements.
fn require_inside(cx: &Cx, sizes: &[Size], strides: &[Size], offset: Size, n: Size) -> Result<()> {
    if sizes.contains(&Size::Static(0)) {
        return Ok(());
    }
    let end = sizes.iter().zip(strides).try_fold(offset, |end, (size, stride)| {
        cx.size_add(end, cx.size_mul(cx.size_add(*size, Size::Static(-1))?, *stride)?)
    });
    let beyond = "reaches beyond its tensor";
    // Sizes without a value overflow.
    let mut end = cx.size_add(end.map_err(|_| beyond)?, Size::Static(1)).map_err(|_| beyond)?;
    if let (Some(end), Some(n)) = (end.known(), n.known()) {
        return if end > n { Err(beyond.into()) } else { Ok(()) };
    }
    if sizes.iter().any(|s| s.known().is_none()) {
        // No elements reach nowhere.
        let any = cx.size_min(cx.size_product(sizes)?, Size::Static(1))?;
        end = cx.size_mul(end, any)?;
    }
    if offset.known().is_none() {
        cx.require(CompareKind::Ge, offset, Size::Static(0), "a storage offset >= 0")?;
    }
    cx.require(CompareKind::Le, end, n, "strides that stay inside of their tensor")
}
