//! Normalisations and softmax: derivatives by the normalised input, which are shorter than those
//! of the decomposition.
use super::{activation, rule::Rule};
use crate::{decompose::tools::*, formula::value};
use kiln_dialects::{ir::*, ops::*};

/// `scale (g - mean g - y mean (g y))` over dimensions, where `y` is the normalised input and `g`
/// the gradient by it; without the first mean if `y` is not centred.
pub fn normalised(
    b: &Builder,
    g: Value,
    y: Value,
    scale: Value,
    dims: &[i64],
    centred: bool,
) -> Result<Value> {
    let mean = |v: Value| b.add(&Mean { input: v, dims: dims.to_vec(), keep_dims: true });
    let along_y = mean(value(b, |f| f.of(g) * f.of(y))?)?;
    let level = mean(g)?;
    value(b, |f| {
        let rest = f.of(g) - f.of(y) * f.of(along_y);
        f.of(scale) * if centred { rest - f.of(level) } else { rest }
    })
}

pub(super) fn layer_norm(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<LayerNorm>()?;
    norm(r, o.input, [o.weight, o.bias], o.rank, o.epsilon, true)
}

pub(super) fn rms_norm(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<RmsNorm>()?;
    norm(r, o.input, [o.weight, None], o.rank, o.epsilon, false)
}

fn norm(
    r: &mut Rule<'_>,
    input: Value,
    [weight, bias]: [Option<Value>; 2],
    over: i64,
    epsilon: f64,
    centred: bool,
) -> Result<()> {
    let b = r.m.b;
    let d = accumulator_type(dtype(input)?);
    let (mut x, g) = (r.m.convert(input, d)?, r.m.convert(r.cotangent()?, d)?);
    let n = rank(input) as i64;
    let (lead, dims): (Vec<i64>, Vec<i64>) = ((0..n - over).collect(), (n - over..n).collect());
    let mean = |v: Value| b.add(&Mean { input: v, dims: dims.clone(), keep_dims: true });
    if centred {
        let level = mean(x)?;
        x = value(b, |f| f.of(x) - f.of(level))?;
    }
    let square = mean(r.m.mul(x, x)?)?;
    let scale = value(b, |f| 1.0 / (f.of(square) + epsilon).sqrt())?;
    let y = value(b, |f| f.of(x) * f.of(scale))?;
    if r.wants(input) {
        let by_y = match weight {
            Some(w) => r.m.mul(g, r.m.broadcast_to(r.m.convert(w, d)?, &dims, g)?)?,
            None => g,
        };
        let v = normalised(b, by_y, y, scale, &dims, centred)?;
        r.give(input, v)?;
    }
    if let Some(w) = weight.filter(|w| r.wants(*w)) {
        let v = r.m.reduce(ReduceKind::Sum, r.m.mul(g, y)?, &lead)?;
        r.give(w, v)?;
    }
    if let Some(bias) = bias.filter(|v| r.wants(*v)) {
        let v = r.m.reduce(ReduceKind::Sum, g, &lead)?;
        r.give(bias, v)?;
    }
    Ok(())
}

pub(super) fn softmax(r: &mut Rule<'_>) -> Result<()> {
    let axis = r.node::<Softmax>()?.axis;
    r.slope(0, |g, _, y| activation::softmax(g, y, axis))
}

pub(super) fn log_softmax(r: &mut Rule<'_>) -> Result<()> {
    let axis = r.node::<LogSoftmax>()?.axis;
    r.slope(0, |g, _, y| activation::log_softmax(g, y, axis))
}
