//! Overloads that copy elements into a new tensor: concatenation, repetition, reordering, padding.
use super::{Args, Cx, Outcome, Row, arithmetic::common_of, padding, tools::*, view::cut};
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.cat.default", arguments: "tensors, dim=0", build: cat },
    Row { name: "aten.stack.default", arguments: "tensors, dim=0", build: stack },
    Row {
        name: "aten.flip.default",
        arguments: "self, dims",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let dims = a.ints("dims")?.unwrap_or_default();
            if dims.is_empty() {
                return cx.one(x);
            }
            let dims = wrap_all(Some(dims), rank_of(x))?;
            let y = cx.b.add(&Reverse { input: x, dims })?;
            cx.one(y)
        },
    },
    Row { name: "aten.roll.default", arguments: "self, shifts, dims=[]", build: roll },
    Row {
        name: "aten.repeat.default",
        arguments: "self, repeats",
        build: |cx, a| {
            let r = a.sizes("repeats")?;
            repeat(cx, a, r)
        },
    },
    Row {
        name: "aten.tile.default",
        arguments: "self, dims",
        build: |cx, a| {
            let x = cx.tensor(a, "self")?;
            let d = a.sizes("dims")?;
            let lead = rank_of(x).saturating_sub(d.len());
            let r = [vec![Size::Static(1); lead], d].concat();
            repeat(cx, a, r)
        },
    },
    Row {
        name: "aten.pad.default",
        arguments: "self, pad, mode='constant', value=None",
        build: pad,
    },
    Row { name: "aten.constant_pad_nd.default", arguments: "self, pad, value=0", build: pad },
];

fn cat(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let all = cx.tensors(a, "tensors")?;
    let d = common_of(&all)?;
    // As in PyTorch, empty 1-d tensors are ignored.
    let rank = all.iter().map(|v| rank_of(*v)).max().unwrap_or(1);
    let all = all
        .into_iter()
        .filter(|v| !(rank_of(*v) == 1 && rank > 1 && v.ty().dims()[0] == Dim::Known(0)));
    let inputs = all.map(|v| cx.convert(v, d)).collect::<Result<Vec<_>, _>>()?;
    let axis = wrap(a.int("dim", Some(0))?, rank)? as i64;
    let v = cx.b.add(&Concat { inputs, axis })?;
    cx.one(v)
}

fn stack(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let all = cx.tensors(a, "tensors")?;
    let d = common_of(&all)?;
    let rank = all.first().map_or(0, |v| rank_of(*v));
    let axis = wrap(a.int("dim", Some(0))?, rank + 1)?;
    let mut inputs = vec![];
    for v in all {
        let mut sizes = cx.b.sizes_of(v)?;
        if axis > sizes.len() {
            return Err("stacks tensors of different ranks".into());
        }
        sizes.insert(axis, Size::Static(1));
        let v = cx.convert(v, d)?;
        inputs.push(cx.reshape(v, sizes)?);
    }
    let v = cx.b.add(&Concat { inputs, axis: axis as i64 })?;
    cx.one(v)
}

fn roll(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let shifts = if a.has("shifts") { a.sizes("shifts")? } else { vec![] };
    let dims = a.ints("dims")?.unwrap_or_default();
    let sizes = cx.b.sizes_of(x)?;
    let mut v = x;
    if dims.is_empty() {
        let n = sizes.iter().try_fold(Size::Static(1), |n, s| cx.size_mul(n, *s))?;
        v = cx.reshape(x, vec![n])?;
    }
    let targets: Vec<i64> = if dims.is_empty() { vec![0] } else { dims.clone() };
    for (d, shift) in targets.iter().zip(&shifts) {
        let d = wrap(*d, rank_of(v))?;
        let size = cx.b.size_of(v, d)?;
        let (Some(n), Some(shift)) = (size.known(), shift.known()) else {
            v = rolled(cx, v, d, *shift)?;
            continue;
        };
        if n == 0 {
            continue;
        }
        let at = (n - shift.rem_euclid(n)) % n;
        let part = |cx: &Cx, start: i64, len: i64| {
            cut(cx, v, d, Size::Static(start), Size::Static(len), 1)?.apply(&cx.b, v)
        };
        let inputs = vec![part(cx, at, n - at)?, part(cx, 0, at)?];
        v = cx.b.add(&Concat { inputs, axis: d as i64 })?;
    }
    if dims.is_empty() {
        v = cx.reshape(v, sizes)?;
    }
    cx.one(v)
}

/// A dimension of symbolic size, or by a symbolic shift: element i comes from (i - shift) mod n.
pub(super) fn rolled(cx: &Cx, x: Value, d: usize, shift: Size) -> Result<Value> {
    let n = cx.b.size_of(x, d)?;
    let i = cx.count(n)?;
    let n = cx.size_value(n)?;
    let back = cx.binary(BinaryKind::Rem, cx.size_data(shift, DType::I64)?, n)?;
    // Within (-n, 2n).
    let i = cx.binary(BinaryKind::Sub, i, back)?;
    let zero = cx.integer(DType::I64, 0)?;
    let low = cx.compare(CompareKind::Lt, i, zero)?;
    let i = cx.select(low, cx.binary(BinaryKind::Add, i, n)?, i)?;
    let high = cx.compare(CompareKind::Ge, i, n)?;
    let i = cx.select(high, cx.binary(BinaryKind::Sub, i, n)?, i)?;
    cx.take_axis(x, i, d)
}

/// Each dimension becomes a pair (repeat, size), which is then merged.
pub(super) fn repeat(cx: &mut Cx, a: &Args<'_>, repeats: Vec<Size>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let sizes = cx.b.sizes_of(x)?;
    let lead = repeats.len().checked_sub(sizes.len()).ok_or("has fewer repeats than dimensions")?;
    let (mut spread, mut dims, mut merged) = (vec![], vec![], vec![]);
    for (i, r) in repeats.iter().enumerate() {
        spread.push(*r);
        if i < lead {
            merged.push(*r);
            continue;
        }
        dims.push(spread.len() as i64);
        let size = *i
            .checked_sub(lead)
            .and_then(|i| sizes.get(i))
            .ok_or("has more repeats than dimensions")?;
        spread.push(size);
        merged.push(cx.size_mul(*r, size)?);
    }
    let v = cx.b.add(&BroadcastInDim { input: x, dims, sizes: spread })?;
    let v = cx.reshape(v, merged)?;
    cx.one(v)
}

/// Padding pairs start at the last dimension.
fn pad(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    match a.text("mode", "constant")?.as_str() {
        "constant" => {}
        mode => return padding::extended(cx, x, &a.sizes("pad")?, padding::Mode::named(mode)?),
    }
    let d = dtype_of(x)?;
    let value = if a.has("value") { cx.operand(a, "value", d)? } else { cx.number(d, 0.0)? };
    let pairs = a.sizes("pad")?;
    let rank = rank_of(x);
    let (mut low, mut high) = (vec![Size::Static(0); rank], vec![Size::Static(0); rank]);
    for (i, pair) in pairs.chunks(2).enumerate() {
        let at = rank.checked_sub(i + 1).ok_or("pads more dimensions than there are")?;
        let [before, after] = pair else { return Err("has half a pair".into()) };
        (low[at], high[at]) = (*before, *after);
    }
    let v = cx.b.add(&Pad { input: x, value, low, high })?;
    cx.one(v)
}
