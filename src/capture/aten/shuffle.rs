//! Overloads that reorder or repeat elements: shuffles of channels and pixels, turns, repeats.
use super::{Args, Cx, Outcome, Row, tools::*};
use kiln_dialects::{ir::*, ops::*, rules::UNBOUNDED, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.fliplr.default", arguments: "self", build: |cx, a| flipped(cx, a, 1) },
    Row { name: "aten.flipud.default", arguments: "self", build: |cx, a| flipped(cx, a, 0) },
    Row { name: "aten.rot90.default", arguments: "self, k=1, dims=[0,1]", build: rot90 },
    Row { name: "aten.channel_shuffle.default", arguments: "self, groups", build: channel_shuffle },
    Row {
        name: "aten.native_channel_shuffle.default",
        arguments: "self, groups",
        build: channel_shuffle,
    },
    Row {
        name: "aten.pixel_shuffle.default",
        arguments: "self, upscale_factor",
        build: pixel_shuffle,
    },
    Row {
        name: "aten.pixel_unshuffle.default",
        arguments: "self, downscale_factor",
        build: pixel_unshuffle,
    },
    Row {
        name: "aten.repeat_interleave.self_int",
        arguments: "self, repeats, dim=None",
        build: repeat_number,
    },
    Row {
        name: "aten.repeat_interleave.self_Tensor",
        arguments: "self, repeats, dim=None, output_size=None",
        build: |cx, a| {
            let (x, axis) = axis_of(cx, a)?;
            let repeats = cx.tensor(a, "repeats")?;
            let n = cx.b.size_of(x, axis)?;
            let repeats = cx.vector(repeats)?;
            let repeats = if repeats.ty().dims()[0].known() == Some(1) {
                cx.spread(repeats, &[0], &[n])?
            } else {
                repeats
            };
            let index = repeated(cx, a, repeats)?;
            let v = cx.take_axis(x, index, axis)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.repeat_interleave.Tensor",
        arguments: "repeats, output_size=None",
        build: |cx, a| {
            let repeats = cx.tensor(a, "repeats")?;
            let d = dtype_of(repeats)?;
            let v = repeated(cx, a, repeats)?;
            let v = cx.convert(v, d)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.narrow_copy.default",
        arguments: "self, dim, start, length",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let d = wrap(a.int("dim", None)?, rank_of(x))?;
            let at = cx.place_in(x, d, a.size("start")?)?;
            let v = cx.part(x, d, at, a.size("length")?)?;
            cx.one(v)
        },
    },
];

fn flipped(cx: &mut Cx, a: &Args<'_>, dim: usize) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    if rank_of(x) <= dim {
        return Err(format!("Input must be >= {}-d.", dim + 1).into());
    }
    let v = cx.b.add(&Reverse { input: x, dims: vec![dim as i64] })?;
    cx.one(v)
}

fn rot90(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let rank = rank_of(x);
    let dims = a.ints("dims")?.unwrap_or_else(|| vec![0, 1]);
    let [from, to] = dims.as_slice() else {
        return Err(
            format!("expected total rotation dims == 2, but got dims = {}", dims.len()).into()
        );
    };
    let (from, to) = (wrap(*from, rank)?, wrap(*to, rank)?);
    if rank < 2 || from == to {
        return Err("expected rotation dims to be different, and the tensor to have two".into());
    }
    let reverse = |x: Value, dims: Vec<i64>| cx.b.add(&Reverse { input: x, dims });
    let mut order: Vec<i64> = (0..rank as i64).collect();
    order.swap(from, to);
    let both = vec![from.min(to) as i64, from.max(to) as i64];
    let v = match a.int("k", Some(1))?.rem_euclid(4) {
        1 => cx.transpose(reverse(x, vec![to as i64])?, order)?,
        2 => reverse(x, both)?,
        3 => cx.transpose(reverse(x, vec![from as i64])?, order)?,
        _ => x,
    };
    cx.one(v)
}

/// A size divided by a number that divides it.
fn over(cx: &Cx, n: Size, by: i64) -> Result<Size> {
    match n.known() {
        Some(n) if by < 1 || n % by != 0 => {
            Err(format!("expects a size to be divisible by {by}, but it is {n}").into())
        }
        _ => cx.size_div(n, Size::Static(by)),
    }
}

fn channel_shuffle(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let groups = a.int("groups", None)?;
    let sizes = cx.b.sizes_of(x)?;
    let [batch, channels, rest @ ..] = sizes.as_slice() else {
        return Err("channel_shuffle expects input with > 2 dims".into());
    };
    if groups < 1 {
        return Err("Number of groups to divide channels in must be positive.".into());
    }
    let each = over(cx, *channels, groups)?;
    let v = cx.reshape(x, [&[*batch, Size::Static(groups), each], rest].concat())?;
    let order = [0, 2, 1].into_iter().chain(3..rank_of(v) as i64).collect();
    let v = cx.transpose(v, order)?;
    let v = cx.reshape(v, sizes)?;
    cx.one(v)
}

