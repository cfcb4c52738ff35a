//! View overloads, which alias an argument.
pub(super) use super::split::{cut, drop_dim};
use super::{Args, Cx, Outcome, Row, Val, split, tools::*};
use crate::capture::storage::ViewOp;
use kiln_dialects::{
    ir::*,
    ops::{CompareKind, StopGradient},
    sym::Dim,
};

macro_rules! same {
    ($name:literal) => {
        Row {
            name: $name,
            arguments: "self",
            build: |_, a| {
                Ok(Outcome::One(Val::Tensor(a.alias("self").or_else(|_| a.alias("input"))?)))
            },
        }
    };
}
/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    same!("aten.alias.default"),
    same!("aten.detach.default"),
    same!("aten.lift_fresh.default"),
    same!("aten.contiguous.default"),
    Row {
        name: "aten.lift_fresh_copy.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            cx.one(x)
        },
    },
    Row {
        name: "kiln.stop_gradient.default",
        arguments: "x",
        build: |cx, a| {
            let input = cx.tensor(a, "x")?;
            let v = cx.b.add(&StopGradient { input })?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.clone.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            cx.one(x)
        },
    },
    Row { name: "aten.view.default", arguments: "self, size", build: view },
    Row { name: "aten.reshape.default", arguments: "self, shape", build: view },
    Row { name: "aten._unsafe_view.default", arguments: "self, size", build: view },
    Row {
        name: "aten.view_as.default",
        arguments: "self, other",
        build: |cx, a| {
            let o = cx.tensor(a, "other")?;
            let s = cx.b.sizes_of(o)?;
            moved(cx, a, ViewOp::Reshape(s))
        },
    },
    Row {
        name: "aten.flatten.using_ints",
        arguments: "self, start_dim=0, end_dim=-1",
        build: flatten,
    },
    Row { name: "aten.unflatten.int", arguments: "self, dim, sizes", build: unflatten },
    Row { name: "aten.unsqueeze.default", arguments: "self, dim", build: unsqueeze },
    Row { name: "aten.squeeze.dim", arguments: "self, dim", build: squeeze },
    Row { name: "aten.squeeze.dims", arguments: "self, dim", build: squeeze },
    Row { name: "aten.squeeze.default", arguments: "self", build: squeeze },
    Row {
        name: "aten.permute.default",
        arguments: "self, dims",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let n = rank_of(x);
            let dims = a.ints("dims")?.unwrap_or_default();
            let p = dims.iter().map(|d| wrap(*d, n).map(|d| d as i64)).collect::<Result<_, _>>()?;
            moved(cx, a, ViewOp::Transpose(p))
        },
    },
    Row {
        name: "aten.transpose.int",
        arguments: "self, dim0, dim1",
        build: |cx, a| swap(cx, a, a.int("dim0", None)?, a.int("dim1", None)?),
    },
    Row {
        name: "aten.t.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            if rank_of(x) < 2 {
                moved(cx, a, ViewOp::Transpose((0..rank_of(x) as i64).collect()))
            } else {
                swap(cx, a, 0, 1)
            }
        },
    },
    Row { name: "aten.mT.default", arguments: "self", build: |cx, a| swap(cx, a, -2, -1) },
    Row { name: "aten.expand.default", arguments: "self, size", build: expand },
    Row {
        name: "aten.expand_as.default",
        arguments: "self, other",
        build: |cx, a| {
            let o = cx.tensor(a, "other")?;
            let s = cx.b.sizes_of(o)?;
            expand_to(cx, a, s)
        },
    },
    Row { name: "aten.select.int", arguments: "self, dim, index", build: select },
    Row {
        name: "aten.slice.Tensor",
        arguments: "self, dim=0, start=None, end=None, step=1",
        build: slice,
    },
    Row {
        name: "aten.narrow.default",
        arguments: "self, dim, start, length",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let d = wrap(a.int("dim", None)?, rank_of(x))?;
            let at = cx.place_in(x, d, a.size("start")?)?;
            let m = cut(cx, x, d, at, a.size("length")?, 1)?;
            moved(cx, a, m)
        },
    },
    Row { name: "aten.split.Tensor", arguments: "self, split_size, dim=0", build: split::split },
    Row {
        name: "aten.split_with_sizes.default",
        arguments: "self, split_sizes, dim=0",
        build: split::split,
    },
    Row {
        name: "aten.split.sizes",
        arguments: "self, split_size, dim=0",
        build: split::split_sizes,
    },
    Row { name: "aten.chunk.default", arguments: "self, chunks, dim=0", build: split::chunk },
    Row { name: "aten.unbind.int", arguments: "self, dim=0", build: split::unbind },
    Row {
        name: "aten.sym_size.int",
        arguments: "self, dim",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let d = wrap(a.int("dim", None)?, rank_of(x))?;
            Ok(Outcome::One(Val::Int(cx.b.size_of(x, d)?)))
        },
    },
    Row {
        name: "aten.sym_stride.int",
        arguments: "self, dim",
        build: |cx, _| Ok(Outcome::One(cx.stated.map_or(Val::None, Val::Int))),
    },
    Row {
        name: "aten.sym_storage_offset.default",
        arguments: "self",
        build: |cx, _| Ok(Outcome::One(cx.stated.map_or(Val::None, Val::Int))),
    },
    Row {
        name: "aten.sym_numel.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let n =
                cx.b.sizes_of(x)?
                    .into_iter()
                    .try_fold(Size::Static(1), |n, s| cx.size_mul(n, s))?;
            Ok(Outcome::One(Val::Int(n)))
        },
    },
];

