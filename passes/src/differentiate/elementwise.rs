//! Elementwise prims.
use super::rule::Rule;
use crate::decompose::tools::dtype;
use kiln_dialects::{ir::*, ops::*};
use std::f64::consts::{LN_2, PI};

pub(super) fn unary(r: &mut Rule<'_>) -> Result<()> {
    let kind = r.op.kind().ok_or("is no op of kiln")?;
    r.slope(0, |g, x, y| match kind {
        OpKind::Neg => -g,
        OpKind::Abs => g * x.sign(),
        OpKind::Exp => g * y,
        OpKind::Exp2 => g * y * LN_2,
        OpKind::Expm1 => g * (y + 1.0),
        OpKind::Log => g / x,
        OpKind::Log1p => g / (x + 1.0),
        OpKind::Log2 => g / (x * LN_2),
        OpKind::Sqrt => g / (y * 2.0),
        OpKind::Rsqrt => g * y * y * y * -0.5,
        OpKind::Sin => g * x.cos(),
        OpKind::Cos => -(g * x.sin()),
        OpKind::Tan => g * (y * y + 1.0),
        OpKind::Asin => g / (1.0 - x * x).sqrt(),
        OpKind::Acos => -(g / (1.0 - x * x).sqrt()),
        OpKind::Atan => g / (x * x + 1.0),
        OpKind::Sinh => g * x.cosh(),
        OpKind::Cosh => g * x.sinh(),
        OpKind::Tanh => g * (1.0 - y * y),
        OpKind::Erf => g * (-(x * x)).exp() * (2.0 / PI.sqrt()),
        _ => x.fail("is not a unary op with a derivative"),
    })
}

pub(super) fn binary(r: &mut Rule<'_>) -> Result<()> {
    let kind = r.op.kind().ok_or("is no op of kiln")?;
    let (lhs, rhs) = (r.op.operand(0), r.op.operand(1));
    for (i, other) in [(0, rhs), (1, lhs)] {
        let x = r.op.operand(i);
        if !r.wants(x) {
            continue;
        }
        let all = [r.cotangent()?, x, other, r.op.result(0)];
        let left = i == 0;
        let made = r.formula(all, |[g, x, other, z]| match (kind, left) {
            (OpKind::Add, _) | (OpKind::Sub | OpKind::Rem, true) => g,
            (OpKind::Sub, false) => -g,
            (OpKind::Mul, _) => g * other,
            (OpKind::Div, true) => g / other,
            (OpKind::Div, false) => -(g * z / x),
            (OpKind::Rem, false) => -(g * (other / x).trunc()),
            // At x = 0, 0 * x^-1 would be NaN.
            (OpKind::Pow, true) => {
                let slope = g * other * x.pow(other - 1.0);
                other.eq(0.0).select(0.0, slope)
            }
            // At base 0, 0 * ln 0 would be NaN.
            (OpKind::Pow, false) => {
                let slope = g * z * other.ln();
                (other.eq(0.0) & x.ge(0.0)).select(0.0, slope)
            }
            // Equal operands get half each, as in PyTorch and JAX.
            (OpKind::Max, _) => x.eq(other).select(g * 0.5, x.gt(other).select(g, 0.0)),
            (OpKind::Min, _) => x.eq(other).select(g * 0.5, x.lt(other).select(g, 0.0)),
            (OpKind::Atan2, true) => g * other / (x * x + other * other),
            (OpKind::Atan2, false) => -(g * other / (x * x + other * other)),
            _ => x.fail("is not a binary op with a derivative"),
        })?;
        r.give(x, made)?;
    }
    Ok(())
}

pub(super) fn select(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Select>()?, r.cotangent()?);
    let zero = r.zeros_like(g)?;
    if r.wants(o.on_true) {
        let v = r.m.select(o.condition, g, zero)?;
        r.give(o.on_true, v)?;
    }
    if r.wants(o.on_false) {
        let v = r.m.select(o.condition, zero, g)?;
        r.give(o.on_false, v)?;
    }
    Ok(())
}

/// As torch.clamp: within the limits, and at them, the input has the gradient. `high` wins where
/// low > high.
pub(super) fn clamp(r: &mut Rule<'_>) -> Result<()> {
    let (o, g) = (r.node::<Clamp>()?, r.cotangent()?);
    let all = [g, o.input, o.low, o.high];
    if r.wants(o.input) {
        let v = r.formula(all, |[g, x, low, high]| (x.ge(low) & x.le(high)).select(g, 0.0))?;
        r.give(o.input, v)?;
    }
    if r.wants(o.low) {
        let v = r.formula(all, |[g, x, low, high]| (x.lt(low) & low.le(high)).select(g, 0.0))?;
        r.give(o.low, v)?;
    }
    if r.wants(o.high) {
        let v = r.formula(all, |[g, x, low, high]| (x.gt(high) | low.gt(high)).select(g, 0.0))?;
        r.give(o.high, v)?;
    }
    Ok(())
}

pub(super) fn convert(r: &mut Rule<'_>) -> Result<()> {
    let (x, g) = (r.op.operand(0), r.cotangent()?);
    let v = r.m.convert(g, dtype(x)?)?;
    r.give(x, v)
}
