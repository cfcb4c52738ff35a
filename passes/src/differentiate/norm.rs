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

/// Both sums over the batch serve the parameters and the statistics: with statistics of the input
/// (training), its gradient is two sums and a formula.
pub(super) fn batch_norm(r: &mut Rule<'_>) -> Result<()> {
    let o = r.node::<BatchNorm>()?;
    let (b, m) = (r.m.b, &r.m);
    let d = accumulator_type(dtype(o.input)?);
    let (x, g) = (m.convert(o.input, d)?, m.convert(r.cotangent()?, d)?);
    let (mean, variance) = (m.convert(o.mean, d)?, m.convert(o.variance, d)?);
    let others: Vec<i64> = (0..rank(x) as i64).filter(|dim| *dim != 1).collect();
    let scale = value(b, |f| 1.0 / (f.of(variance) + o.epsilon).sqrt())?;
    let slope = match o.weight {
        Some(w) => m.mul(scale, m.convert(w, d)?)?,
        None => scale,
    };
    let by_x = m.mul(g, m.broadcast_to(slope, &[1], x)?)?;
    let centred = m.sub(x, m.broadcast_to(mean, &[1], x)?)?;
    let y = m.mul(centred, m.broadcast_to(scale, &[1], x)?)?;
    let by_bias = m.reduce(ReduceKind::Sum, g, &others)?;
    let by_weight = m.reduce(ReduceKind::Sum, m.mul(g, y)?, &others)?;
    let by_mean = value(b, |f| -(f.of(slope) * f.of(by_bias)))?;
    let by_variance = value(b, |f| f.of(slope) * f.of(scale) * f.of(by_weight) * -0.5)?;
    r.give(o.input, by_x)?;
    r.give(o.mean, by_mean)?;
    r.give(o.variance, by_variance)?;
    for (parameter, v) in [(o.weight, by_weight), (o.bias, by_bias)] {
        parameter.map_or(Ok(()), |p| r.give(p, v))?;
    }
    Ok(())
}

/// `2 (x - mean x) / max(n - correction, 0)`: the sum of what the mean would add is 0.
pub(super) fn variance(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Var>()?, r.cotangent()?);
    if !r.wants(o.input) {
        return Ok(());
    }
    let (b, m) = (r.m.b, &r.m);
    let d = accumulator_type(dtype(o.input)?);
    let (x, g) = (m.convert(o.input, d)?, m.convert(g, d)?);
    let mean = b.add(&Mean { input: x, dims: o.dims.clone(), keep_dims: true })?;
    let n = m.number(m.count(x, &o.dims)?, d)?;
    let each = value(b, |f| 2.0 / (f.of(n) - o.correction).max(0.0))?;
    let kept = match o.keep_dims {
        true => g,
        false => m.reshape(g, &m.sizes_of(mean)?)?,
    };
    let v = value(b, |f| (f.of(x) - f.of(mean)) * (f.of(kept) * f.of(each)))?;
    r.give(o.input, v)
}

pub(super) fn softmax(r: &mut Rule<'_>) -> Result<()> {
    let axis = r.node::<Softmax>()?.axis;
    r.slope(0, |g, _, y| activation::softmax(g, y, axis))
}

pub(super) fn log_softmax(r: &mut Rule<'_>) -> Result<()> {
    let axis = r.node::<LogSoftmax>()?.axis;
    r.slope(0, |g, _, y| activation::log_softmax(g, y, axis))
}
