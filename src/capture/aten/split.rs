//! Parts of a dimension. Where its size is symbolic, the export gives the number of parts, which
//! calls check.
use super::{Args, Cx, Outcome, Val, tools::*};
use crate::capture::{storage::ViewOp, unsupported};
use kiln_dialects::{ir::*, ops::*};

/// Consecutive parts of these sizes. Symbolic ones that the export gives as constants are checked.
fn pieces(cx: &mut Cx, a: &Args<'_>, dim: usize, sizes: &[Size]) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (mut at, mut all) = (Size::Static(0), vec![]);
    for (i, size) in sizes.iter().enumerate() {
        let size = declared_size(cx, i, dim, *size)?;
        let m = cut(cx, x, dim, at, size, 1)?;
        all.push(Val::Tensor(cx.view(a.alias("self")?, &[m])?));
        at = cx.size_add(at, size)?;
    }
    Ok(Outcome::Many(all))
}

/// The size that the export gives for a dimension of result `i`, if that is a constant and `size`
/// is not.
fn declared_size(cx: &Cx, i: usize, dim: usize, size: Size) -> Result<Size> {
    let declared = cx.declared.get(i).and_then(|d| d.sizes.get(dim).copied().flatten());
    match (size.known(), declared) {
        (None, Some(n)) => {
            let words = format!("part {i} of a dimension has size {n}");
            let n = Size::Static(n);
            cx.require(CompareKind::Eq, size, n, &words)?;
            Ok(n)
        }
        _ => Ok(size),
    }
}

/// The size of a dimension that is divided into a static number of parts.
pub(super) fn known_size(cx: &Cx, x: Value, dim: usize) -> Result<i64> {
    cx.b.size_of(x, dim)?.known().ok_or_else(|| parts_of_symbol(dim))
}

fn parts_of_symbol(dim: usize) -> Error {
    unsupported(format!(
        "splits dimension {dim}, whose size is symbolic, into a number of parts that depends on it"
    ))
}

/// The number of results that the export gives.
fn declared_parts(cx: &Cx, dim: usize) -> Result<i64> {
    match cx.declared.len() {
        0 => Err(parts_of_symbol(dim)),
        n => Ok(n as i64),
    }
}

/// Ceiling division: the number of parts of size `each` that cover `n`.
fn ceil_div(n: i64, each: i64) -> i64 {
    n / each + i64::from(n % each != 0)
}

/// Parts of size `each`, of which the last may be smaller.
fn parts_of(cx: &mut Cx, a: &Args<'_>, dim: usize, n: Size, each: Size) -> Result<Outcome> {
    if let (Some(n), Some(each)) = (n.known(), each.known()) {
        let each = each.max(1);
        let part = |i: i64| Size::Static(each.min(n - i * each));
        let sizes: Vec<Size> = (0..ceil_div(n, each).max(1)).map(part).collect();
        return pieces(cx, a, dim, &sizes);
    }
    let count = declared_parts(cx, dim)?;
    let before = cx.size_mul(each, Size::Static(count - 1))?;
    let words = format!("{count} parts of a dimension of symbolic size");
    cx.require(CompareKind::Le, n, cx.size_mul(each, Size::Static(count))?, &words)?;
    if count > 1 {
        cx.require(CompareKind::Gt, n, before, &words)?;
    }
    let mut sizes = vec![each; count as usize - 1];
    sizes.push(cx.size_sub(n, before)?);
    pieces(cx, a, dim, &sizes)
}

pub(super) fn split(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", Some(0))?, rank_of(x))?;
    if a.has("split_sizes") {
        return pieces(cx, a, d, &a.sizes("split_sizes")?);
    }
    let n = cx.b.size_of(x, d)?;
    parts_of(cx, a, d, n, a.size("split_size")?)
}

pub(super) fn split_sizes(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", Some(0))?, rank_of(x))?;
    pieces(cx, a, d, &a.sizes("split_size")?)
}

pub(super) fn chunk(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", Some(0))?, rank_of(x))?;
    let (n, chunks) = (cx.b.size_of(x, d)?, a.int("chunks", None)?.max(1));
    // Without elements PyTorch gives as many empty parts as are asked for.
    if n.known() == Some(0) {
        return pieces(cx, a, d, &vec![n; chunks as usize]);
    }
    let each = match n.known() {
        Some(n) => Size::Static(ceil_div(n, chunks)),
        None => cx.size_div(cx.size_add(n, Size::Static(chunks - 1))?, Size::Static(chunks))?,
    };
    parts_of(cx, a, d, n, each)
}

