//! Orders and values of frequencies.
use super::super::formula as real;
use super::{length, *};

/// Each dimension turned by half its size: frequency 0 moves to the middle.
pub(super) fn shift(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    turned(cx, a, |n| n / 2)
}

/// The inverse of [`shift`].
pub(super) fn shift_back(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    turned(cx, a, |n| n - n / 2)
}

fn turned(cx: &mut Cx, a: &Args<'_>, by: fn(i64) -> i64) -> Result<Outcome> {
    let mut x = cx.halves(a, "self")?;
    let rank = rank_of(x.0);
    let dims = match a.ints("dim")? {
        Some(dims) => dims,
        None => (0..rank as i64).collect(),
    };
    for d in dims {
        let axis = wrap(d, rank)?;
        let n = length(cx, x.0, axis)?;
        let cut = n - by(n).min(n);
        x = each(x, &mut |v| {
            let inputs = vec![part(cx, v, axis, cut, n - cut)?, part(cx, v, axis, 0, cut)?];
            cx.b.add(&Concat { inputs, axis: axis as i64 })
        })?;
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
