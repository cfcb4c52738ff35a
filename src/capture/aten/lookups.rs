//! Reads at positions, and searches: take, isin, searchsorted, one_hot.
use super::{Args, Cx, Outcome, Row, formula::value, index::positive, reduce::p_norm, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.take.default",
        arguments: "self, index",
        build: |cx, a| {
            let (x, index) = (cx.tensor(a, "self")?, cx.tensor(a, "index")?);
            let line = cx.flat(x)?;
            let index = positive(cx, index, line, 0)?;
            let v = cx.take_axis(line, index, 0)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.take_along_dim.default",
        arguments: "self, indices, dim=None",
        build: take_along_dim,
    },
    Row {
        name: "aten.isin.Tensor_Tensor",
        arguments: "elements, test_elements, assume_unique=False, invert=False",
        build: |cx, a| isin(cx, a, "elements", "test_elements"),
    },
    Row {
        name: "aten.isin.Tensor_Scalar",
        arguments: "elements, test_element, assume_unique=False, invert=False",
        build: |cx, a| isin(cx, a, "elements", "test_element"),
    },
    Row {
        name: "aten.isin.Scalar_Tensor",
        arguments: "element, test_elements, assume_unique=False, invert=False",
        build: |cx, a| isin(cx, a, "element", "test_elements"),
    },
    Row {
        name: "aten.searchsorted.Tensor",
        arguments: "sorted_sequence, self, out_int32=False, right=False, side=None, sorter=None",
        build: |cx, a| searchsorted(cx, a, "sorted_sequence"),
    },
    Row {
        name: "aten.searchsorted.Scalar",
        arguments: "sorted_sequence, self, out_int32=False, right=False, side=None, sorter=None",
        build: |cx, a| searchsorted(cx, a, "sorted_sequence"),
    },
    Row {
        name: "aten.bucketize.Tensor",
        arguments: "self, boundaries, out_int32=False, right=False",
        build: |cx, a| searchsorted(cx, a, "boundaries"),
    },
    Row {
        name: "aten.bucketize.Scalar",
        arguments: "self, boundaries, out_int32=False, right=False",
        build: |cx, a| searchsorted(cx, a, "boundaries"),
    },
    Row { name: "aten.one_hot.default", arguments: "self, num_classes=-1", build: one_hot },
    Row {
        name: "aten.embedding_renorm.default",
        arguments: "self, indices, max_norm, norm_type",
        build: embedding_renorm,
    },
];

/// As `gather`, with the other dimensions broadcast.
fn take_along_dim(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, index) = (cx.tensor(a, "self")?, cx.tensor(a, "indices")?);
    if !a.has("dim") {
        let line = cx.flat(x)?;
        let index = positive(cx, cx.flat(index)?, line, 0)?;
        let v = cx.take_axis(line, index, 0)?;
        return cx.one(v);
    }
    if rank_of(x) != rank_of(index) {
        return Err(format!(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got {} dimensions for input, and {} dimensions for indices",
            rank_of(x),
            rank_of(index)
        ).into());
    }
    let (line, places) = (cx.vector(x)?, cx.vector(index)?);
    let axis = wrap(a.int("dim", None)?, rank_of(line))?;
    // The common shape, apart from the dimension.
    let unit = |v: Value| -> Result<Value> {
        let mut sizes = cx.b.sizes_of(v)?;
        sizes[axis] = Size::Static(1);
        cx.b.splat(DType::I1, &sizes, 0.0)
    };
    let mut sizes = cx.common(&[unit(line)?, unit(places)?])?;
    let places = positive(cx, places, line, axis)?;
    sizes[axis] = cx.b.size_of(line, axis)?;
    let wide = cx.broadcast_to(line, &sizes)?;
    sizes[axis] = cx.b.size_of(places, axis)?;
    let places = cx.broadcast_to(places, &sizes)?;
    let v = cx.pick(wide, places, axis)?;
    let v = cx.shaped_as(v, if rank_of(x) == 0 { x } else { v })?;
    cx.one(v)
}

fn isin(cx: &mut Cx, a: &Args<'_>, elements: &str, tests: &str) -> Result<Outcome> {
    let (x, tests) = cx.promoted(a, elements, tests)?;
    let tests = cx.flat(tests)?;
    let rank = rank_of(x) as i64;
    let sizes = [cx.b.sizes_of(x)?, cx.b.sizes_of(tests)?].concat();
    let wide = cx.spread(x, &(0..rank).collect::<Vec<_>>(), &sizes)?;
    let tests = cx.spread(tests, &[rank], &sizes)?;
    let hits = cx.compare(CompareKind::Eq, wide, tests)?;
    let mut v = cx.reduced(ReduceKind::Any, hits, &[rank])?;
    if a.flag("invert", false)? {
        v = cx.unary(UnaryKind::Not, v)?;
    }
    cx.one(v)
}

