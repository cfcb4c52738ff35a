//! The type rule of Fourier transforms.
use super::types::{Sizes, TensorType, ensure, unify_all};
use crate::{error::Result, ops::*, sym::Dim, value::DType};

/// Numbers of half a spectrum: those that do not follow from the others where it is that of real
/// numbers.
pub fn half_spectrum(length: i64) -> i64 {
    length / 2 + 1
}

pub(super) fn infer(o: &Fft, v: &dyn Sizes) -> Result<Vec<TensorType>> {
    let mut re = v.tensor(o.re)?;
    ensure(matches!(re.dtype, DType::F32 | DType::F64), || {
        format!("has dtype {}, not f32 or f64", re.dtype.name())
    })?;
    ensure(o.length >= 1, || format!("has length {}, which is below 1", o.length))?;
    let kind = o.kind.keyword();
    let real_side = |interleaved: bool, real: FftKind, what: &str| {
        let fits = !(interleaved && o.kind == real);
        ensure(fits, || format!("of kind {kind} has {what}, which is for complex numbers"))
    };
    real_side(o.interleaved_input, FftKind::R2c, "interleaved_input")?;
    real_side(o.interleaved_result, FftKind::C2r, "interleaved_result")?;
    let has_im = o.im.is_some();
    ensure(has_im == (o.kind != FftKind::R2c && !o.interleaved_input), || {
        format!("of kind {kind} {} an imaginary part", if has_im { "has" } else { "lacks" })
    })?;
    if let Some(im) = o.im {
        let im = v.tensor(im)?;
        ensure(im.dtype == re.dtype, || {
            format!("has a real part of {} and an imaginary one of {}", re.dtype, im.dtype)
        })?;
        re.dims = unify_all(&re.dims, &im.dims, "of the real and the imaginary part")?;
    }
    if o.interleaved_input {
        let pair = re.dims.pop();
        ensure(pair == Some(Dim::Known(2)), || "has no last dimension of 2".into())?;
    }
    let half = half_spectrum(o.length);
    let (takes, gives) = match o.kind {
        FftKind::C2c => (o.length, o.length),
        FftKind::R2c => (o.length, half),
        FftKind::C2r => (half, o.length),
    };
    let last = re.dims.last_mut().ok_or("has no dimension to transform")?;
    ensure(*last == Dim::Known(takes), || {
        let n = o.length;
        format!("has a last dimension of size {last}; {kind} of length {n} takes {takes}")
    })?;
    *last = Dim::Known(gives);
    if o.interleaved_result {
        re.dims.push(Dim::Known(2));
    }
    let parts = if o.kind == FftKind::C2r || o.interleaved_result { 1 } else { 2 };
    Ok(vec![re; parts])
}
