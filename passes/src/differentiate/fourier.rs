//! Fourier transforms. They are linear, so the cotangent of the operand is the adjoint of the
//! transform, which has the other direction.
use super::rule::Rule;
use crate::{
    decompose::tools::{Math, rank},
    interleave_ffts::{joined, parts},
};
use kiln_dialects::{ir::*, ops::*};

pub(super) fn fft(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<Fft>()?;
    if !r.wants(o.re) && !o.im.is_some_and(|im| r.wants(im)) {
        return Ok(());
    }
    let mut all = vec![];
    for (i, result) in r.op.results().into_iter().enumerate() {
        all.push(r.cotangent_of(i).map_or_else(|| r.zeros_like(result), Ok)?);
    }
    if let (true, [g]) = (o.interleaved_result, &all[..]) {
        all = parts(&r.m, *g)?.to_vec();
    }
    let made = adjoint(&r.m, &o, &all)?;
    if o.interleaved_input {
        let v = joined(&r.m, &made)?;
        return r.give(o.re, v);
    }
    for (operand, v) in [Some(o.re), o.im].into_iter().flatten().zip(made) {
        r.give(operand, v)?;
    }
    Ok(())
}

/// The adjoint of the transform, applied to real and imaginary parts.
fn adjoint(m: &Math<'_>, o: &Fft, g: &[Value]) -> Result<Vec<Value>> {
    let (re, im) = (*g.first().ok_or("has no result")?, g.get(1).copied());
    let back = |kind, re, im| {
        let (interleaved_input, interleaved_result) = (false, false);
        let (length, inverse) = (o.length, !o.inverse);
        let node = Fft { kind, re, im, length, inverse, interleaved_input, interleaved_result };
        Ok::<_, Error>(m.b.create_node(&node)?.results())
    };
    match o.kind {
        FftKind::C2c => back(FftKind::C2c, re, im),
        // `c2r` adds the conjugates of all but the ends, which doubles what is between these.
        FftKind::R2c => {
            let halved = |v| scaled(m, o.length, v, 0.5);
            back(FftKind::C2r, halved(re)?, im.map(halved).transpose()?)
        }
        FftKind::C2r => {
            back(FftKind::R2c, re, None)?.into_iter().map(|v| scaled(m, o.length, v, 2.0)).collect()
        }
    }
}

/// Half a spectrum of `length` numbers times `by`, but for the first and, if `length` is even, the
/// last, which stand for themselves alone.
fn scaled(m: &Math<'_>, length: i64, v: Value, by: f64) -> Result<Value> {
    let sizes = m.sizes_of(v)?;
    let k = m.iota(&sizes, rank(v).saturating_sub(1))?;
    let at = |n: i64| m.compare(CompareKind::Eq, k, m.number_like(Size::Static(n), k)?);
    let mut end = at(0)?;
    if length % 2 == 0 {
        end = m.binary(BinaryKind::Or, end, at(length / 2)?)?;
    }
    m.mul(v, m.select(end, m.full_like(v, 1.0)?, m.full_like(v, by)?)?)
}
