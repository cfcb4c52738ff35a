//! Orders and values of frequencies.
use super::super::{formula as real, join::rolled};
use super::*;

/// Each dimension turned by half its size: frequency 0 moves to the middle.
pub(super) fn shift(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    turned(cx, a, |cx, n| cx.size_div(n, Size::Static(2)))
}

/// The inverse of [`shift`].
pub(super) fn shift_back(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    turned(cx, a, |cx, n| cx.size_sub(n, cx.size_div(n, Size::Static(2))?))
}

fn turned(cx: &mut Cx, a: &Args<'_>, by: fn(&Cx, Size) -> Result<Size>) -> Result<Outcome> {
    let mut x = cx.halves(a, "self")?;
    let rank = rank_of(x.0);
    let dims = match a.ints("dim")? {
        Some(dims) => dims,
        None => (0..rank as i64).collect(),
    };
    for d in dims {
        let axis = wrap(d, rank)?;
        let n = cx.b.size_of(x.0, axis)?;
        let by = by(cx, n)?;
        x = match (n.known(), by.known()) {
            (Some(n), Some(by)) => each(x, &mut |v| {
                let (cut, by) = (n - by, Size::Static(by));
                let first = part(cx, v, axis, cut, by)?;
                let inputs = vec![first, part(cx, v, axis, 0, Size::Static(cut))?];
                cx.b.add(&Concat { inputs, axis: axis as i64 })
            })?,
            _ => each(x, &mut |v| rolled(cx, v, axis, by))?,
        };
    }
    done(cx, x)
}

/// `[0, 1, .., (n - 1) / 2, -(n / 2), .., -1] / (n d)`.
pub(super) fn fftfreq(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let n = a.int("n", None)?;
    frequencies(cx, a, n, true)
}

/// `[0, 1, .., n / 2] / (n d)`.
pub(super) fn rfftfreq(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let n = a.int("n", None)?;
    frequencies(cx, a, n / 2 + 1, false)
}

/// The first `count` of n frequencies; a half spectrum has no negative ones.
fn frequencies(cx: &mut Cx, a: &Args<'_>, count: i64, whole: bool) -> Result<Outcome> {
    let n = a.int("n", None)?;
    let step = 1.0 / (n as f64 * a.float("d", Some(1.0))?);
    let d = a.dtype("dtype")?.unwrap_or(DType::F32);
    let k = cx.iota(DType::I64, vec![Size::Static(count)], 0)?;
    real::formula(cx, |f| {
        let k = f.of(k);
        let negative = k.gt(((n - 1) / 2) as f64);
        let k = if whole { negative.select(k - n as f64, k) } else { k };
        k.to(d) * step
    })
}
