//! Short-time transforms: `torch.stft` and `torch.istft`.
use super::super::{complex::Z, find as row_of, formula as real};
use super::*;

/// The size of a dimension, which must be static.
fn length(cx: &Cx, x: Value, axis: usize) -> Result<i64> {
    let n = cx.b.size_of(x, axis)?.known();
    n.ok_or_else(|| unsupported("has a dimension of symbolic size, which is not supported"))
}

/// What both directions are given.
struct Frames {
    n: i64,
    hop: i64,
    /// The window in the middle of a frame; `None` is all ones.
    window: Option<Parts>,
    /// Factor of a transform.
    scale: f64,
}

fn frames(cx: &mut Cx, a: &Args<'_>, inverse: bool, d: DType) -> Result<Frames> {
    let n = a.int("n_fft", None)?;
    let hop = a.int("hop_length", Some(n / 4))?;
    let width = a.int("win_length", Some(n))?;
    if n < 1 || hop < 1 || width < 1 || width > n {
        return Err(format!(
            "expected n_fft > 0, hop_length > 0 and 0 < win_length <= n_fft, but got {n}, {hop} and {width}"
        )
        .into());
    }
    let window = if a.has("window") {
        let (re, im) = wide(cx, a, "window")?;
        if rank_of(re) != 1 || length(cx, re, 0)? != width {
            return Err(
                format!("expected a 1D window tensor of size equal to win_length={width}").into()
            );
        }
        Some((cx.convert(re, d)?, im.map(|im| cx.convert(im, d)).transpose()?))
    } else if width < n {
        Some((cx.b.splat(d, &[Size::Static(width)], 1.0)?, None))
    } else {
        None
    };
    let left = (n - width) / 2;
    let window = match window {
        Some(parts) if width < n => Some(each(parts, &mut |input| {
            cx.zero_padded(input, 0, Size::Static(left), Size::Static(n - width - left))
        })?),
        window => window,
    };
    let scale = match (a.flag("normalized", false)?, inverse) {
        (true, _) => 1.0 / (n as f64).sqrt(),
        (false, true) => 1.0 / n as f64,
        (false, false) => 1.0,
    };
    Ok(Frames { n, hop, window, scale })
}

/// The product of complex or real numbers.
fn times(cx: &Cx, x: Parts, y: Parts) -> Result<Parts> {
    let mul = |x, y| cx.binary(BinaryKind::Mul, x, y);
    let both = |kind, x: Option<Value>, y: Option<Value>| match (x, y) {
        (Some(x), Some(y)) => cx.binary(kind, x, y).map(Some),
        (x, y) => Ok(x.or(y)),
    };
    let pair = |x: Option<Value>, y: Option<Value>| match (x, y) {
        (Some(x), Some(y)) => mul(x, y).map(Some),
        _ => Ok(None),
    };
    let re = match pair(x.1, y.1)? {
        Some(ii) => cx.binary(BinaryKind::Sub, mul(x.0, y.0)?, ii)?,
        None => mul(x.0, y.0)?,
    };
    Ok((re, both(BinaryKind::Add, pair(Some(x.0), y.1)?, pair(x.1, Some(y.0))?)?))
}

/// The quotient of complex or real numbers.
fn divided(cx: &Cx, x: Parts, y: Parts) -> Result<Parts> {
    let Some(im) = y.1 else { return each(x, &mut |v| cx.binary(BinaryKind::Div, v, y.0)) };
    let zero = cx.full_like(x.0, 0.0)?;
    let (re, im) = real::pair(cx, |f| {
        let z = Z::of(f, (x.0, x.1.unwrap_or(zero))) / Z::of(f, (y.0, im));
        (z.re, z.im)
    })?;
    Ok((re, Some(im)))
}

