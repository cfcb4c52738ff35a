//! Unique elements, and unique slices along a dimension, whose number depends on data.
use super::{Args, Cx, Outcome, Row, index::ranks, tools::*};
use crate::capture::unsupported;
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten._unique2.default",
        arguments: "self, sorted=True, return_inverse=False, return_counts=False",
        build: |cx, a| unique(cx, a, true),
    },
    Row {
        name: "aten.unique_consecutive.default",
        arguments: "self, return_inverse=False, return_counts=False, dim=None",
        build: |cx, a| match a.has("dim") {
            true => unique_slices(cx, a, false),
            false => unique(cx, a, false),
        },
    },
    Row {
        name: "aten.unique_dim.default",
        arguments: "self, dim, sorted=True, return_inverse=False, return_counts=False",
        build: |cx, a| unique_slices(cx, a, true),
    },
];

/// Most elements of a slice, each of which is sorted by.
const MOST_KEYS: i64 = 64;

/// Runs of equal neighbours of the elements, or of the sorted elements: the first of each, the run
/// of each element, and the runs' lengths.
fn unique(cx: &mut Cx, a: &Args<'_>, sort: bool) -> Result<Outcome> {
    let whole = cx.tensor(a, "self")?;
    let d = dtype_of(whole)?;
    let x = cx.unboxed(cx.flat(cx.vector(whole)?)?)?;
    let n = cx.b.size_of(x, 0)?;
    let (x, order) = if sort { cx.sorted(x, 0)? } else { (x, cx.count(n)?) };
    let runs = Runs::of(cx, x, |_, differ| Ok(differ))?;
    let values = cx.convert(cx.take_axis(x, runs.at, 0)?, d)?;
    let none = cx.b.splat(DType::I64, &[Size::Static(0)], 0.0)?;
    let inverse = match a.flag("return_inverse", false)? {
        true => cx.shaped_as(runs.inverse(cx, order)?, whole)?,
        false => none,
    };
    let counts = if a.flag("return_counts", false)? { runs.lengths(cx)? } else { none };
    cx.many(&[values, inverse, counts])
}

/// As [`unique`], of slices along a dimension, which are sorted by their first element, then by
/// their second, and so on.
fn unique_slices(cx: &mut Cx, a: &Args<'_>, sort: bool) -> Result<Outcome> {
    let given = cx.tensor(a, "self")?;
    let whole = cx.vector(given)?;
    let rank = rank_of(whole);
    let dim = wrap(a.int("dim", None)?, rank)? as i64;
    let d = dtype_of(whole)?;
    let first: Vec<i64> = [dim].into_iter().chain((0..rank as i64).filter(|i| *i != dim)).collect();
    let x = cx.transpose(cx.unboxed(whole)?, first)?;
    let mut sizes = cx.b.sizes_of(x)?;
    let (n, keys) = (sizes[0], cx.size_product(&sizes[1..])?);
    let Some(count) = keys.known().filter(|k| !sort || (1..=MOST_KEYS).contains(k)) else {
        return Err(unsupported(format!(
            "unique slices of no, more than {MOST_KEYS}, or a symbolic number of elements"
        )));
    };
    let mut x = cx.reshape(x, vec![n, keys])?;
    let mut order = cx.count(n)?;
    // Stable sorts, by the last element first.
    for k in (0..count).rev().filter(|_| sort) {
        let key = cx.part(x, 1, Size::Static(k), Size::Static(1))?;
        let (_, places) = cx.sorted(cx.reshape(key, vec![n])?, 0)?;
        (x, order) = (cx.take_axis(x, places, 0)?, cx.take_axis(order, places, 0)?);
    }
    let runs = Runs::of(cx, x, |cx, differ| cx.reduced(ReduceKind::Any, differ, &[1]))?;
    sizes[0] = runs.count;
    let values = cx.reshape(cx.take_axis(x, runs.at, 0)?, sizes)?;
    let back = (1..=dim).chain([0]).chain(dim + 1..rank as i64).collect();
    let values = cx.convert(cx.transpose(values, back)?, d)?;
    // Slices are numbered and counted by PyTorch whether that is asked for or not.
    let (inverse, counts) = (runs.inverse(cx, order)?, runs.lengths(cx)?);
    cx.many(&[values, inverse, counts])
}

/// Runs of equal neighbours along the first dimension.
struct Runs {
    /// Whether a place starts a run.
    starts: Value,
    /// The places that do, then the number of places.
    found: Value,
    /// The number of runs.
    count: Size,
    /// The first place of each run.
    at: Value,
}

impl Runs {
    /// `differ` reduces what differs between neighbours to one condition each.
    fn of(cx: &mut Cx, x: Value, differ: impl FnOnce(&Cx, Value) -> Result<Value>) -> Result<Runs> {
        let n = cx.b.size_of(x, 0)?;
        let before = cx.size_max(cx.size_sub(n, Size::Static(1))?, Size::Static(0))?;
        let first = cx.size_min(n, Size::Static(1))?;
        let apart = cx.compare(
            CompareKind::Ne,
            cx.part(x, 0, first, before)?,
            cx.part(x, 0, Size::Static(0), before)?,
        )?;
        let apart = differ(cx, apart)?;
        let start = cx.b.splat(DType::I1, &[first], 1.0)?;
        let starts = cx.reshape(cx.joined(vec![start, apart], 0)?, vec![n])?;
        let (found, total) = cx.positions(starts)?;
        let count = cx.unbacked(total, n)?;
        let at = cx.part(found, 0, Size::Static(0), count)?;
        Ok(Runs { starts, found, count, at })
    }
    /// The run of each element of what was put into this order.
    fn inverse(&self, cx: &Cx, order: Value) -> Result<Value> {
        let run = ranks(cx, self.starts)?;
        let zero = cx.full_like(run, 0.0)?;
        cx.scattered(ScatterKind::Assign, zero, run, order, 0)
    }
    fn lengths(&self, cx: &Cx) -> Result<Value> {
        let next = cx.part(self.found, 0, Size::Static(1), self.count)?;
        cx.binary(BinaryKind::Sub, next, self.at)
    }
}
