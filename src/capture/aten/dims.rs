//! Views that name, permute, add, expand or cut dimensions in PyTorch's and NumPy's other words.
use super::{Args, Cx, Outcome, Row, Val, split::cut_up, tools::*, view::*};
use crate::capture::storage::{Alias, ViewOp};
use kiln_dialects::ir::*;

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.numpy_T.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            moved(cx, a, ViewOp::Transpose((0..rank_of(x) as i64).rev().collect()))
        },
    },
    Row { name: "aten.mH.default", arguments: "self", build: |cx, a| swap(cx, a, -2, -1) },
    Row { name: "aten.matrix_H.default", arguments: "self", build: |cx, a| swap(cx, a, -2, -1) },
    Row { name: "aten.adjoint.default", arguments: "self", build: |cx, a| swap(cx, a, -2, -1) },
    Row {
        name: "aten.swapaxes.default",
        arguments: "self, axis0, axis1",
        build: |cx, a| swap(cx, a, a.int("axis0", None)?, a.int("axis1", None)?),
    },
    Row {
        name: "aten.swapdims.default",
        arguments: "self, dim0, dim1",
        build: |cx, a| swap(cx, a, a.int("dim0", None)?, a.int("dim1", None)?),
    },
    Row { name: "aten.movedim.int", arguments: "self, source, destination", build: movedim },
    Row { name: "aten.movedim.intlist", arguments: "self, source, destination", build: movedim },
    Row {
        name: "aten.reshape_as.default",
        arguments: "self, other",
        build: |cx, a| {
            let o = cx.tensor(a, "other")?;
            let s = cx.b.sizes_of(o)?;
            moved(cx, a, ViewOp::Reshape(s))
        },
    },
    Row {
        name: "aten.ravel.default",
        arguments: "self",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let n = cx.numel(x)?;
            moved(cx, a, ViewOp::Reshape(vec![n]))
        },
    },
    Row { name: "aten.resize_.default", arguments: "self, size", build: resize },
    Row {
        name: "aten.resize.default",
        arguments: "self, size",
        build: |cx, a| {
            let v = resize(cx, a)?;
            cx.copied(v)
        },
    },
    Row { name: "aten.resize_as_.default", arguments: "self, the_template", build: resize },
    Row { name: "aten.atleast_1d.default", arguments: "self", build: |cx, a| at_least(cx, a, 1) },
    Row { name: "aten.atleast_2d.default", arguments: "self", build: |cx, a| at_least(cx, a, 2) },
    Row { name: "aten.atleast_3d.default", arguments: "self", build: |cx, a| at_least(cx, a, 3) },
    Row {
        name: "aten.atleast_1d.Sequence",
        arguments: "tensors",
        build: |cx, a| at_least(cx, a, 1),
    },
    Row {
        name: "aten.atleast_2d.Sequence",
        arguments: "tensors",
        build: |cx, a| at_least(cx, a, 2),
    },
    Row {
        name: "aten.atleast_3d.Sequence",
        arguments: "tensors",
        build: |cx, a| at_least(cx, a, 3),
    },
    Row {
        name: "aten.broadcast_tensors.default",
        arguments: "tensors",
        build: |cx, a| {
            let all = cx.tensors(a, "tensors")?;
            let sizes = cx.common(&all)?;
            let all = a.aliases("tensors")?.into_iter();
            let all = all.map(|x| expanded(cx, x, &sizes).map(Val::Tensor));
            Ok(Outcome::Many(all.collect::<Result<_, _>>()?))
        },
    },
    Row {
        name: "aten.meshgrid.default",
        arguments: "tensors",
        build: |cx, a| meshgrid(cx, a, false),
    },
    Row {
        name: "aten.meshgrid.indexing",
        arguments: "tensors, indexing",
        build: |cx, a| match a.text("indexing", "ij")?.as_str() {
            "ij" => meshgrid(cx, a, false),
            "xy" => meshgrid(cx, a, true),
            other => Err(format!(
                "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {other}"
            )
            .into()),
        },
    },
    Row { name: "aten.hsplit.int", arguments: "self, sections", build: |cx, a| cut_up(cx, a, 'h') },
    Row {
        name: "aten.hsplit.array",
        arguments: "self, indices",
        build: |cx, a| cut_up(cx, a, 'h'),
    },
    Row { name: "aten.vsplit.int", arguments: "self, sections", build: |cx, a| cut_up(cx, a, 'v') },
    Row {
        name: "aten.vsplit.array",
        arguments: "self, indices",
        build: |cx, a| cut_up(cx, a, 'v'),
    },
    Row { name: "aten.dsplit.int", arguments: "self, sections", build: |cx, a| cut_up(cx, a, 'd') },
    Row {
        name: "aten.dsplit.array",
        arguments: "self, indices",
        build: |cx, a| cut_up(cx, a, 'd'),
    },
    Row {
        name: "aten.tensor_split.sections",
        arguments: "self, sections, dim=0",
        build: |cx, a| cut_up(cx, a, 't'),
    },
    Row {
        name: "aten.tensor_split.indices",
        arguments: "self, indices, dim=0",
        build: |cx, a| cut_up(cx, a, 't'),
    },
    Row { name: "aten.view.dtype", arguments: "self, dtype", build: view_dtype },
];

