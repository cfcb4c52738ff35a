//! Fourier transforms: rows, lengths, norms.
mod direct;
mod shift;
mod windows;

use super::{Args, Cx, Outcome, Row, Val, formula as real, tools::*};
use crate::capture::unsupported;
use kiln_dialects::{ir::*, ops::*, value::DType};

/// What a transform takes and gives: complex to complex, real to half complex, and back.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    C2c,
    R2c,
    C2r,
}

/// A transform of `torch.fft`; the sign of its exponent, and so the scale of its default norm, is
/// positive in an inverse one.
macro_rules! named {
    ($name:literal, $arguments:literal, $kind:ident, $inverse:literal) => {
        Row {
            name: $name,
            arguments: $arguments,
            build: |cx, a| named(cx, a, $name, Kind::$kind, $inverse),
        }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    named!("aten.fft_fft.default", "self, n=None, dim=-1, norm=None", C2c, false),
    named!("aten.fft_fft2.default", "self, s=None, dim=[-2, -1], norm=None", C2c, false),
    named!("aten.fft_fftn.default", "self, s=None, dim=None, norm=None", C2c, false),
    named!("aten.fft_ifft.default", "self, n=None, dim=-1, norm=None", C2c, true),
    named!("aten.fft_ifft2.default", "self, s=None, dim=[-2, -1], norm=None", C2c, true),
    named!("aten.fft_ifftn.default", "self, s=None, dim=None, norm=None", C2c, true),
    named!("aten.fft_rfft.default", "self, n=None, dim=-1, norm=None", R2c, false),
    named!("aten.fft_rfft2.default", "self, s=None, dim=[-2, -1], norm=None", R2c, false),
    named!("aten.fft_rfftn.default", "self, s=None, dim=None, norm=None", R2c, false),
    named!("aten.fft_irfft.default", "self, n=None, dim=-1, norm=None", C2r, true),
    named!("aten.fft_irfft2.default", "self, s=None, dim=[-2, -1], norm=None", C2r, true),
    named!("aten.fft_irfftn.default", "self, s=None, dim=None, norm=None", C2r, true),
    named!("aten.fft_hfft.default", "self, n=None, dim=-1, norm=None", C2r, false),
    named!("aten.fft_hfft2.default", "self, s=None, dim=[-2, -1], norm=None", C2r, false),
    named!("aten.fft_hfftn.default", "self, s=None, dim=None, norm=None", C2r, false),
    named!("aten.fft_ihfft.default", "self, n=None, dim=-1, norm=None", R2c, true),
    named!("aten.fft_ihfft2.default", "self, s=None, dim=[-2, -1], norm=None", R2c, true),
    named!("aten.fft_ihfftn.default", "self, s=None, dim=None, norm=None", R2c, true),
    Row {
        name: "aten._fft_c2c.default",
        arguments: "self, dim, normalization, forward",
        build: |cx, a| core(cx, a, Kind::C2c),
    },
    Row {
        name: "aten._fft_r2c.default",
        arguments: "self, dim, normalization, onesided",
        build: |cx, a| core(cx, a, Kind::R2c),
    },
    Row {
        name: "aten._fft_c2r.default",
        arguments: "self, dim, normalization, last_dim_size",
        build: |cx, a| core(cx, a, Kind::C2r),
    },
    Row { name: "aten.fft_fftshift.default", arguments: "self, dim=None", build: shift::shift },
    Row {
        name: "aten.fft_ifftshift.default",
        arguments: "self, dim=None",
        build: shift::shift_back,
    },
    Row {
        name: "aten.fft_fftfreq.default",
        arguments: "n, d=1, dtype=None",
        build: shift::fftfreq,
    },
    Row {
        name: "aten.fft_rfftfreq.default",
        arguments: "n, d=1, dtype=None",
        build: shift::rfftfreq,
    },
    Row {
        name: "aten.stft.default",
        arguments: "self, n_fft, hop_length=None, win_length=None, window=None, normalized=False, onesided=None, return_complex=None",
        build: windows::stft,
    },
    Row {
        name: "aten.stft.center",
        arguments: "self, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode='reflect', normalized=False, onesided=None, return_complex=None",
        build: windows::stft,
    },
    Row {
        name: "aten.istft.default",
        arguments: "self, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None, return_complex=False",
        build: windows::istft,
    },
];

/// A tensor as its parts; a real one has no second.
type Parts = (Value, Option<Value>);

/// An argument in f32 or f64.
fn wide(cx: &mut Cx, a: &Args<'_>, name: &str) -> Result<Parts> {
    let (re, im) = cx.halves(a, name)?;
    let d = match dtype_of(re)? {
        DType::F16 => return Err(unsupported("gives complex32, which is not supported")),
        DType::BF16 => return Err("Unsupported dtype BFloat16".into()),
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    Ok((cx.convert(re, d)?, im.map(|im| cx.convert(im, d)).transpose()?))
}

/// A part of a dimension.
fn part(cx: &Cx, input: Value, axis: usize, from: i64, n: Size) -> Result<Value> {
    let mut sizes = cx.b.sizes_of(input)?;
    let mut offsets = vec![Size::Static(0); sizes.len()];
    let strides = vec![1; sizes.len()];
    if let (Some(size), Some(offset)) = (sizes.get_mut(axis), offsets.get_mut(axis)) {
        (*size, *offset) = (n, Size::Static(from));
    }
    cx.b.add(&Slice { input, offsets, sizes, strides })
}

/// Applies a function to both parts.
fn each(x: Parts, make: &mut dyn FnMut(Value) -> Result<Value>) -> Result<Parts> {
    Ok((make(x.0)?, x.1.map(make).transpose()?))
}

/// Pads with zeros or cuts at the end of a dimension.
fn resized(cx: &Cx, x: Parts, axis: usize, n: Size) -> Result<Parts> {
    positive(n)?;
    let have = cx.b.size_of(x.0, axis)?;
    if have == n {
        return Ok(x);
    }
    let missing = cx.size_max(cx.size_sub(n, have)?, Size::Static(0))?;
    let padded = |input: Value| {
        if missing.known() == Some(0) {
            return Ok(input);
        }
        cx.zero_padded(input, axis, Size::Static(0), missing)
    };
    each(x, &mut |input| {
        let long = padded(input)?;
        if cx.b.size_of(long, axis)? == n { Ok(long) } else { part(cx, long, axis, 0, n) }
    })
}

/// Transforms one dimension to length `n`. Complex results are both parts.
fn along(
    cx: &Cx,
    x: Parts,
    axis: usize,
    length: (Size, bool, f64),
    (kind, onesided): (Kind, bool),
) -> Result<Parts> {
    let rank = rank_of(x.0);
    let mut order: Vec<i64> = (0..rank as i64).filter(|d| *d != axis as i64).collect();
    order.push(axis as i64);
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(to, from)| back[*from as usize] = to as i64);
    let moved = each(x, &mut |v| cx.transpose(v, order.clone()))?;
    let (n, inverse, scale) = length;
    let made = match n.known() {
        Some(n) => fixed(cx, moved, (n, inverse, scale), (kind, onesided))?,
        None => {
            let count = if kind == Kind::R2c && onesided { half_of(cx, n)? } else { n };
            direct::emit(cx, moved, (n, inverse, scale), kind, count)?
        }
    };
    each(made, &mut |v| cx.transpose(v, back.clone()))
}

/// Transforms the last dimension to a static length.
fn fixed(
    cx: &Cx,
    (re, im): Parts,
    (n, inverse, scale): (i64, bool, f64),
    (kind, onesided): (Kind, bool),
) -> Result<Parts> {
    let (op_kind, im) = match (kind, im) {
        (Kind::R2c, _) | (Kind::C2c, None) => (FftKind::R2c, None),
        (Kind::C2c, im) => (FftKind::C2c, im),
        (Kind::C2r, None) => (FftKind::C2r, Some(cx.full_like(re, 0.0)?)),
        (Kind::C2r, im) => (FftKind::C2r, im),
    };
    let op = cx.b.create_node(&Fft {
        kind: op_kind,
        re,
        im,
        length: n,
        inverse,
        interleaved_input: false,
        interleaved_result: false,
    })?;
    let made = (op.result(0), op.results().get(1).copied());
    let half = op_kind == FftKind::R2c && !(kind == Kind::R2c && onesided);
    let made = if half { mirrored(cx, made, n)? } else { made };
    match scale {
        1.0 => Ok(made),
        _ => each(made, &mut |v| cx.binary(BinaryKind::Mul, v, cx.full_like(v, scale)?)),
    }
}

/// The whole spectrum of `n` real numbers from its first half: the others are conjugates.
fn mirrored(cx: &Cx, (re, im): Parts, n: i64) -> Result<Parts> {
    let whole = |v: Value, conjugate: bool| {
        let axis = rank_of(v).saturating_sub(1);
        // For even n the middle is not repeated.
        let rest = part(cx, v, axis, 1, Size::Static((n - 1) / 2))?;
        let rest = cx.b.add(&Reverse { input: rest, dims: vec![axis as i64] })?;
        let rest = if conjugate { cx.unary(UnaryKind::Neg, rest)? } else { rest };
        cx.b.add(&Concat { inputs: vec![v, rest], axis: axis as i64 })
    };
    Ok((whole(re, false)?, im.map(|im| whole(im, true)).transpose()?))
}

/// Transforms dimensions, real numbers along the last of them. `n` is the last one's length.
fn transformed(
    cx: &Cx,
    mut x: Parts,
    (dims, n): (&[usize], Size),
    (kind, onesided): (Kind, bool),
    (inverse, scale): (bool, f64),
) -> Result<Parts> {
    let Some((last, others)) = dims.split_last() else { return Ok(x) };
    // Complex arguments are pairs, which rows take as they are; the factor joins what follows.
    if kind != Kind::C2r {
        x = along(cx, x, *last, (n, inverse, scale), (kind, onesided))?;
    }
    for axis in others.iter().rev() {
        let n = cx.b.size_of(x.0, *axis)?;
        x = along(cx, x, *axis, (n, inverse, 1.0), (Kind::C2c, false))?;
    }
    match kind {
        Kind::C2r => along(cx, x, *last, (n, inverse, scale), (kind, onesided)),
        _ => Ok(x),
    }
}

/// By what a transform is divided: the number of elements that one result is a sum of, or its root.
#[derive(Clone, Copy, PartialEq)]
enum Norm {
    None,
    Root,
    Count,
}

/// A transform and its norm. The last dimension's length, of a real result its own, is `n`.
fn normalized(
    cx: &Cx,
    x: Parts,
    (dims, n): (&[usize], Size),
    kind: (Kind, bool),
    (inverse, norm): (bool, Norm),
) -> Result<Parts> {
    let others = dims.split_last().map_or(&[][..], |(_, others)| others);
    let count = others.iter().try_fold(n, |all, d| cx.size_mul(all, cx.b.size_of(x.0, *d)?))?;
    let (scale, symbolic) = match (norm, count.known()) {
        (Norm::None, _) => (1.0, false),
        (Norm::Root, Some(count)) => (1.0 / (count as f64).sqrt(), false),
        (Norm::Count, Some(count)) => (1.0 / count as f64, false),
        (_, None) => (1.0, true),
    };
    let x = transformed(cx, x, (dims, n), kind, (inverse, scale))?;
    if !symbolic {
        return Ok(x);
    }
    let count = cx.size_data(count, DType::F64)?;
    let by = real::value(cx, |f| {
        let count = f.of(count);
        if norm == Norm::Root { count.sqrt() } else { count }
    })?;
    let by = cx.convert(by, dtype_of(x.0)?)?;
    each(x, &mut |v| cx.binary(BinaryKind::Div, v, by))
}

/// How many numbers of a transform of real ones are stored: `n / 2 + 1`.
fn half_of(cx: &Cx, n: Size) -> Result<Size> {
    cx.size_add(cx.size_div(n, Size::Static(2))?, Size::Static(1))
}

/// Refuses a length that is known to be below 1.
fn positive(n: Size) -> Result<()> {
    match n.known() {
        Some(n) if n < 1 => Err(format!("Invalid number of data points ({n}) specified").into()),
        _ => Ok(()),
    }
}

/// Transformed dimensions and their lengths; -1 is the present one.
fn places(a: &Args<'_>, x: Value, name: &str) -> Result<(Vec<usize>, Vec<Option<Size>>)> {
    let rank = rank_of(x);
    let given = if a.has("n") { "n" } else { "s" };
    let given = a.has(given).then(|| a.sizes(given)).transpose()?;
    let dims = match a.ints("dim")? {
        Some(dims) => dims.iter().map(|d| wrap(*d, rank)).collect::<Result<Vec<_>>>()?,
        None if name.ends_with("n.default") => {
            let count = given.as_ref().map_or(rank, Vec::len);
            let first = rank.checked_sub(count).ok_or_else(|| {
                Error::from(format!(
                    "Got shape with {count} values but input tensor only has {rank} dimensions."
                ))
            })?;
            (first..rank).collect()
        }
        None if name.ends_with("2.default") => vec![wrap(-2, rank)?, wrap(-1, rank)?],
        None => vec![wrap(-1, rank)?],
    };
    if rank == 0 && !dims.is_empty() {
        return Err("Dimension specified as -1 but tensor has no dimensions".into());
    }
    if dims.iter().enumerate().any(|(i, d)| dims[..i].contains(d)) {
        return Err("FFT dims must be unique".into());
    }
    let sizes = match given {
        Some(given) if given.len() != dims.len() => {
            return Err("When given, dim and shape arguments must have the same length".into());
        }
        Some(given) => given.into_iter().map(|n| (n.known() != Some(-1)).then_some(n)).collect(),
        None => vec![None; dims.len()],
    };
    Ok((dims, sizes))
}

fn named(cx: &mut Cx, a: &Args<'_>, name: &str, kind: Kind, inverse: bool) -> Result<Outcome> {
    let mut x = wide(cx, a, "self")?;
    if kind == Kind::R2c && x.1.is_some() {
        return Err("expects a real input tensor, but got a complex one".into());
    }
    let (dims, sizes) = places(a, x.0, name)?;
    let Some((last, _)) = dims.split_last() else {
        if kind != Kind::C2c {
            return Err("must transform at least one axis".into());
        }
        let im = cx.full_like(x.0, 0.0)?;
        return cx.one_complex(x.0, x.1.unwrap_or(im));
    };
    let last = *last;
    let mut n = Size::Static(0);
    for (axis, size) in dims.iter().zip(&sizes) {
        let have = cx.b.size_of(x.0, *axis)?;
        if kind == Kind::C2r && *axis == last {
            let twice = cx.size_mul(cx.size_add(have, Size::Static(-1))?, Size::Static(2))?;
            n = size.unwrap_or(twice);
            positive(n)?;
            x = resized(cx, x, *axis, half_of(cx, n)?)?;
            continue;
        }
        n = size.unwrap_or(have);
        x = resized(cx, x, *axis, n)?;
    }
    let power = match (a.text("norm", "backward")?.as_str(), inverse) {
        ("ortho", _) => Norm::Root,
        ("backward", true) | ("forward", false) => Norm::Count,
        ("backward" | "forward", _) => Norm::None,
        (other, _) => return Err(format!("Invalid normalization mode: \"{other}\"").into()),
    };
    let x = normalized(cx, x, (&dims, n), (kind, true), (inverse, power))?;
    done(cx, x)
}

fn done(cx: &mut Cx, x: Parts) -> Result<Outcome> {
    match x {
        (re, Some(im)) => cx.one_complex(re, im),
        (re, None) => cx.one(re),
    }
}

/// PyTorch's own transforms: 1 divides by the root of the number of elements, 2 by this number.
fn core(cx: &mut Cx, a: &Args<'_>, kind: Kind) -> Result<Outcome> {
    let mut x = wide(cx, a, "self")?;
    let rank = rank_of(x.0);
    let dims = a.ints("dim")?.unwrap_or_default();
    let dims = dims.iter().map(|d| wrap(*d, rank)).collect::<Result<Vec<_>>>()?;
    let Some(last) = dims.last() else { return done(cx, x) };
    let n = match kind {
        Kind::C2r => a.size("last_dim_size")?,
        _ => cx.b.size_of(x.0, *last)?,
    };
    if kind == Kind::C2r {
        positive(n)?;
        x = resized(cx, x, *last, half_of(cx, n)?)?;
    }
    let norm = match a.int("normalization", Some(0))? {
        1 => Norm::Root,
        2 => Norm::Count,
        _ => Norm::None,
    };
    let inverse = match kind {
        Kind::C2c => !a.flag("forward", true)?,
        Kind::R2c => false,
        Kind::C2r => true,
    };
    let onesided = a.flag("onesided", true)?;
    let x = normalized(cx, x, (&dims, n), (kind, onesided), (inverse, norm))?;
    done(cx, x)
}