/// How many elements of a sorted sequence are below a value, or not above it.
fn searchsorted(cx: &mut Cx, a: &Args<'_>, sequence: &str) -> Result<Outcome> {
    let (x, mut s) = cx.promoted(a, "self", sequence)?;
    if rank_of(s) == 0 {
        return Err("boundaries tensor should have positive dimension, but got 0 dimension".into());
    }
    let last = rank_of(s) - 1;
    if let Some(sorter) = cx.optional(a, "sorter")? {
        let sorter = cx.convert(sorter, DType::I64)?;
        s = cx.pick(s, sorter, last)?;
    }
    let right = match a.text("side", "")?.as_str() {
        "right" => true,
        "left" if a.flag("right", false)? => {
            return Err("torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True".into());
        }
        "" => a.flag("right", false)?,
        _ => false,
    };
    if last > 0 && last + 1 != rank_of(x) {
        return Err("torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor must match".into());
    }
    let v = count_before(cx, s, x, right)?;
    let v = if a.flag("out_int32", false)? { cx.convert(v, DType::I32)? } else { v };
    cx.one(v)
}

/// For each value in x [.., m] the number of elements of its ascending sequence in s [.., n] that
/// are less, or with `right` not greater; i64. A sequence [n] serves all values.
pub(super) fn count_before(cx: &Cx, s: Value, x: Value, right: bool) -> Result<Value> {
    let last = rank_of(s) - 1;
    // (…, n) beside (…, m, 1).
    let sizes = [cx.b.sizes_of(x)?, vec![cx.b.size_of(s, last)?]].concat();
    let rank = rank_of(x) as i64;
    let wide = cx.spread(x, &(0..rank).collect::<Vec<_>>(), &sizes)?;
    let dims: Vec<i64> =
        if last == 0 { vec![rank] } else { (0..last as i64).chain([rank]).collect() };
    let s = cx.spread(s, &dims, &sizes)?;
    let kind = if right { CompareKind::Gt } else { CompareKind::Ge };
    let beyond = cx.compare(kind, s, wide)?;
    let before = cx.convert(cx.unary(UnaryKind::Not, beyond)?, DType::I64)?;
    cx.reduced(ReduceKind::Sum, before, &[rank])
}

fn one_hot(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    if dtype_of(x)? != DType::I64 {
        return Err("one_hot is only applicable to index tensor of type LongTensor.".into());
    }
    let classes = a.size("num_classes").unwrap_or(Size::Static(-1));
    if classes.known().is_some_and(|n| n < 1) {
        return Err("needs num_classes: the number of classes depends on data".into());
    }
    let rank = rank_of(x);
    let sizes = [cx.b.sizes_of(x)?, vec![classes]].concat();
    let wide = cx.spread(x, &(0..rank as i64).collect::<Vec<_>>(), &sizes)?;
    let class = cx.iota(DType::I64, sizes, rank)?;
    let v = value(cx, |f| f.of(wide).eq(f.of(class)).to(DType::I64))?;
    cx.one(v)
}

/// The rows of a table that are looked up, scaled down to a norm.
fn embedding_renorm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, index) = (cx.tensor(a, "self")?, cx.tensor(a, "indices")?);
    if rank_of(x) != 2 {
        return Err("'self' must be 2-D".into());
    }
    let (most, p) = (a.float("max_norm", None)?, a.float("norm_type", None)?);
    let d = dtype_of(x)?;
    let index = cx.convert(cx.flat(index)?, DType::I64)?;
    let rows = cx.b.size_of(x, 0)?;
    let shape = [rows, cx.b.size_of(index, 0)?];
    let (row, index) = (cx.iota(DType::I64, shape.to_vec(), 0)?, cx.spread(index, &[1], &shape)?);
    let hit = cx.compare(CompareKind::Eq, row, index)?;
    let hit = cx.reduced(ReduceKind::Any, hit, &[1])?;
    let hit = cx.unsqueezed(hit, 1)?;
    let wide = cx.convert(x, super::axes::wide(d))?;
    let norm = p_norm(cx, wide, p, &[1], true)?;
    let v = value(cx, |f| {
        let (wide, norm) = (f.of(wide), f.of(norm));
        let scaled = wide * (most / (norm + 1e-7));
        (f.of(hit) & norm.gt(most)).select(scaled, wide).to(d)
    })?;
    cx.one(v)
}