fn movedim(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let rank = rank_of(x);
    let list = |name: &str| -> Result<Vec<usize>> {
        let dims = a.ints(name)?.unwrap_or_default();
        let dims = dims.iter().map(|d| wrap(*d, rank)).collect::<Result<Vec<_>, _>>()?;
        if dims.iter().enumerate().any(|(i, d)| dims[..i].contains(d)) {
            return Err(format!("movedim: repeated dim in `{name}`").into());
        }
        Ok(dims)
    };
    let (from, to) = (list("source")?, list("destination")?);
    if from.len() != to.len() {
        return Err("movedim: Invalid source or destination dims: source and destination dims must have the same number of elements".into());
    }
    if rank == 0 {
        return moved(cx, a, ViewOp::Transpose(vec![]));
    }
    let mut order = vec![None; rank];
    for (f, t) in from.iter().zip(&to) {
        order[*t] = Some(*f);
    }
    let mut rest = (0..rank).filter(|d| !from.contains(d));
    let order: Option<Vec<i64>> =
        order.into_iter().map(|d| d.or_else(|| rest.next()).map(|d| d as i64)).collect();
    moved(cx, a, ViewOp::Transpose(order.ok_or("has too few dimensions")?))
}

/// To fewer or as many elements; what more would hold is undefined.
fn resize(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let sizes = if a.has("size") {
        a.sizes("size")?
    } else {
        let like = cx.tensor(a, "the_template")?;
        cx.b.sizes_of(like)?
    };
    let (have, want) = (cx.numel(x)?, cx.size_product(&sizes)?);
    let alias = a.alias("self")?;
    let view_ops = match (have.known(), want.known()) {
        (Some(n), Some(m)) if n == m => vec![ViewOp::Reshape(sizes)],
        _ if have == want => vec![ViewOp::Reshape(sizes)],
        (Some(n), Some(m)) if m < n => vec![
            ViewOp::Reshape(vec![have]),
            ViewOp::Slice(vec![Size::Static(0)], vec![want], vec![1]),
            ViewOp::Reshape(sizes),
        ],
        _ => return Err("resizes to more elements, whose contents are undefined".into()),
    };
    Ok(Outcome::One(Val::Tensor(cx.view(alias, &view_ops)?)))
}

fn at_least(cx: &mut Cx, a: &Args<'_>, rank: usize) -> Result<Outcome> {
    let mut one = |alias: Alias| -> Result<Val> {
        let x = cx.get(alias)?;
        let sizes = cx.b.sizes_of(x)?;
        let unit = Size::Static(1);
        let sizes = match (rank, sizes.as_slice()) {
            (_, []) => vec![unit; rank],
            (2, [n]) => vec![unit, *n],
            (3, [n]) => vec![unit, *n, unit],
            (3, [m, n]) => vec![*m, *n, unit],
            _ => return Ok(Val::Tensor(alias)),
        };
        Ok(Val::Tensor(cx.view(alias, &[ViewOp::Reshape(sizes)])?))
    };
    if a.has("tensors") {
        let all = a.aliases("tensors")?.into_iter().map(one).collect::<Result<_, _>>()?;
        return Ok(Outcome::Many(all));
    }
    Ok(Outcome::One(one(a.alias("self")?)?))
}

/// A view of an alias, broadcast to a shape.
pub(super) fn expanded(cx: &mut Cx, alias: Alias, sizes: &[Size]) -> Result<Alias> {
    let x = cx.get(alias)?;
    let rank = rank_of(x);
    let lead = sizes.len().checked_sub(rank).ok_or("expands to a lower rank")?;
    let same = lead == 0 && x.ty().dims().iter().zip(sizes).all(|(d, s)| d.known() == s.known());
    if same {
        let own = cx.b.sizes_of(x)?;
        cx.require_equal(&own, sizes)?;
        return Ok(alias);
    }
    let dims = (lead as i64..sizes.len() as i64).collect();
    cx.view(alias, &[ViewOp::Broadcast(dims, sizes.to_vec())])
}

/// Each tensor along a dimension of its own; `xy` swaps the first two.
fn meshgrid(cx: &mut Cx, a: &Args<'_>, xy: bool) -> Result<Outcome> {
    let aliases = a.aliases("tensors")?;
    let n = aliases.len();
    if n == 0 {
        return Err("meshgrid expects a non-empty TensorList".into());
    }
    let place = |i: usize| match i {
        0 | 1 if xy && n > 1 => 1 - i,
        i => i,
    };
    let mut sizes = vec![Size::Static(1); n];
    let first = cx.get(aliases[0])?;
    for (i, alias) in aliases.iter().enumerate() {
        let x = cx.get(*alias)?;
        if rank_of(x) > 1 {
            return Err("torch.meshgrid: Expected 0D or 1D tensor in the tensor list".into());
        }
        if dtype_of(x)? != dtype_of(first)? {
            return Err("torch.meshgrid expects all tensors to have the same dtype".into());
        }
        sizes[place(i)] = cx.numel(x)?;
    }
    let mut all = vec![];
    for (i, alias) in aliases.iter().enumerate() {
        let view_ops = [
            ViewOp::Reshape(vec![sizes[place(i)]]),
            ViewOp::Broadcast(vec![place(i) as i64], sizes.clone()),
        ];
        all.push(Val::Tensor(cx.view(*alias, &view_ops)?));
    }
    Ok(Outcome::Many(all))
}

/// The bits as another dtype.
fn view_dtype(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let to = a.dtype("dtype")?.ok_or("wants a dtype")?;
    moved(cx, a, ViewOp::Bits(to))
}
