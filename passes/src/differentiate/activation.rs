//! Derivatives of activations and softmax as formulas: of the cotangent `g`, the operand `x` and
//! the result `y`. The importer builds ATen's backward overloads of them.
use super::rule::Rule;
use crate::formula::Term;
use kiln_dialects::{ir::*, ops::*};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

pub(super) fn activation(r: &mut Rule<'_>) -> Result<()> {
    match r.op.kind() {
        Some(OpKind::Sigmoid) => r.slope(0, |g, _, y| sigmoid(g, y)),
        Some(OpKind::Silu) => r.slope(0, |g, x, _| silu(g, x)),
        Some(OpKind::Relu) => r.slope(0, |g, _, y| relu(g, y)),
        Some(OpKind::Hardtanh) => {
            let o = r.node::<Hardtanh>()?;
            r.slope(0, |g, x, _| (x.gt(o.low) & x.lt(o.high)).select(g, 0.0))
        }
        Some(OpKind::Hardsigmoid) => r.slope(0, |g, x, _| hardsigmoid(g, x)),
        Some(OpKind::Hardswish) => r.slope(0, |g, x, _| hardswish(g, x)),
        Some(OpKind::Gelu) => {
            let tanh = r.node::<Gelu>()?.tanh;
            r.slope(0, |g, x, _| gelu(g, x, tanh))
        }
        Some(OpKind::Softplus) => {
            let o = r.node::<Softplus>()?;
            r.slope(0, |g, x, _| softplus(g, x, o.beta, o.threshold))
        }
        _ => Err("is not an activation with a derivative".into()),
    }
}

/// `y (1 - y)`
pub fn sigmoid<'f>(g: Term<'f>, y: Term<'f>) -> Term<'f> {
    g * (1.0 - y) * y
}

/// `s (1 + x (1 - s))`, s the sigmoid
pub fn silu<'f>(g: Term<'f>, x: Term<'f>) -> Term<'f> {
    let s = 1.0 / ((-x).exp() + 1.0);
    g * s * (x * (1.0 - s) + 1.0)
}

/// 1 where the result is above 0: the operand need not be saved
pub fn relu<'f>(g: Term<'f>, y: Term<'f>) -> Term<'f> {
    y.le(0.0).select(0.0, g)
}

/// `Phi(x) + x phi(x)`, the normal distribution and its density; or the derivative of the tanh
/// approximation
pub fn gelu<'f>(g: Term<'f>, x: Term<'f>, tanh: bool) -> Term<'f> {
    if tanh {
        const CUBE: f64 = 0.044715;
        let scale = (2.0 / PI).sqrt();
        let t = ((x + x * x * x * CUBE) * scale).tanh();
        let inner = (x * x * (3.0 * CUBE) + 1.0) * scale;
        return g * ((t + 1.0) * 0.5 + x * (1.0 - t * t) * inner * 0.5);
    }
    let below = ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    let density = (x * x * -0.5).exp() * (1.0 / (2.0 * PI).sqrt());
    g * (below + x * density)
}

/// `x / 3 + 1 / 2` between -3 and 3, 0 below, 1 above
pub fn hardswish<'f>(g: Term<'f>, x: Term<'f>) -> Term<'f> {
    let inside = x.lt(3.0).select(g * (x / 3.0 + 0.5), g);
    x.le(-3.0).select(0.0, inside)
}

/// `1 / 6` between -3 and 3
pub fn hardsigmoid<'f>(g: Term<'f>, x: Term<'f>) -> Term<'f> {
    (x.gt(-3.0) & x.lt(3.0)).select(g / 6.0, 0.0)
}

/// The sigmoid of `beta x`, and 1 where that exceeds the threshold
pub fn softplus<'f>(g: Term<'f>, x: Term<'f>, beta: f64, threshold: f64) -> Term<'f> {
    let by = x * beta;
    let e = by.exp();
    by.gt(threshold).select(g, g * e / (e + 1.0))
}

/// `y (g - sum(g y))` along a dimension
pub fn softmax<'f>(g: Term<'f>, y: Term<'f>, axis: i64) -> Term<'f> {
    let product = g * y;
    product - y * product.reduce(ReduceKind::Sum, &[axis], true)
}

/// `g - e^y sum(g)` along a dimension
pub fn log_softmax<'f>(g: Term<'f>, y: Term<'f>, axis: i64) -> Term<'f> {
    g - y.exp() * g.reduce(ReduceKind::Sum, &[axis], true)
}