pub(super) fn moved(cx: &mut Cx, a: &Args<'_>, m: ViewOp) -> Result<Outcome> {
    let alias = cx.view(a.alias("self")?, &[m])?;
    Ok(Outcome::One(Val::Tensor(alias)))
}

/// One size may be -1 and is inferred.
fn view(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let sizes = a.sizes(if a.has("size") { "size" } else { "shape" })?;
    let sizes = fill_in(cx, cx.b.sizes_of(x)?, sizes)?;
    moved(cx, a, ViewOp::Reshape(sizes))
}

fn fill_in(cx: &mut Cx, from: Vec<Size>, mut sizes: Vec<Size>) -> Result<Vec<Size>> {
    let Some(hole) = sizes.iter().position(|s| s.known() == Some(-1)) else { return Ok(sizes) };
    // Cancels common sizes before dividing, so that symbols are rarely divided.
    let mut numerator = from;
    let mut denominator = vec![];
    for (i, s) in sizes.iter().enumerate().filter(|(i, _)| *i != hole) {
        match numerator.iter().position(|f| f == s) {
            Some(at) => drop(numerator.remove(at)),
            None => denominator.push(sizes[i]),
        }
    }
    let product = |cx: &mut Cx, all: Vec<Size>| {
        all.into_iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, s))
    };
    let (n, d) = (product(cx, numerator)?, product(cx, denominator)?);
    sizes[hole] = if n.known() == Some(0) { Size::Static(0) } else { cx.size_div(n, d)? };
    Ok(sizes)
}

fn flatten(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (from, to) = (
        wrap(a.int("start_dim", Some(0))?, rank_of(x))?,
        wrap(a.int("end_dim", Some(-1))?, rank_of(x))?,
    );
    let sizes = cx.b.sizes_of(x)?;
    if sizes.is_empty() {
        return moved(cx, a, ViewOp::Reshape(vec![Size::Static(1)]));
    }
    let (Some(before), Some(inner), Some(after)) =
        (sizes.get(..from), sizes.get(from..=to), sizes.get(to + 1..))
    else {
        return Err(format!("flattens from dimension {from} to {to}, which is before it").into());
    };
    let middle = inner.iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s))?;
    moved(cx, a, ViewOp::Reshape([before, &[middle], after].concat()))
}

fn unflatten(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", None)?, rank_of(x))?;
    let sizes = cx.b.sizes_of(x)?;
    let (Some(before), Some(size), Some(after)) =
        (sizes.get(..d), sizes.get(d), sizes.get(d + 1..))
    else {
        return Err("of a 0-d tensor".into());
    };
    let inner = fill_in(cx, vec![*size], a.sizes("sizes")?)?;
    moved(cx, a, ViewOp::Reshape([before, &inner, after].concat()))
}

fn unsqueeze(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", None)?, rank_of(x) + 1)?;
    let mut sizes = cx.b.sizes_of(x)?;
    sizes.insert(d, Size::Static(1));
    moved(cx, a, ViewOp::Reshape(sizes))
}