/// `[.., n_fft / 2 + 1, frames]` or all n_fft frequencies, of `[.., length]`.
pub(super) fn stft(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    if a.flag("align_to_window", false)? {
        return Err(unsupported("align_to_window is not supported"));
    }
    let mut x = wide(cx, a, "self")?;
    let d = dtype_of(x.0)?;
    let plan = frames(cx, a, false, d)?;
    let rank = rank_of(x.0);
    if rank != 1 && rank != 2 {
        return Err("expected a 1D or 2D tensor".into());
    }
    if a.has("center") && a.flag("center", true)? {
        x = centred(cx, a, x, plan.n / 2)?;
    }
    let have = cx.b.size_of(x.0, rank - 1)?;
    if let Some(have) = have.known()
        && plan.n > have
    {
        return Err(format!("expected 0 < n_fft <= {have}, but got n_fft={}", plan.n).into());
    }
    let hops = cx.size_div(cx.size_add(have, Size::Static(-plan.n))?, Size::Static(plan.hop))?;
    let sizes = vec![cx.size_add(hops, Size::Static(1))?, Size::Static(plan.n)];
    let hop = cx.integer(DType::I64, plan.hop)?;
    let first = cx.binary(BinaryKind::Mul, cx.iota(DType::I64, sizes.clone(), 0)?, hop)?;
    let at = cx.binary(BinaryKind::Add, first, cx.iota(DType::I64, sizes, 1)?)?;
    let mut x = each(x, &mut |v| gather_at(cx, v, vec![at], rank - 1))?;
    if let Some(window) = plan.window {
        x = times(cx, x, window)?;
    }
    let real = x.1.is_none();
    let onesided = a.flag("onesided", real)?;
    let kind = if real { Kind::R2c } else { Kind::C2c };
    if onesided && !real {
        return Err("Cannot have onesided output if window or input is complex".into());
    }
    let x =
        transformed(cx, x, (&[rank], Size::Static(plan.n)), (kind, onesided), (false, plan.scale))?;
    let order: Vec<i64> = (0..rank as i64 - 1).chain([rank as i64, rank as i64 - 1]).collect();
    let x = each(x, &mut |v| cx.transpose(v, order.clone()))?;
    match x {
        (re, Some(im)) if !a.flag("return_complex", true)? => {
            let v = cx.stacked(re, im, rank + 1)?;
            cx.one(v)
        }
        x => done(cx, x),
    }
}

/// Padded on both sides of the last dimension, by the row of `pad`.
fn centred(cx: &mut Cx, a: &Args<'_>, x: Parts, by: i64) -> Result<Parts> {
    let row = row_of("aten.pad.default").ok_or("has no padding")?;
    let mode = a.text("pad_mode", "reflect")?;
    each(x, &mut |v| {
        let rank = rank_of(v);
        // `pad` wants two dimensions before the one that it reflects.
        let sizes = cx.b.sizes_of(v)?;
        let lead = vec![Size::Static(1); 3 - rank];
        let wide = cx.reshape(v, [&lead[..], &sizes].concat())?;
        let pad = Val::List(vec![Val::Int(Size::Static(by)); 2]);
        let values = [
            ("self", Val::Tensor(cx.store.fresh(wide))),
            ("pad", pad),
            ("mode", Val::Str(mode.clone())),
        ];
        let Outcome::One(Val::Tensor(padded)) =
            (row.build)(cx, &Args { values: values.into_iter().collect() })?
        else {
            return Err("pads into several tensors".into());
        };
        let padded = cx.get(padded)?;
        let sizes = cx.b.sizes_of(padded)?;
        cx.reshape(padded, sizes[3 - rank..].to_vec())
    })
}