pub(super) fn unbind(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = wrap(a.int("dim", Some(0))?, rank_of(x))?;
    let n = cx.b.size_of(x, d)?;
    let count = match n.known() {
        Some(n) => n,
        None => {
            let count = declared_parts(cx, d)?;
            let words = format!("dimension {d} has size {count}");
            cx.require(CompareKind::Eq, n, Size::Static(count), &words)?;
            count
        }
    };
    let mut all = vec![];
    for i in 0..count {
        let view_ops = [cut(cx, x, d, Size::Static(i), Size::Static(1), 1)?, drop_dim(cx, x, d)?];
        all.push(Val::Tensor(cx.view(a.alias("self")?, &view_ops)?));
    }
    Ok(Outcome::Many(all))
}

/// Equal or listed parts of a dimension: `h`, `v`, `d` as in NumPy, `t` for a given one.
pub(super) fn cut_up(cx: &mut Cx, a: &Args<'_>, kind: char) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let rank = rank_of(x);
    let least = match kind {
        'v' => 2,
        'd' => 3,
        _ => 1,
    };
    if rank < least {
        return Err(format!(
            "requires a tensor with at least {least} dimension, but got a tensor with {rank} dimensions"
        ).into());
    }
    let d = match kind {
        'h' => usize::from(rank > 1),
        'v' => 0,
        'd' => 2,
        _ => wrap(a.int("dim", Some(0))?, rank)?,
    };
    let n = cx.b.size_of(x, d)?;
    if a.has("sections") {
        let sections = a.int("sections", None)?;
        if sections < 1 {
            return Err(format!("number of sections must be larger than 0, got {sections}").into());
        }
        if kind != 't' && n.known().is_some_and(|n| n % sections != 0) {
            return Err(format!(
                "attempted to split along dimension {d}, but the size of the dimension is not divisible by the split_size {sections}"
            ).into());
        }
        // Part i has floor((n + sections - 1 - i) / sections) elements.
        let part = |i: i64| {
            cx.size_div(cx.size_add(n, Size::Static(sections - 1 - i))?, Size::Static(sections))
        };
        let sizes = (0..sections).map(part).collect::<Result<Vec<_>, _>>()?;
        return pieces(cx, a, d, &sizes);
    }
    // Parts between the listed positions, each a slice as in Python.
    let ends = a.sizes("indices")?;
    let mut cuts = vec![Size::Static(0)];
    for i in &ends {
        cuts.push(cx.clamped(*i, n)?);
    }
    cuts.push(n);
    let mut all = vec![];
    for (i, between) in cuts.windows(2).enumerate() {
        let [start, end] = between else { continue };
        // A position within the dimension is at most its end.
        let length = if i == ends.len() || start.known() == Some(0) {
            cx.size_sub(*end, *start)?
        } else {
            cx.size_max(cx.size_sub(*end, *start)?, Size::Static(0))?
        };
        let length = declared_size(cx, i, d, length)?;
        let m = cut(cx, x, d, *start, length, 1)?;
        all.push(Val::Tensor(cx.view(a.alias("self")?, &[m])?));
    }
    Ok(Outcome::Many(all))
}

/// A slice along one dimension.
pub(super) fn cut(
    cx: &Cx,
    x: Value,
    dim: usize,
    start: Size,
    length: Size,
    step: i64,
) -> Result<ViewOp> {
    let mut sizes = cx.b.sizes_of(x)?;
    let mut offsets = vec![Size::Static(0); sizes.len()];
    let mut strides = vec![1; sizes.len()];
    let (Some(offset), Some(stride), Some(size)) =
        (offsets.get_mut(dim), strides.get_mut(dim), sizes.get_mut(dim))
    else {
        return Err(format!("cuts dimension {dim} of a tensor of rank {}", rank_of(x)).into());
    };
    (*offset, *stride, *size) = (start, step, length);
    Ok(ViewOp::Slice(offsets, sizes, strides))
}

pub(super) fn drop_dim(cx: &mut Cx, x: Value, dim: usize) -> Result<ViewOp> {
    let mut sizes = cx.b.sizes_of(x)?;
    if dim >= sizes.len() {
        return Err(format!("drops dimension {dim} of a tensor of rank {}", sizes.len()).into());
    }
    sizes.remove(dim);
    Ok(ViewOp::Reshape(sizes))
}