fn squeeze(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let dims = a.ints("dim")?;
    // An empty list squeezes nothing; an absent list squeezes all dimensions.
    let dims =
        if dims.as_ref().is_some_and(Vec::is_empty) { vec![] } else { wrap_all(dims, rank_of(x))? };
    let sizes = cx.b.sizes_of(x)?;
    let keep = |i: usize| !(dims.contains(&(i as i64)) && sizes[i].known() == Some(1));
    // The export took a size that it does not know for one that is not 1.
    for i in dims.iter().filter_map(|d| sizes.get(*d as usize)).filter(|n| n.known().is_none()) {
        cx.require(CompareKind::Ne, *i, Size::Static(1), "a dimension that is kept is not 1")?;
    }
    moved(cx, a, ViewOp::Reshape((0..sizes.len()).filter(|i| keep(*i)).map(|i| sizes[i]).collect()))
}

pub(super) fn swap(cx: &mut Cx, a: &Args<'_>, x: i64, y: i64) -> Result<Outcome> {
    let t = cx.tensor(a, "self")?;
    let n = rank_of(t);
    let mut p: Vec<i64> = (0..n as i64).collect();
    if n > 0 {
        p.swap(wrap(x, n)?, wrap(y, n)?);
    }
    moved(cx, a, ViewOp::Transpose(p))
}

fn expand(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let mut sizes = a.sizes("size")?;
    let lead = sizes.len().checked_sub(rank_of(x)).ok_or("expands to a lower rank")?;
    for (i, s) in sizes.iter_mut().enumerate().filter(|(_, s)| s.known() == Some(-1)) {
        *s = cx.b.size_of(x, i.checked_sub(lead).ok_or("has -1 as a new dimension")?)?;
    }
    expand_to(cx, a, sizes)
}

fn expand_to(cx: &mut Cx, a: &Args<'_>, sizes: Vec<Size>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let lead = sizes.len().checked_sub(rank_of(x)).ok_or("expands to a lower rank")?;
    let dims = x.ty().dims();
    let stays = lead == 0
        && dims.iter().zip(&sizes).all(|(d, s)| *d != Dim::Known(1) || s.known() == Some(1));
    let m = if stays {
        let own = cx.b.sizes_of(x)?;
        cx.require_equal(&own, &sizes)?;
        ViewOp::Reshape(own)
    } else {
        ViewOp::Broadcast((lead as i64..sizes.len() as i64).collect(), sizes)
    };
    moved(cx, a, m)
}

fn select(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", None)?, rank_of(x))?;
    let at = cx.place_in(x, d, a.size("index")?)?;
    let view_ops = [cut(cx, x, d, at, Size::Static(1), 1)?, drop_dim(cx, x, d)?];
    let alias = cx.view(a.alias("self")?, &view_ops)?;
    Ok(Outcome::One(Val::Tensor(alias)))
}

/// Start and end are clamped to the size, as in Python.
fn slice(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", Some(0))?, rank_of(x))?;
    let (size, step) = (cx.b.size_of(x, d)?, a.int("step", Some(1))?);
    if step < 1 {
        return Err(format!("has step {step}, which is below 1").into());
    }
    let bound = |cx: &mut Cx, name: &str, default: Size| -> Result<Size> {
        if !a.has(name) {
            return Ok(default);
        }
        cx.clamped(a.size(name)?, size)
    };
    let (start, end) = (bound(cx, "start", Size::Static(0))?, bound(cx, "end", size)?);
    let whole = start.known() == Some(0) && end == size && step == 1;
    if whole {
        let sizes = cx.b.sizes_of(x)?;
        return moved(cx, a, ViewOp::Reshape(sizes));
    }
    let span = if start.known() == Some(0) {
        end
    } else {
        let span = cx.size_add(end, cx.size_mul(start, Size::Static(-1))?)?;
        // The start is at most the size.
        if end == size { span } else { cx.size_max(span, Size::Static(0))? }
    };
    let count = if step == 1 {
        span
    } else {
        cx.size_div(cx.size_add(span, Size::Static(step - 1))?, Size::Static(step))?
    };
    let m = cut(cx, x, d, start, count, step)?;
    moved(cx, a, m)
}