/// The dimensions before the last three, and these.
fn image(cx: &Cx, x: Value) -> Result<(Vec<Size>, [Size; 3])> {
    let sizes = cx.b.sizes_of(x)?;
    match sizes.as_slice() {
        [lead @ .., c, h, w] => Ok((lead.to_vec(), [*c, *h, *w])),
        _ => Err(format!(
            "expects input to have at least 3 dimensions, but got input with {} dimension(s)",
            sizes.len()
        )
        .into()),
    }
}

fn pixel_shuffle(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let by = a.int("upscale_factor", None)?;
    let (lead, [c, h, w]) = image(cx, x)?;
    let square =
        by.checked_mul(by).filter(|_| by > 0).ok_or("expects a positive upscale_factor")?;
    let c = over(cx, c, square)?;
    let (factor, n) = (Size::Static(by), lead.len() as i64);
    let v = cx.reshape(x, [lead.as_slice(), &[c, factor, factor, h, w]].concat())?;
    let order = (0..n).chain([0, 3, 1, 4, 2].map(|d| n + d)).collect();
    let v = cx.transpose(v, order)?;
    let (h, w) = (cx.size_mul(h, factor)?, cx.size_mul(w, factor)?);
    let v = cx.reshape(v, [lead.as_slice(), &[c, h, w]].concat())?;
    cx.one(v)
}

fn pixel_unshuffle(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let by = a.int("downscale_factor", None)?;
    let (lead, [c, h, w]) = image(cx, x)?;
    let square =
        by.checked_mul(by).filter(|_| by > 0).ok_or("expects a positive downscale_factor")?;
    if x.ty().dims().iter().any(|d| d.known() == Some(0)) {
        // As PyTorch: a copy, of the input's shape.
        return cx.one(x);
    }
    let (factor, n) = (Size::Static(by), lead.len() as i64);
    let (h, w) = (over(cx, h, by)?, over(cx, w, by)?);
    let v = cx.reshape(x, [lead.as_slice(), &[c, h, factor, w, factor]].concat())?;
    let order = (0..n).chain([0, 2, 4, 1, 3].map(|d| n + d)).collect();
    let v = cx.transpose(v, order)?;
    let c = cx.size_mul(c, Size::Static(square))?;
    let v = cx.reshape(v, [lead.as_slice(), &[c, h, w]].concat())?;
    cx.one(v)
}

/// The dimension to repeat along; without one, all elements as a vector.
fn axis_of(cx: &mut Cx, a: &Args<'_>) -> Result<(Value, usize)> {
    let x = cx.tensor(a, "self")?;
    if !a.has("dim") {
        return Ok((cx.flat(x)?, 0));
    }
    let x = cx.vector(x)?;
    Ok((x, wrap(a.int("dim", None)?, rank_of(x))?))
}

fn repeat_number(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (x, axis) = axis_of(cx, a)?;
    let repeats = a.size("repeats")?;
    if repeats.known().is_some_and(|r| r < 0) {
        return Err("Repeats must be non-negative".into());
    }
    let mut sizes = cx.b.sizes_of(x)?;
    let mut wide = sizes.clone();
    wide.insert(axis + 1, repeats);
    let dims: Vec<i64> = (0..wide.len() as i64).filter(|d| *d != axis as i64 + 1).collect();
    let v = cx.spread(x, &dims, &wide)?;
    sizes[axis] = cx.size_mul(sizes[axis], repeats)?;
    let v = cx.reshape(v, sizes)?;
    cx.one(v)
}

/// Position i as often as `repeats[i]`: how many prefix sums do not exceed the place.
fn repeated(cx: &mut Cx, a: &Args<'_>, repeats: Value) -> Result<Value> {
    if rank_of(repeats) != 1 {
        return Err("repeat_interleave only accept 1D vector as repeat".into());
    }
    let repeats = cx.convert(repeats, DType::I64)?;
    let ends = cx.scanned(CumulativeKind::Sum, repeats, 0)?;
    let size = if a.has("output_size") {
        a.size("output_size")?
    } else {
        let total = cx.reduced(ReduceKind::Sum, repeats, &[0])?;
        cx.unbacked(total, Size::Static(UNBOUNDED))?
    };
    let shape = [size, cx.b.size_of(repeats, 0)?];
    let (place, ends) = (cx.iota(DType::I64, shape.to_vec(), 0)?, cx.spread(ends, &[1], &shape)?);
    let passed = cx.convert(cx.compare(CompareKind::Le, ends, place)?, DType::I64)?;
    cx.reduced(ReduceKind::Sum, passed, &[1])
}