/// Frames `[.., frames, n]` added where they overlap: `[.., n + hop (frames - 1)]`.
fn overlapped(cx: &Cx, x: Value, plan: &Frames) -> Result<Value> {
    let axis = rank_of(x) - 1;
    let count = length(cx, x, axis - 1)?;
    let blocks = (plan.n + plan.hop - 1) / plan.hop;
    let (x, _) = resized(cx, (x, None), axis, Size::Static(blocks * plan.hop))?;
    let mut sum: Option<Value> = None;
    // The block i of frame t is a part of the result's block t + i.
    for i in 0..blocks {
        let input = part(cx, x, axis, i * plan.hop, Size::Static(plan.hop))?;
        let (low, high) = (Size::Static(i), Size::Static(blocks - 1 - i));
        let block = cx.zero_padded(input, axis - 1, low, high)?;
        sum = Some(match sum {
            Some(sum) => cx.binary(BinaryKind::Add, sum, block)?,
            None => block,
        });
    }
    let sum = sum.ok_or("has no frames")?;
    let mut sizes = cx.b.sizes_of(sum)?;
    sizes.truncate(axis - 1);
    sizes.push(Size::Static((count + blocks - 1) * plan.hop));
    let flat = cx.reshape(sum, sizes)?;
    part(cx, flat, axis - 1, 0, Size::Static(plan.n + plan.hop * (count - 1)))
}

/// The inverse of [`stft`] by least squares: overlapped frames, divided by the overlapped squares of
/// the window (Griffin and Lim, "Signal estimation from modified short-time Fourier transform",
/// 1984).
pub(super) fn istft(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = wide(cx, a, "self")?;
    let Some(im) = x.1 else {
        return Err("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.".into());
    };
    let d = dtype_of(x.0)?;
    let plan = frames(cx, a, true, d)?;
    let rank = rank_of(x.0);
    if rank != 2 && rank != 3 {
        return Err("expected a tensor with 2 or 3 dimensions".into());
    }
    let have = length(cx, x.0, rank - 2)?;
    let count = length(cx, x.0, rank - 1)?;
    let onesided = a.flag("onesided", have != plan.n)?;
    let want = if onesided { plan.n / 2 + 1 } else { plan.n };
    if have != want {
        return Err(format!("expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 or n_fft, but got {have}").into());
    }
    let complex = a.flag("return_complex", false)?;
    if complex && onesided {
        return Err("cannot have onesided output if window or input is complex".into());
    }
    let order: Vec<i64> = (0..rank as i64 - 2).chain([rank as i64 - 1, rank as i64 - 2]).collect();
    let x = each((x.0, Some(im)), &mut |v| cx.transpose(v, order.clone()))?;
    // A real result is that of the first half of the frequencies.
    let (kind, used) = if complex { (Kind::C2c, plan.n) } else { (Kind::C2r, plan.n / 2 + 1) };
    let x = resized(cx, x, rank - 1, Size::Static(used))?;
    let x =
        transformed(cx, x, (&[rank - 1], Size::Static(plan.n)), (kind, true), (true, plan.scale))?;
    let window = match plan.window {
        Some(window) => window,
        None => (cx.b.splat(d, &[Size::Static(plan.n)], 1.0)?, None),
    };
    let x = times(cx, x, window)?;
    let x = each(x, &mut |v| overlapped(cx, v, &plan))?;
    let squares = times(cx, window, window)?;
    let sizes = [Size::Static(count), Size::Static(plan.n)];
    let envelope = each(squares, &mut |v| overlapped(cx, cx.broadcast_to(v, &sizes)?, &plan))?;
    let whole = plan.n + plan.hop * (count - 1);
    let start = if a.flag("center", true)? { plan.n / 2 } else { 0 };
    let length = a.int("length", Some(whole - 2 * start))?;
    let stop = (start + length).min(whole);
    let envelope = each(envelope, &mut |v| part(cx, v, 0, start, Size::Static(stop - start)))?;
    let x = each(x, &mut |v| part(cx, v, rank - 2, start, Size::Static(stop - start)))?;
    let x = divided(cx, x, envelope)?;
    let x = resized(cx, x, rank - 2, Size::Static(length))?;
    done(cx, x)
}
